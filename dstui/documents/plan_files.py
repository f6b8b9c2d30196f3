"""The files that a Plan is read from and those that it names: shipped Plans, overrides, hostfiles, .deepspeed_env."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from dstui.base.files import FileProblem, is_file, is_there, read_text
from dstui.documents.layers import load_layered, site_template
from dstui.plan import Plan, PlanError
from dstui.plan.env_file import ENV_FILE, EnvFiles
from dstui.plan.finding import Finding
from dstui.plan.hostfile import HostfileError, HostfileProblem, parse_hostfile

SHIPPED = {
    "quickstart": "trains for real in half a minute, on two CPU ranks or all GPUs",
    "zero1": "the optimizer split over the GPUs: as fast as without",
    "zero2": "gradients too: the usual choice for fine-tuning",
    "zero3": "weights too: a model too large for one GPU",
    "zero2-offload": "the optimizer in host RAM: one or two GPUs",
    "zero3-offload": "weights and optimizer in host RAM: the largest model per GPU",
    "zero-infinity": "weights and optimizer on NVMe disks",
    "zero-pp": "several hosts with a slow network between them (ZeRO++)",
    "lora-zero3-offload": "LoRA with PEFT on frozen weights in host RAM",
    "zero-inference": "inference of a model too large for one GPU",
    "distillation": "two models: a student at ZeRO-2 learns from a teacher at ZeRO-3 (trains for real)",
    "long-context": "long sequences, each split over several GPUs (Ulysses)",
    "moe": "a mixture of experts",
    "pretrain": "many hosts, restarts by itself",
}
"""Shipped Plans (configs/NAME.yaml) and can be named from any folder, each with what it is for."""
BLANK_PLAN = """\
version: 1
name: training
job:
  script: train.py
deepspeed:
  train_micro_batch_size_per_gpu: 1
  gradient_accumulation_steps: 1
"""
"""A Plan with a script without a configuration, to begin with."""
SHIPPED_IN = (Path(__file__).parents[1] / "configs", Path(__file__).parents[2] / "configs")
"""The folders of shipped Plans: in an installed dstui, in a checkout."""


def find_plan(name: str) -> Path:
    """Return the path of a Plan: an existing file, else the site's template or the shipped Plan of that name (`quickstart`)."""
    path = Path(name)
    if "/" not in name and not is_there(path) and (template := site_template(name)) is not None:
        return template
    if name in SHIPPED and not is_there(path):
        places = (folder / f"{name}.yaml" for folder in SHIPPED_IN)
        return next((place for place in places if place.exists()), path)
    return path


def is_shipped(folder: str) -> bool:
    """Return whether a folder holds the shipped Plans, which belong to no project."""
    return Path(folder) in SHIPPED_IN


def hostfile_of(plan: Plan) -> dict[str, int] | HostfileProblem | None:
    """Return the hosts of a Plan's hostfile, or why they are unknown; None if the Plan names no hostfile. Never raises."""
    return pool_in(Path(plan.place(plan.cluster.hostfile))) if plan.cluster.hostfile is not None else None


def pool_in(path: Path) -> dict[str, int] | HostfileProblem:
    """Return host -> slots of a hostfile, or why it gives none. Never raises."""
    try:
        return parse_hostfile(read_text(path))
    except HostfileError as error:
        return HostfileProblem(error.message, error.line)
    except FileProblem as problem:
        return HostfileProblem(str(problem).removeprefix(f"{path}: "), missing=not is_there(path))


def env_files_of(plan: Plan) -> EnvFiles:
    """Return the .deepspeed_env files that DeepSpeed's launcher would read for a Plan. Never raises."""
    return env_files_in(plan.place(plan.job.workdir), plan.cluster.env_file)


def env_files_in(workdir: str, name: str | None) -> EnvFiles:
    """Return the files of a job's folder and of the home folder. `name` replaces the usual file name. Never raises."""
    name = name or os.environ.get("DS_ENV_FILE") or ENV_FILE
    folders = (os.path.expanduser("~"), workdir)  # noqa: PTH111 - Path.home() raises where nobody knows the user
    found = EnvFiles()
    for path in filter(is_file, dict.fromkeys(Path(folder, name) for folder in folders)):
        found = _with_env_file(found, path)
    return found


def _with_env_file(found: EnvFiles, path: Path) -> EnvFiles:
    try:
        return found.joined(str(path), read_text(path))
    except FileProblem as problem:
        return replace(found, problems=(*found.problems, str(problem)))


def read_pool(plan: Plan) -> dict[str, int] | None:
    """Return host -> slots of the hostfile that a Plan names; None if it names none. Raises FileProblem."""
    if plan.cluster.hostfile is None:
        return None
    path = Path(plan.place(plan.cluster.hostfile))
    try:
        return parse_hostfile(read_text(path))
    except HostfileError as error:
        raise FileProblem(f"{path}: {error}") from None


def read_plan(path: Path, sets: Iterable[str] = (), *, site: bool = True) -> Plan:
    """Return the Plan of a file, or a shipped one by name, with `PATH=VALUE` overrides (VALUE is YAML)."""
    path = find_plan(str(path))
    return apply_overrides(load_at(path, read_text(path), site=site), sets)


def load_at(path: Path, text: str, *, site: bool) -> Plan:
    """Return the Plan of a file's text. Raises PlanError.

    The paths of a shipped Plan for a user's script start from the current folder. `site`: apply the site file.
    """
    plan = load_layered(text, str(path), str(path.absolute().parent), site=site)
    if is_shipped(str(path.parent)) and plan.job.script and not is_there(Path(plan.place(plan.job.script))):
        return load_layered(text, path.name, str(Path.cwd()), site=site)
    return plan


def apply_overrides(plan: Plan, sets: Iterable[str]) -> Plan:
    """Return the Plan with `PATH=VALUE` overrides (VALUE is YAML). Raises PlanError."""
    for override in sets:
        key, equals, text = override.partition("=")
        if not equals or not key:
            raise PlanError([Finding("PLAN", "error", key, f"--set {override}: it takes PATH=VALUE (deepspeed.zero_optimization.stage=2)")])
        if key == "extends":
            raise PlanError([Finding("PLAN", "error", key, f"--set {override}: a Plan itself names the file that it extends")])
        try:
            plan = plan.set(key, plan.parse(key, text))
        except PlanError as error:  # its lines are those of a text that no file has
            raise PlanError([replace(finding, line=None, column=None) for finding in error.findings], f"--set {override}") from None
        plan = replace(plan, sets=(*plan.sets, key))
    return plan
