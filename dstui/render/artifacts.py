"""Every file of a Plan, as text: what a launch writes into the job folder, and what `dstui render -o` writes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dstui.machine.binding import numactl_wrapper
from dstui.plan import Plan
from dstui.plan.hostfile import hostfile_text
from dstui.render.accelerate import accelerate_yaml
from dstui.render.code import code
from dstui.render.jsontext import json_text
from dstui.render.launch import BIND, LaunchSpec, RenderError
from dstui.render.target import Target


@dataclass(frozen=True, slots=True)
class Artifact:
    """One generated file: its name, its text, and one line on who reads it."""

    name: str
    text: str
    why: str
    executable: bool = False


def ds_config(plan: Plan) -> str:
    """ds_config.json: the Plan's `deepspeed:` section itself."""
    return json_text(plan.deepspeed)


def env_text(env: Mapping[str, str]) -> str:
    """.deepspeed_env: NAME=value lines. DeepSpeed's reader knows neither comments nor empty lines."""
    return "".join(f"{name}={value}\n" for name, value in env.items())


def script(spec: LaunchSpec, ds_config_path: str = "./ds_config.json") -> str:
    """launch.sh: the command, to read, to keep, to paste."""
    return f"#!/bin/sh\n{spec.command(ds_config_path)}\n"


def artifacts(target: Target, ds_config_path: str = "./ds_config.json") -> tuple[Artifact, ...]:
    """The files of a Plan, ds_config.json first. Raises RenderError where there is no command for it."""
    plan, spec = target.plan, target.launch
    files = [Artifact("ds_config.json", ds_config(plan), "DeepSpeed's configuration: the deepspeed section of the Plan")]
    if plan.job.integration == "accelerate":
        files.append(for_accelerate(target))
    if plan.cluster.hosts is not None:
        files.append(Artifact("hostfile", hostfile_text(plan.cluster.hosts), "the hosts and their slots, for the launcher"))
    if plan.cluster.env:
        files.append(Artifact(".deepspeed_env", env_text(plan.cluster.env), "variables that the launcher gives to every rank"))
    if spec.bindings:
        files.append(Artifact(BIND, numactl_wrapper(spec.bindings), "starts each rank on the CPUs beside its GPU", executable=True))
    files.append(Artifact("launch.sh", script(spec, ds_config_path), "the command that starts the ranks", executable=True))
    return tuple(files)


def for_accelerate(target: Target) -> Artifact:
    """accelerate.yaml."""
    try:
        used = target.slots
    except RenderError:
        used = None  # a hostfile that is elsewhere: the Plan's accelerate section tells how many
    return Artifact("accelerate.yaml", accelerate_yaml(target.plan, used), "the same for `accelerate launch --config_file accelerate.yaml`")


def for_the_script(plan: Plan) -> Artifact:
    """The lines that the script needs."""
    return Artifact("script_lines.py", code(plan), "the lines that the training script needs for this Plan")
