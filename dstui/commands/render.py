"""`dstui render PLAN`: print or write the files and the command of a Plan."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from dstui.base.files import FileProblem, make_folder, write_atomic
from dstui.base.output import say, tell
from dstui.commands.plan_argument import add_no_site, plan_of
from dstui.documents.plan_files import env_files_of, read_pool
from dstui.documents.training_script import changed_script, code_for_script
from dstui.machine.probe import probe
from dstui.machine.recorded import read_machine
from dstui.plan import Plan
from dstui.render.artifacts import (
    Artifact,
    accelerate_artifact,
    artifacts,
    ds_configs,
    kubernetes_artifact,
    slurm_artifact,
)
from dstui.render.quoting import FILES
from dstui.render.reaching import WORTH_TELLING, env_file_lines, reach_lines, trace_variables
from dstui.render.target import Target

NAMES = {
    "ds_config": "ds_config.json",
    "accelerate": "accelerate.yaml",
    "hostfile": "hostfile",
    "env": ".deepspeed_env",
    "command": "launch.sh",
    "sbatch": "job.sbatch",
    "k8s": "job.yaml",
    "k8s-v1": "job.yaml",
    "code": "script_lines.py",
}
ALONE: Mapping[str, Callable[[Target], Artifact]] = {
    "accelerate": accelerate_artifact,
    "sbatch": slurm_artifact,
    "k8s": kubernetes_artifact,
    "k8s-v1": partial(kubernetes_artifact, v1=True),
}
"""Artifacts that are made only on request, or that do not need the others."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument("plan", metavar="PLAN", help="a Plan, ds_config.json or accelerate YAML; `quickstart` is a shipped one")
    parser.add_argument(
        "--only", choices=NAMES, help="one of them, to standard output as it is (of several models all ds_config files, each with its name)"
    )
    parser.add_argument("-o", "--output", type=Path, metavar="DIR", help="write the files into a folder")
    parser.add_argument("--force", action="store_true", help="let -o replace files with other content")
    parser.add_argument("--machine", type=Path, metavar="FILE", help="for the machine recorded in FILE instead of this one")
    parser.add_argument("--set", action="append", default=[], metavar="PATH=VALUE", help="override a key")
    add_no_site(parser)


def run(args: argparse.Namespace) -> int:
    """Print or write. Return 0; 2 after an error."""
    plan = plan_of(args.plan, args.set, site=not args.no_site)
    machine = read_machine(args.machine) if args.machine else probe()
    config = f"{FILES}/ds_config.json" if args.output else "./ds_config.json"
    target = Target(plan, machine, _pool(plan, args.only), env_files_of(plan))
    files = _chosen(target, config, args.only, whole=args.output is not None)
    for _severity, line in env_file_lines(target) if args.only in (None, "env", "command") else ():
        say(line)
    for note in (note for artifact in files for note in artifact.notes):
        say(note)
    if args.only == "env" and not plan.job.command:
        _say_what_reaches(target)
    if args.output:
        _write(files, args.output, args.force)
    elif args.only and not files:
        say(f"this Plan has no {NAMES[args.only]}")
    else:
        for artifact in files:
            alone = args.only and len(files) == 1
            tell(artifact.text if alone else f"# {artifact.name}: {artifact.why}\n{artifact.text}\n", end="")
    return 0


def _chosen(target: Target, config: str, only: str | None, *, whole: bool) -> list[Artifact]:
    """Return the requested files. Those of DeepSpeed and accelerate and the lines of the script do not need a launchable command."""
    if only == "code":
        return [_script_artifact(target.plan, whole)]
    if only == "ds_config":
        return ds_configs(target.plan)
    if made := ALONE.get(str(only)):
        return [made(target)]
    wanted = NAMES if target.plan.job.command else NAMES | {"env": target.launch.env_file}
    return [artifact for artifact in artifacts(target, config) if only is None or artifact.name == wanted[only]]


def _script_artifact(plan: Plan, whole: bool) -> Artifact:
    """Return the lines that the script needs: for a plain loop a diff or a new file (`whole`), for others the general lines."""
    changed = changed_script(plan)
    if changed is None or not changed.text:
        purpose = "the lines that the training script needs for this Plan"
        return Artifact("script_lines.py", code_for_script(plan), purpose, notes=changed.notes if changed else ())
    use = f"now set job.script to {changed.name}" if whole else f"-o FOLDER writes {changed.name}; then set job.script to it"
    text = changed.text if whole else changed.diff
    return Artifact(changed.name, text, "the script with DeepSpeed's lines", notes=(*changed.notes, use))


def _say_what_reaches(target: Target) -> None:
    """Print to standard error which variables the ranks get; standard output is the file."""
    shell = [name for name in WORTH_TELLING if name in os.environ]
    found = trace_variables(target.launch, shell, gpu_here=bool(target.machine.gpus))
    say("what reaches the ranks:")
    for line in reach_lines(found):
        say(line)


def _pool(plan: Plan, only: str | None) -> dict[str, int] | None:
    """Return the hostfile's slots. For artifacts that can do without, return None if the file is not on this machine."""
    try:
        return read_pool(plan)
    except FileProblem:
        if only in ("ds_config", "accelerate", "code"):
            return None
        raise


def _write(files: list[Artifact], folder: Path, force: bool) -> None:
    make_folder(folder)
    for artifact in files:
        path = folder / artifact.name
        written = write_atomic(path, artifact.text, replace=force, executable=artifact.executable, private=artifact.private)
        state = "written" if written else "unchanged"
        tell(f"{state}  {path}")
