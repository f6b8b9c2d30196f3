"""What stands between the interpreter and the script, for each launcher: data in plan/launchers.py, the words here.

Sources: deepspeed/launcher/runner.py of release 0.19.8, torch/distributed/run.py, accelerate/commands/launch.py of 1.15.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from dstui.plan.launchers import BY_NAME

DEEPSPEED = ("-m", "deepspeed.launcher.runner")
TORCHRUN = ("-m", "torch.distributed.run")
ACCELERATE = ("-m", "accelerate.commands.launch")
_MEET_ANYWHERE = ("--rdzv-backend", "c10d")
"""The ranks number themselves where they meet, so that the command is the same on every host."""
RENDEZVOUS = ("rdzv-endpoint", "rdzv-id")


class AccelerateOptions(Protocol):
    """What `accelerate launch` must be told beside its YAML."""

    @property
    def config_file(self) -> bool:
        """Whether the YAML names a ds_config.json."""

    @property
    def hostfile(self) -> bool:
        """Whether a hostfile is read."""


class LaunchFacts(Protocol):
    """What the words depend on: the part of `spec.LaunchSpec` that is read here."""

    @property
    def launcher(self) -> str: ...
    @property
    def launcher_options(self) -> tuple[str, ...]: ...
    @property
    def filters(self) -> tuple[str, ...]: ...
    @property
    def hosts(self) -> tuple[str, ...]: ...
    @property
    def named(self) -> bool: ...
    @property
    def master_addr(self) -> str | None: ...
    @property
    def master_port(self) -> int | str | None: ...
    @property
    def accelerate(self) -> AccelerateOptions: ...
    def slots_of(self, node: int | str) -> tuple[int, ...]: ...


def launcher_words(spec: LaunchFacts, folder: str, node: int | str) -> list[str]:
    """Return the words of the command from `-m` on. `folder`: of the generated files; `node`: the host, where each has its own command."""
    return SHAPES.get(spec.launcher, _backend if BY_NAME[spec.launcher].backend else _each_host)(spec, folder, node)


def _here(spec: LaunchFacts, _folder: str, _node: int | str) -> list[str]:
    port = ["--master_port", str(spec.master_port)] if spec.master_port is not None else []
    return [*DEEPSPEED, *port, *spec.launcher_options]


def _backend(spec: LaunchFacts, folder: str, _node: int | str) -> list[str]:
    """Return one command for all hosts. Without --force_multi, a filter that leaves one host would train on this machine instead."""
    return [*DEEPSPEED, "--hostfile", f"{folder}/hostfile", "--launcher", spec.launcher, "--force_multi", *_meeting(spec), *_rest(spec)]


def _each_host(spec: LaunchFacts, folder: str, node: int | str) -> list[str]:
    return [*DEEPSPEED, "--hostfile", f"{folder}/hostfile", "--no_ssh", "--node_rank", str(node), *_meeting(spec), *_rest(spec)]


def _meeting(spec: LaunchFacts) -> list[str]:
    return ["--master_addr", str(spec.master_addr), "--master_port", str(spec.master_port)]


def _rest(spec: LaunchFacts) -> list[str]:
    return [*spec.filters, *spec.launcher_options]


def _torchrun(spec: LaunchFacts, _folder: str, node: int | str) -> list[str]:
    """Return torchrun's words: static, or by rendezvous where the Plan's options ask for c10d."""
    counts = ["--nnodes", str(len(spec.hosts)), "--nproc-per-node", str(len(spec.slots_of(node)) or "gpu")]
    options = spec.launcher_options if spec.named else (*spec.launcher_options, *_MEET_ANYWHERE)
    given = {word.lstrip("-").partition("=")[0].replace("_", "-") for word in options}
    if "rdzv-backend" not in given:
        where = ["--node-rank", str(node), "--master-addr", str(spec.master_addr), "--master-port", str(spec.master_port)]
        return [*TORCHRUN, *counts, *where, *spec.launcher_options]
    values = (f"{spec.master_addr}:{spec.master_port}", f"dstui-{spec.master_port}")
    missing = [word for name, value in zip(RENDEZVOUS, values, strict=True) if name not in given for word in (f"--{name}", value)]
    return [*TORCHRUN, *counts, *missing, *options]


def _accelerate(spec: LaunchFacts, folder: str, node: int | str) -> list[str]:
    """Return accelerate's words. Paths in its YAML would be relative to the job folder, so they are options here."""
    words = [*ACCELERATE, "--config_file", f"{folder}/accelerate.yaml"]
    if spec.accelerate.config_file:
        words += ["--deepspeed_config_file", f"{folder}/ds_config.json"]
    if spec.accelerate.hostfile:
        words += ["--deepspeed_hostfile", f"{folder}/hostfile"]
    elif len(spec.hosts) > 1:
        words += ["--machine_rank", str(node)]
    if len(spec.hosts) > 1:
        words += ["--main_process_ip", str(spec.master_addr)]
    return [*words, "--main_process_port", str(spec.master_port), *spec.launcher_options]


SHAPES: Mapping[str, Callable[[LaunchFacts, str, int | str], list[str]]] = {
    "local": _here,
    "torchrun": _torchrun,
    "accelerate": _accelerate,
}
"""Those that are neither `deepspeed --launcher NAME` nor one `deepspeed --no_ssh` on each host."""
