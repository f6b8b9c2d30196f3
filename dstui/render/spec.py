"""The launch spec: the command of each host and the environment of the ranks.

The properties of launchers are data in plan/launchers.py. The functions at the end of this file make the words of their commands. Sources:
deepspeed/launcher/runner.py of release 0.19.8, torch/distributed/run.py, accelerate/commands/launch.py of 1.15.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field

from dstui.base.dataclass import dataclass
from dstui.machine.binding import Binding
from dstui.plan.env_file import ENV_FILE
from dstui.plan.handed_over import ACCELERATE_OPTION
from dstui.plan.hostfile import is_named
from dstui.plan.launchers import BY_NAME, Start
from dstui.render.config_files import with_paths
from dstui.render.quoting import FILES, quote_word, refuse_unset, variable

BIND = "bind.sh"
"""The wrapper that starts each rank on its own CPUs."""
HERE = ("localhost", "127.0.0.1", "::1")
WITH_PATHS = ".here"
"""Suffix of launch.sh's copy of ENV_FILE, which also has paths in its own folder."""

DEEPSPEED = ("-m", "deepspeed.launcher.runner")
TORCHRUN = ("-m", "torch.distributed.run")
ACCELERATE = ("-m", "accelerate.commands.launch")
_MEET_ANYWHERE = ("--rdzv-backend", "c10d")
"""The rendezvous numbers the ranks, so that the command is the same on every host."""
RENDEZVOUS = ("rdzv-endpoint", "rdzv-id")


@dataclass(frozen=True, slots=True)
class AccelerateFile:
    """Settings of `accelerate launch` besides its YAML."""

    multinode: str = "standard"
    """deepspeed_multinode_launcher: standard (torchrun on each machine), pdsh or nossh."""
    config_file: bool = False
    """True if the YAML names a ds_config.json."""

    @property
    def hostfile(self) -> bool:
        """Return whether it uses DeepSpeed's launcher, which reads a hostfile."""
        return self.multinode != "standard"


@dataclass(frozen=True, slots=True)
class LaunchSpec:
    """The start of the ranks. Paths are absolute, except the script, which is relative to `workdir`.

    Generated files (hostfile, .deepspeed_env, bind.sh, accelerate.yaml) are beside the ds_config.json, wherever that is.
    """

    python: str
    launcher_options: tuple[str, ...]
    """Options that are the same for all hosts, and the Plan's own (cluster.launcher_args)."""
    script: tuple[str, ...]
    """`("train.py",)` or `("-m", "pkg.train")`."""
    script_args: tuple[str, ...]
    """With `{ds_config}` not yet replaced."""
    workdir: str
    env: Mapping[str, str] = field(default_factory=dict)
    """The variables of the ranks, with `{ds_config}` not yet replaced."""
    ranks: Mapping[int, str] = field(default_factory=dict)
    """Rank -> host; empty if the number of ranks is not known yet (no GPU was probed)."""
    cpu: bool = False
    launcher: str = "local"
    slots: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Host -> used slots, rank 0's host first; empty if not known yet."""
    bindings: tuple[Binding, ...] = ()
    """The CPUs of each local rank, if bind.sh sets them."""
    master_addr: str | None = None
    """The rendezvous address of several hosts: a name or an address of the first one."""
    master_port: int | str | None = None
    """None: DeepSpeed's default on this machine. A launch takes a free port of the first host: `replace(spec, master_port=…)`."""
    filters: tuple[str, ...] = ()
    """--include and similar options, for a launcher that reads the whole hostfile."""
    env_file: str = ENV_FILE
    """The name of the file with `env`, if DeepSpeed's launcher passes it to ranks on other hosts."""
    accelerate: AccelerateFile = AccelerateFile()

    @property
    def hosts(self) -> tuple[str, ...]:
        """The hosts as in the hostfile, rank 0's first."""
        return tuple(self.slots) or ("localhost",)

    @property
    def local(self) -> bool:
        """Return whether every rank runs on this machine, started by DeepSpeed's own launcher."""
        return self.launcher == "local"

    @property
    def only_here(self) -> bool:
        """Return whether no other host is named, whatever starts the ranks."""
        return all(host in HERE for host in self.hosts)

    @property
    def named(self) -> bool:
        """Return whether the hosts have names, not only a number."""
        return all(map(is_named, self.hosts))

    @property
    def meets_by_name(self) -> bool:
        """Return whether the ranks must resolve the first host's name.

        The names of SLURM's nodes always resolve, and in a c10d rendezvous the host with that name recognises itself.
        """
        return self.launcher == "slurm" or "c10d" in " ".join(self.launcher_options)

    @property
    def names_needed(self) -> tuple[str, ...]:
        """The host names, without users, that every host must resolve."""
        if self.meets_by_name or BY_NAME[self.launcher].launches_by_mpi:
            return tuple(host.rpartition("@")[2] for host in self.hosts)
        return ()

    @property
    def refusals(self) -> str:
        """Return the lines of a script that stop it if a hole of the Plan is open."""
        return refuse_unset((self.workdir, *self.script, *self.script_args, *self.launcher_options, *self.env.values()))

    @property
    def start(self) -> Start:
        """Return where the commands run: one here for ranks here, one on each host, or one here that starts all hosts."""
        if self.launcher == "accelerate":
            return "login" if self.accelerate.multinode == "pdsh" else "hosts"
        return BY_NAME[self.launcher].start

    @property
    def by_file(self) -> bool:
        """Return whether the environment of the ranks goes through .deepspeed_env, as DeepSpeed's launcher for several hosts needs it."""
        return BY_NAME[self.launcher].backend

    def slots_of(self, node: int | str) -> tuple[int, ...]:
        """Return the slots of a host; those of the first if a variable says which host it is. Empty if not known yet."""
        return list(self.slots.values())[node if isinstance(node, int) else 0] if self.slots else ()

    def options(self, ds_config: str = "./ds_config.json", node: int | str = 0) -> list[str]:
        """Return the words between `python -m LAUNCHER` and the script, for one host if each has its own command."""
        return launcher_words(self, _folder(ds_config), node)[2:]

    def argv(self, ds_config: str = "./ds_config.json", node: int | str = 0, wrapper: Sequence[str] = ()) -> list[str]:
        """Return the command as a list of words.

        `wrapper`: a Python program with arguments of its own (dstui's shim). It gets the script and its arguments, without the interpreter,
        as if it were the script. It also does what bind.sh would do.
        """
        launcher = [self.python, *launcher_words(self, _folder(ds_config), node)]
        args = [with_paths(word, ds_config) for word in self.script_args]
        if wrapper:
            return [*launcher, *wrapper, *self.script, *args]
        if self.bindings:
            bound = [f"{_folder(ds_config)}/{BIND}", self.python, "-u"]
            return [*launcher, "--no-python" if self.launcher == "torchrun" else "--no_python", *bound, *self.script, *args]
        return [*launcher, *(["--module"] if self.script[0] == "-m" else []), self.script[-1], *args]

    def environment(self, ds_config: str = "./ds_config.json", node: int | str = 0) -> dict[str, str]:
        """Return the variables of the ranks of a host."""
        absolute = self._absolute(ds_config)
        env = {name: with_paths(value, absolute) for name, value in self.env.items()}
        chosen = self.slots_of(node)
        if self.launcher == "torchrun" and not self.cpu and list(chosen) != list(range(len(chosen))):
            env.setdefault("CUDA_VISIBLE_DEVICES", ",".join(map(str, chosen)))
        return env

    def launcher_environment(self, ds_config: str, node: int | str = 0) -> dict[str, str]:
        """Return the environment of the command: that of the ranks, or the name of the file that DeepSpeed's launcher passes on."""
        if not self.by_file:
            return self.environment(ds_config, node)
        return {"DS_ENV_FILE": self._absolute(f"{_folder(ds_config)}/{self.env_file}{WITH_PATHS if FILES in ds_config else ''}")}

    def command(self, ds_config: str = "./ds_config.json") -> str:
        """Return the text to paste into a shell: one command, or one for each host if the launcher needs that."""
        if self.start != "hosts" or self.only_here:
            return self.command_of(0, ds_config)
        if not self.named:
            node: int | str = variable("SLURM_NODEID") if self.launcher == "slurm" else 0
            return (
                f"# on each of {len(self.hosts)} hosts, with MASTER_ADDR set to the name of one of them\n{self.command_of(node, ds_config)}"
            )
        return "\n\n".join(f"# on {host}\n{self.command_of(node, ds_config)}" for node, host in enumerate(self.hosts))

    def command_of(self, node: int | str, ds_config: str = "./ds_config.json") -> str:
        """Return the command of one host, or the common one."""
        return "\n".join(self._lines(ds_config, node))

    def _absolute(self, path: str) -> str:
        return path if FILES in path else posixpath.normpath(posixpath.join(self.workdir, path))

    def _lines(self, ds_config: str, node: int | str) -> Iterator[str]:
        yield f"cd {quote_word(self.workdir)} &&"
        folder = posixpath.dirname(self.python)
        if folder:  # programs of a virtual environment (ninja, pdsh) are beside its python
            yield f'PATH={quote_word(folder)}:"$PATH" \\'
        for name, value in self.launcher_environment(ds_config, node).items():
            yield f"{name}={quote_word(value)} \\"
        words = self.argv(ds_config, node)
        script = len(words) - len(self.script_args) - (3 + len(self.script) if self.bindings else 1)
        yield " ".join(map(quote_word, words[:script])) + " \\"
        yield "  " + " ".join(map(quote_word, words[script:]))


def _folder(ds_config: str) -> str:
    """Return the folder of the generated files."""
    return posixpath.dirname(ds_config) or "."


def launcher_words(spec: LaunchSpec, folder: str, node: int | str) -> list[str]:
    """Return the words of the command from `-m` on. `folder`: of the generated files; `node`: the host, if each has its own command."""
    return SHAPES.get(spec.launcher, _backend if BY_NAME[spec.launcher].backend else _each_host)(spec, folder, node)


def _here(spec: LaunchSpec, _folder: str, _node: int | str) -> list[str]:
    port = ["--master_port", str(spec.master_port)] if spec.master_port is not None else []
    return [*DEEPSPEED, *port, *spec.launcher_options]


def _backend(spec: LaunchSpec, folder: str, _node: int | str) -> list[str]:
    """Return one command for all hosts. Without --force_multi, a filter that leaves one host would train on this machine instead."""
    return [*DEEPSPEED, "--hostfile", f"{folder}/hostfile", "--launcher", spec.launcher, "--force_multi", *_meeting(spec), *_rest(spec)]


def _each_host(spec: LaunchSpec, folder: str, node: int | str) -> list[str]:
    return [*DEEPSPEED, "--hostfile", f"{folder}/hostfile", "--no_ssh", "--node_rank", str(node), *_meeting(spec), *_rest(spec)]


def _meeting(spec: LaunchSpec) -> list[str]:
    return ["--master_addr", str(spec.master_addr), "--master_port", str(spec.master_port)]


def _rest(spec: LaunchSpec) -> list[str]:
    return [*spec.filters, *spec.launcher_options]


def _torchrun(spec: LaunchSpec, _folder: str, node: int | str) -> list[str]:
    """Return torchrun's words: static, or a rendezvous if the Plan's options select c10d."""
    counts = ["--nnodes", str(len(spec.hosts)), "--nproc-per-node", str(len(spec.slots_of(node)) or "gpu")]
    options = spec.launcher_options if spec.named else (*spec.launcher_options, *_MEET_ANYWHERE)
    given = {word.lstrip("-").partition("=")[0].replace("_", "-") for word in options}
    if "rdzv-backend" not in given:
        where = ["--node-rank", str(node), "--master-addr", str(spec.master_addr), "--master-port", str(spec.master_port)]
        return [*TORCHRUN, *counts, *where, *spec.launcher_options]
    values = (f"{spec.master_addr}:{spec.master_port}", f"dstui-{spec.master_port}")
    missing = [word for name, value in zip(RENDEZVOUS, values, strict=True) if name not in given for word in (f"--{name}", value)]
    return [*TORCHRUN, *counts, *missing, *options]


def _accelerate(spec: LaunchSpec, folder: str, node: int | str) -> list[str]:
    """Return accelerate's words. Paths in its YAML would be relative to the job folder, so they are options here."""
    words = [*ACCELERATE]
    if all(word.partition("=")[0] != ACCELERATE_OPTION for word in spec.launcher_options):  # the user's own YAML replaces the rendered one
        words += ["--config_file", f"{folder}/accelerate.yaml"]
        words += ["--deepspeed_config_file", f"{folder}/ds_config.json"] if spec.accelerate.config_file else []
    if spec.accelerate.hostfile:
        words += ["--deepspeed_hostfile", f"{folder}/hostfile"]
    elif len(spec.hosts) > 1:
        words += ["--machine_rank", str(node)]
    if len(spec.hosts) > 1:
        words += ["--main_process_ip", str(spec.master_addr)]
    return [*words, "--main_process_port", str(spec.master_port), *spec.launcher_options]


SHAPES: Mapping[str, Callable[[LaunchSpec, str, int | str], list[str]]] = {
    "local": _here,
    "torchrun": _torchrun,
    "accelerate": _accelerate,
}
"""Launchers that are neither `deepspeed --launcher NAME` nor one `deepspeed --no_ssh` on each host."""
