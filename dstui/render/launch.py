"""The launcher's command line and environment of a Plan on a Machine.

What is shown is the plain command, right to paste. A launch adds what is known only then: a free port, the job folder,
the tag, the shim. Sources: deepspeed/launcher/runner.py and launch.py of release 0.19.8; torch/distributed/run.py.
"""

from __future__ import annotations

import posixpath
import re
import shlex
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from dstui.machine.binding import Binding, even_binding, near_binding
from dstui.machine.snapshot import Machine
from dstui.machine.visible import launcher_slots
from dstui.plan import Plan
from dstui.plan.hostfile import HostfileError, select
from dstui.plan.launchers import BACKENDS
from dstui.render.accelerate_env import accelerate_environment
from dstui.text import UNSAFE

DS_CONFIG = "{ds_config}"
"""In the arguments of a job: the path of the rendered ds_config.json."""
AUTO = "auto"
CONFIG_VARIABLE = "DSTUI_DS_CONFIG"
"""Where every rank finds that path too."""
BIND = "bind.sh"
"""The wrapper that starts each rank on its own CPUs."""
REPORTED = re.compile(f"(?:(?!\n){UNSAFE.pattern})+")
"""What a terminal must not see; a line break within quotes may stay."""
NO_LOCAL_RANK = "--no_local_rank"
"""The launcher's option by which ranks get no --local_rank=N, which strict parsers refuse."""
HERE = ("localhost", "127.0.0.1", "::1")


class RenderError(Exception):
    """The Plan cannot be made into a command: the dotted path at fault, and a sentence."""

    def __init__(self, path: str, message: str) -> None:
        super().__init__(f"{path}: {message}")
        self.path, self.message = path, message


@dataclass(frozen=True, slots=True)
class LaunchSpec:
    """How the ranks are started. Paths are absolute, but for the script, which is relative to `workdir`."""

    python: str
    launcher_options: tuple[str, ...]
    """Between `python -m deepspeed.launcher.runner` and the script."""
    script: tuple[str, ...]
    """`("train.py",)` or `("-m", "pkg.train")`."""
    script_args: tuple[str, ...]
    """With `{ds_config}` still in it."""
    workdir: str
    env: Mapping[str, str] = field(default_factory=dict)
    """What is added to the environment, with `{ds_config}` still in it."""
    ranks: Mapping[int, str] = field(default_factory=dict)
    """Rank -> host; empty where the number of ranks is not known yet (no GPU was looked for)."""
    cpu: bool = False
    launcher: str = "local"
    hosts: tuple[str, ...] = ("localhost",)
    bindings: tuple[Binding, ...] = ()
    """The CPUs of each local rank, where bind.sh gives them; it stands beside the ds_config.json."""

    @property
    def local(self) -> bool:
        """Whether every rank runs on this machine."""
        return self.launcher == "local"

    def options(self, node: int | None = None) -> tuple[str, ...]:
        """The launcher's options; those of one node, where each node has a command of its own."""
        return self.launcher_options if node is None else (*self.launcher_options, "--node_rank", str(node))

    def argv(self, ds_config: str = "./ds_config.json", node: int | None = None) -> list[str]:
        """The launcher as a list of words."""
        return [*self._launcher(node), *self._target(ds_config)]

    def _launcher(self, node: int | None) -> list[str]:
        """Up to the script."""
        kind = ["--no_python"] if self.bindings else ["--module"] if self.script[0] == "-m" else []
        return [self.python, "-m", "deepspeed.launcher.runner", *self.options(node), *kind]

    def _target(self, ds_config: str) -> list[str]:
        """The script with its arguments, behind bind.sh where ranks are bound to CPUs."""
        args = [word.replace(DS_CONFIG, ds_config) for word in self.script_args]
        if not self.bindings:
            return [self.script[-1], *args]
        return [posixpath.join(posixpath.dirname(ds_config) or ".", BIND), self.python, "-u", *self.script, *args]

    def environment(self, ds_config: str = "./ds_config.json") -> dict[str, str]:
        """What is added to the environment of the launcher."""
        absolute = posixpath.normpath(posixpath.join(self.workdir, ds_config))
        return {name: value.replace(DS_CONFIG, absolute) for name, value in self.env.items()}

    def command(self, ds_config: str = "./ds_config.json") -> str:
        """What a person pastes into a shell: one command, or one for each node where the launcher wants that."""
        if self.launcher not in ("ssh", "nossh"):
            return "\n".join(self._lines(ds_config, None))
        return "\n\n".join(f"# on {host}\n" + "\n".join(self._lines(ds_config, node)) for node, host in enumerate(self.hosts))

    def _lines(self, ds_config: str, node: int | None) -> Iterator[str]:
        yield f"cd {quoted(self.workdir)} &&"
        folder = posixpath.dirname(self.python)
        if folder:  # ninja, pdsh and the like of a virtual environment are found beside its python
            yield f'PATH={quoted(folder)}:"$PATH" \\'
        for name, value in self.environment(ds_config).items():
            yield f"{name}={quoted(value)} \\"
        yield " ".join(map(quoted, self._launcher(node))) + " \\"
        yield "  " + " ".join(map(quoted, self._target(ds_config)))


def quoted(word: str) -> str:
    """A word as any shell takes it and any terminal shows it: what is unsafe to show is told to printf by its bytes."""
    parts, at = list[str](), 0
    for match in REPORTED.finditer(word):
        octal = "".join(f"\\{byte:03o}" for byte in match[0].encode("utf-8", "surrogateescape"))
        parts += [shlex.quote(word[at : match.start()])] if match.start() > at else []
        parts.append(f"\"$(printf '{octal}')\"")
        at = match.end()
    return "".join(parts + ([shlex.quote(word[at:])] if at < len(word) or not word else []))


def slots(plan: Plan, machine: Machine, pool: Mapping[str, int] | None = None) -> dict[str, list[int]] | None:
    """Host -> the slots that are used; None where it depends on GPUs that nobody has looked for.

    `pool` is what the Plan's hostfile holds, where it names one. Raises RenderError.
    """
    cluster = plan.cluster
    hosts = cluster.hosts if cluster.hosts is not None else pool
    if cluster.hostfile is not None and pool is None:
        raise RenderError("cluster.hostfile", f"{cluster.hostfile} could not be read")
    if hosts is None:
        if machine == Machine.unprobed():
            return None
        hosts = {"localhost": len(machine.gpus) or cluster.cpu_ranks}
        chosen = any(getattr(cluster, name) is not None for name in ("include", "exclude", "num_nodes", "num_gpus"))
        if not chosen and (launcher_visible := launcher_slots(machine)):
            return {"localhost": [slot for slot in launcher_visible if slot < len(machine.gpus)]}
    try:
        return select(hosts, include=cluster.include, exclude=cluster.exclude, num_nodes=cluster.num_nodes, num_gpus=cluster.num_gpus)
    except HostfileError as error:
        path = next((f"cluster.{key}" for key in ("include", "exclude", "num_nodes") if getattr(cluster, key)), "cluster.hosts")
        raise RenderError(path, error.message) from None


def launch_spec(plan: Plan, machine: Machine, pool: Mapping[str, int] | None = None) -> LaunchSpec:
    """How the Plan is started on the Machine. Raises RenderError."""
    job, cluster = plan.job, plan.cluster
    if not job.script and not job.module:
        raise RenderError("job.script", "no script is named: give the training script, relative to workdir")
    used = slots(plan, machine, pool)
    hosts = tuple(used or ("localhost",))
    launcher = _launcher(cluster.launcher, hosts)
    cpu = machine.accelerator == "cpu"
    options = _local_options(plan, machine, used) if launcher == "local" else [*_far_options(plan, hosts, launcher), *_filters(plan)]
    ranks = [host for host, chosen in (used or {}).items() for _ in chosen]
    return LaunchSpec(
        python=interpreter(plan),
        launcher_options=(*options, *_common_options(plan), *cluster.launcher_args),
        script=(_as_script(job.script),) if job.script else ("-m", str(job.module)),
        script_args=job.args,
        workdir=plan.place(job.workdir),
        env=_environment(plan, cpu, launcher),
        ranks=dict(enumerate(ranks)),
        cpu=cpu,
        launcher=launcher,
        hosts=hosts,
        bindings=_bindings(machine, next(iter(used.values()), []) if used else []) if cluster.cpu_binding == "numactl" else (),
    )


def _launcher(chosen: str | None, hosts: tuple[str, ...]) -> str:
    """The Plan's launcher; where it names none, local for this machine and ssh for others. Raises RenderError."""
    far = next((host for host in hosts if host not in HERE), None)
    launcher = chosen or ("local" if far is None else "ssh")
    if launcher == "local" and far is not None:
        raise RenderError("cluster.launcher", f"local starts ranks on this machine only, but there is {far}")
    if launcher in ("torchrun", "accelerate"):
        usable = f"use null, local, ssh or one of {', '.join(BACKENDS)}"
        raise RenderError("cluster.launcher", f"{launcher} cannot be rendered by this version: {usable}")
    return launcher


def _common_options(plan: Plan) -> list[str]:
    """Options that every launcher takes."""
    cluster = plan.cluster
    options = ["--master_port", str(cluster.master_port)] if cluster.master_port is not None else []
    if cluster.cpu_binding == "deepspeed":
        options.append("--bind_cores_to_rank")
    if plan.job.integration == "accelerate" and NO_LOCAL_RANK not in cluster.launcher_args:
        options.append(NO_LOCAL_RANK)  # as accelerate launch: its scripts find it in LOCAL_RANK
    return options


def _bindings(machine: Machine, slots_of_a_host: list[int]) -> tuple[Binding, ...]:
    """The CPUs of each rank of a host (the first stands for all); none where the machine does not tell."""
    there = [slot for slot in slots_of_a_host if slot < len(machine.gpus)]
    return near_binding(machine, there) if there else even_binding(machine, len(slots_of_a_host))


def _as_script(path: str) -> str:
    """A path that no launcher takes for an option of its own, nor the shim for the wrapper that stands before the script."""
    return f"./{path}" if path.startswith(("-", "bind:")) else path


def interpreter(plan: Plan) -> str:
    """The interpreter of the ranks: an absolute path, or the name of a program on the PATH."""
    python = plan.job.python or sys.executable
    return plan.place(python) if "/" in python else python


def _local_options(plan: Plan, machine: Machine, used: Mapping[str, list[int]] | None) -> list[str]:
    """One machine: the launcher counts its GPUs by itself, but not CPU ranks, and not what the Plan says otherwise."""
    cluster = plan.cluster
    if cluster.include or cluster.exclude:
        return _filters(plan)
    if used is None or (cluster.hosts is None and cluster.hostfile is None and cluster.num_gpus is None and machine.gpus):
        return []
    return ["--num_gpus", str(sum(map(len, used.values())))]


def _far_options(plan: Plan, hosts: tuple[str, ...], launcher: str) -> list[str]:
    """Several hosts, or one that is not this machine: without --force_multi a single one would be run here."""
    options = ["--hostfile", plan.place(plan.cluster.hostfile) if plan.cluster.hostfile else "./hostfile"]
    if launcher in BACKENDS:
        options += ["--launcher", launcher, "--force_multi"]
    address = plan.cluster.master_addr
    if launcher in ("ssh", "nossh"):  # each node's own command must name where they meet
        options += ["--no_ssh"]
        address = address or hosts[0]
    return options + (["--master_addr", address] if address else [])


def _filters(plan: Plan) -> list[str]:
    options: list[str] = []
    for name in ("include", "exclude", "num_nodes", "num_gpus"):
        value = getattr(plan.cluster, name)
        if value is not None:
            options += [f"--{name}", str(value)]
    return options


def _environment(plan: Plan, cpu: bool, launcher: str) -> dict[str, str]:
    env = {"DS_ACCELERATOR": "cpu"} if cpu else {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}  # so that indices mean what nvidia-smi says
    env[CONFIG_VARIABLE] = DS_CONFIG
    if cpu and launcher == "local":  # slots, else the launcher counts NUMA nodes (before 0.16 by numactl, without which it dies)
        env["LOCAL_SIZE"] = str(sum((plan.cluster.hosts or {"localhost": plan.cluster.cpu_ranks}).values()))
    if plan.job.integration == "accelerate":
        env |= accelerate_environment(plan)
    if plan.cluster.env_file:
        env["DS_ENV_FILE"] = plan.place(plan.cluster.env_file)
    elif launcher in BACKENDS and plan.cluster.env:
        env["DS_ENV_FILE"] = "./.deepspeed_env"
    return env | dict(plan.cluster.env)
