"""The generated files of a Plan as text: a launch writes them into the job folder, `dstui render -o` into any folder."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from dstui.machine.binding import numactl_wrapper
from dstui.plan import Plan
from dstui.plan.hostfile import hostfile_text
from dstui.plan.launchers import JOB_SCRIPT
from dstui.render.accelerate import accelerate_yaml
from dstui.render.config_files import config_name, with_paths
from dstui.render.jsontext import json_text
from dstui.render.launch import RenderError, place_workdir
from dstui.render.launch_script import FOLDER, render_launch_script
from dstui.render.quoting import FILES, OPEN, quote_word, refuse_unset, shell_variables
from dstui.render.spec import BIND
from dstui.render.target import Target

SHELL, ESCAPED = re.compile(r'["$`\\]'), r"\\\g<0>"
"""What a shell would expand in double quotes."""


@dataclass(frozen=True, slots=True)
class Artifact:
    """One generated file: its name, its text, and one line about its reader."""

    name: str
    text: str
    why: str
    executable: bool = False
    notes: tuple[str, ...] = ()
    """What was assumed, and what the user has to fill in."""
    private: bool = False
    """Whether it contains values of the environment, which may be secrets: only its owner can read the written file."""


def ds_configs(plan: Plan) -> list[Artifact]:
    """Return ds_config.json, the Plan's `deepspeed:` section; with several models, one file for each."""
    return [
        Artifact(config_name(name), json_text(config), f"DeepSpeed's configuration{f' of {name}' if name else ''}: {_where(name)}")
        for name, config in plan.configurations.items()
    ]


def _where(name: str) -> str:
    return f"models.{name}.deepspeed of the Plan" if name else "the deepspeed section of the Plan"


def _texts(plan: Plan) -> dict[str, str]:
    return {artifact.name: artifact.text for artifact in ds_configs(plan)}


def env_text(env: Mapping[str, str], launcher: str = "") -> str:
    """Format .deepspeed_env as NAME=value lines. DeepSpeed's reader allows neither comments nor empty lines.

    With pdsh, a shell on each host reads the value in double quotes, so what it would expand is escaped.
    """
    texts = {name: SHELL.sub(ESCAPED, value) if launcher == "pdsh" else value for name, value in env.items() if OPEN not in value}
    return "".join(f"{name}={text}\n" for name, text in texts.items())


def artifacts(target: Target, ds_config_path: str = "./ds_config.json") -> tuple[Artifact, ...]:
    """Return the files of a Plan, ds_config.json first. Raises RenderError if there is no valid command."""
    if target.plan.job.command:
        return (*ds_configs(target.plan), command_artifact(target.plan))
    plan, spec = target.plan, target.launch
    files = ds_configs(plan)
    if plan.job.integration == "accelerate" or spec.launcher == "accelerate":
        files.append(accelerate_artifact(target))
    hosts = plan.cluster.hosts if plan.cluster.hosts is not None else target.pool
    if hosts is not None:
        files.append(Artifact("hostfile", hostfile_text(hosts), "the hosts and their slots, for the launcher"))
    if spec.by_file:
        text = env_text(spec.environment(ds_config_path), spec.launcher)
        files.append(Artifact(spec.env_file, text, "variables that DeepSpeed's launcher gives to every rank", private=True))
    elif plan.cluster.env:
        why = "the Plan's variables, for DeepSpeed's own launcher"
        files.append(Artifact(spec.env_file, env_text(plan.cluster.env), why, private=True))
    if spec.bindings:
        files.append(Artifact(BIND, numactl_wrapper(spec.bindings), "starts each rank on the CPUs beside its GPU", executable=True))
    if plan.cluster.submits:
        return (*files, slurm_artifact(target))
    nameless = spec.launcher == "slurm" and not spec.named
    if nameless:
        from dstui.render.sbatch import render_in_allocation

        launch = render_in_allocation(plan, spec, _texts(plan))
    else:
        launch = render_launch_script(spec, ds_config_path)
    files.append(Artifact("launch.sh", launch, "the command that starts the ranks", executable=True, private=True))
    return tuple(files)


def command_artifact(plan: Plan) -> Artifact:
    """Return the command of a framework that starts its own ranks."""
    config = f"{FILES}/ds_config.json"
    env = [f"{name}={with_paths(shell_variables(value), config)}" for name, value in plan.cluster.env.items()]
    words = [*(["env", *env] if env else []), *(with_paths(shell_variables(word), config) for word in plan.job.command)]
    workdir = place_workdir(plan)
    folder = FOLDER if any(FILES in word for word in words) else ""
    command = " ".join(map(quote_word, words))
    text = f"#!/bin/sh\n{refuse_unset((workdir, *words))}{folder}cd {quote_word(workdir)} && exec {command}\n"
    return Artifact("launch.sh", text, "the command, which starts its own ranks", executable=True, private=True)


def slurm_artifact(target: Target) -> Artifact:
    """Render job.sbatch. Raises RenderError."""
    from dstui.render.sbatch import render_sbatch  # most launches do not use sbatch

    made = render_sbatch(target.plan, target.machine, target.pool, _texts(target.plan))
    notes = (*made.notes, *_left_out(target))
    return Artifact(JOB_SCRIPT, made.text, "a SLURM script: sbatch job.sbatch", executable=True, private=True, notes=notes)


def kubernetes_artifact(target: Target, *, v1: bool = False) -> Artifact:
    """Render job.yaml: a TrainJob, or with `v1` a PyTorchJob, for older clusters. Raises RenderError."""
    from dstui.render.kubernetes import render_pytorchjob, render_trainjob

    render, kind = (render_pytorchjob, "PyTorchJob") if v1 else (render_trainjob, "TrainJob")
    made = render(target.plan, target.machine, target.pool, _texts(target.plan))
    return Artifact("job.yaml", made.text, f"a {kind}: kubectl apply -f job.yaml", private=True, notes=(*made.notes, *_left_out(target)))


def _left_out(target: Target) -> list[str]:
    """Describe the files of this machine that a scheduler's job does not get."""
    paths = target.env_files.paths
    return [f"left out: the variables of {' and '.join(paths)}; put those that the ranks need into cluster.env"] if paths else []


def accelerate_artifact(target: Target) -> Artifact:
    """Render accelerate.yaml."""
    try:
        used = target.slots
    except RenderError:
        used = None  # a hostfile that is on another machine: the Plan's accelerate section gives the number
    return Artifact("accelerate.yaml", accelerate_yaml(target.plan, used), "the same for `accelerate launch --config_file accelerate.yaml`")
