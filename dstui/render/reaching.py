"""Tell which variables of the environment reach the ranks on other hosts, and why: shown before a launch.

Sources: deepspeed/launcher/runner.py:main (EXPORT_ENVS, .deepspeed_env), each accelerator's export_envs; observed on two hosts.
"""

from __future__ import annotations

from collections.abc import Iterable

from dstui.base.dataclass import dataclass
from dstui.plan.finding import Severity
from dstui.plan.launchers import BY_NAME, LISTED, Launcher, passes_on, reads_env_files
from dstui.render.launch import RenderError
from dstui.render.spec import LaunchSpec
from dstui.render.target import Target

SET_BY_LAUNCHER = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_SIZE", "MASTER_ADDR", "MASTER_PORT", "CUDA_VISIBLE_DEVICES")
"""Variables that a launcher sets for its ranks, overriding others (under Open MPI not the first four)."""

WORTH_TELLING = (
    *("HF_HOME", "HF_HUB_OFFLINE", "HF_DATASETS_CACHE", "TRANSFORMERS_CACHE", "TRITON_CACHE_DIR", "TORCH_EXTENSIONS_DIR"),
    *("LD_LIBRARY_PATH", "CUDA_HOME", "PYTHONPATH", "WANDB_MODE", "WANDB_PROJECT", "OMP_NUM_THREADS", "http_proxy", "https_proxy"),
    *("NCCL_DEBUG", "NCCL_SOCKET_IFNAME", "NCCL_IB_HCA"),
)
"""Variables that people set in their shell and that a job may need."""


@dataclass(frozen=True, slots=True)
class Reach:
    """One variable, and whether the ranks get it."""

    name: str
    reaches: bool
    why: str


def trace_variables(spec: LaunchSpec, shell: Iterable[str] = (), *, gpu_here: bool = False) -> tuple[Reach, ...]:
    """Return the Plan's variables, then those of the shell that starts the job, each with whether the ranks get it.

    `shell`: names that are set there; `gpu_here`: whether the machine that starts the ranks has a GPU.
    """
    given = spec.environment()
    launcher = BY_NAME["local"] if spec.only_here else BY_NAME[spec.launcher]
    if spec.launcher == "accelerate" and spec.start == "login":
        launcher = BY_NAME["local"]  # it writes everything to .deepspeed_env, so all of it reaches them
    return (
        *(_given(name, spec) for name in given),
        *(_shell_reach(name, launcher, gpu_here) for name in shell if name not in given),
    )


def _given(name: str, spec: LaunchSpec) -> Reach:
    if name in SET_BY_LAUNCHER and not spec.local and not (BY_NAME[spec.launcher].mpi and name.startswith("MASTER_")):
        if name == "CUDA_VISIBLE_DEVICES" and spec.launcher == "torchrun":
            return Reach(name, True, "set before torchrun")
        return Reach(name, False, f"{spec.launcher} writes its own")
    return Reach(name, True, f"in {spec.env_file}" if spec.by_file else "set before the command")


def _shell_reach(name: str, launcher: Launcher, gpu_here: bool) -> Reach:
    if name in SET_BY_LAUNCHER:
        return Reach(name, False, "the launcher writes its own")
    reaches = passes_on(launcher, name, cpu=not gpu_here)
    if launcher.carries != "listed":
        why = "this launcher passes on everything" if reaches else "each host has its own environment: put it into cluster.env"
    elif name.startswith("NCCL"):
        why = "DeepSpeed passes on NCCL* where it finds a GPU" + (
            "" if reaches else ", which this machine does not have: put it into cluster.env"
        )
    else:
        listed = ", ".join(f"{prefix}*" for prefix in LISTED)
        why = f"DeepSpeed passes on {listed}" if reaches else "DeepSpeed does not pass it on: put it into cluster.env"
    return Reach(name, reaches, why)


def env_file_lines(target: Target) -> list[tuple[Severity, str]]:
    """Describe what happens to the .deepspeed_env files that exist, one sentence each; empty if the Plan cannot be launched."""
    found = target.env_files
    try:
        spec = target.launch
    except RenderError:
        return []
    files = " and ".join(found.paths)
    if files and (spec.only_here or not reads_env_files(BY_NAME[spec.launcher])):
        why = "for ranks on other hosts only" if spec.only_here else f"and here {spec.launcher} starts the ranks"
        return [("info", f"{files} is not read: DeepSpeed's launcher reads it, {why}; put what they need into cluster.env")]
    reported: list[tuple[Severity, str]] = []
    if files:
        names = [name for name, value in found.variables.items() if spec.env.get(name) == value and name not in target.plan.cluster.env]
        others = [name for name in found.variables if name not in names]
        kept = f"; {', '.join(others)} stays as the Plan or the launch itself sets it" if others else ""
        reported.append(("info", f"{files}: every rank gets {', '.join(names) or 'nothing'}, as by DeepSpeed's launcher{kept}"))
    if not spec.only_here:
        reported += [("warning", f"{text}: ignored here; DeepSpeed's own launcher fails on it") for text in found.problems]
    return reported


def reach_lines(found: Iterable[Reach]) -> list[str]:
    """Format the variables as aligned lines: `yes  NCCL_DEBUG  in .deepspeed_env`."""
    rows = list(found)
    width = max((len(row.name) for row in rows), default=0)
    return [f"{'yes' if row.reaches else 'no ':3}  {row.name.ljust(width)}  {row.why}" for row in rows]
