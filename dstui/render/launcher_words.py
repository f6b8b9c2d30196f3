"""What stands between the interpreter and the script, for each launcher: data in plan/launchers.py, the words here.

Sources: deepspeed/launcher/runner.py of release 0.19.8, torch/distributed/run.py, accelerate/commands/launch.py of 1.15.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from dstui.plan.handed_over import ACCELERATE_OPTION
from dstui.plan.launchers import BY_NAME

if TYPE_CHECKING:
    from dstui.render.spec import LaunchSpec

DEEPSPEED = ("-m", "deepspeed.launcher.runner")
TORCHRUN = ("-m", "torch.distributed.run")
ACCELERATE = ("-m", "accelerate.commands.launch")
_MEET_ANYWHERE = ("--rdzv-backend", "c10d")
"""The ranks number themselves where they meet, so that the command is the same on every host."""
RENDEZVOUS = ("rdzv-endpoint", "rdzv-id")


def launcher_words(spec: LaunchSpec, folder: str, node: int | str) -> list[str]:
    """Return the words of the command from `-m` on. `folder`: of the generated files; `node`: the host, where each has its own command."""
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


def _accelerate(spec: LaunchSpec, folder: str, node: int | str) -> list[str]:
    """Return accelerate's words. Paths in its YAML would be relative to the job folder, so they are options here."""
    words = [*ACCELERATE]
    if all(word.partition("=")[0] != ACCELERATE_OPTION for word in spec.launcher_options):  # the user's own YAML, else the rendered one
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
"""Those that are neither `deepspeed --launcher NAME` nor one `deepspeed --no_ssh` on each host."""
