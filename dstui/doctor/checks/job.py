"""Checks of the job itself: its configuration, script, folders, and the environment that reaches its ranks."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from dstui.assess import Facts, assess
from dstui.base.files import FileProblem, is_file, read_text
from dstui.base.text import counted
from dstui.doctor.case import Case, Outcome, doctor_check
from dstui.documents.open import default_config
from dstui.machine.report import format_size
from dstui.plan.env_file import ENV_FILE
from dstui.render.launch import RenderError
from dstui.render.reaching import WORTH_TELLING, trace_variables
from dstui.render.target import Target

Outcomes = Iterator[Outcome]
ROOM = 20 << 30
"""Bytes of a checkpoint for a model with a billion parameters: 14 to 18 bytes per parameter."""
SLOW_WRITE = 0.5


@doctor_check("plan", once=True)
def plan(case: Case) -> Outcomes:
    """The Plan has no error that a check can see."""
    if case.plan is None:
        yield Outcome("skipped", "no Plan was given")
        return
    target = Target(case.plan, case.machine, case.pool)
    findings = [f for f in assess(target, Facts(pool=case.pool)).findings if f.severity == "error" and not f.code.startswith("MC")]
    for finding in findings:
        where = f"line {finding.line}: " if finding.line else ""
        yield Outcome("fail", f"{where}{finding.path}: {finding.message}", finding.fix.text if finding.fix else None)
    if not findings:
        yield Outcome("ok", "no error")


@doctor_check("script")
def script(case: Case) -> Outcomes:
    """The training script is there, can be compiled, and is the same on every host."""
    found = case.ready.get("script")
    if not found:
        yield Outcome("skipped", "a module" if case.get("job.module") else "the Plan names no script")
    elif found.get("compiles") is False:
        yield Outcome("fail", f"{case.get('job.script')}: {found['problem']}", "correct the script: Python cannot compile it")
    elif found.get("problem"):
        fix = "correct job.script or job.workdir" if case.here else "copy the job's folder there, at the same path, or use a shared one"
        yield Outcome("fail", f"{case.get('job.script')}: {found['problem']}", fix)
    else:
        differing = [other.host for other in case.others if (other.ready.get("script") or {}).get("hash") not in (None, found["hash"])]
        if differing:
            yield Outcome(
                "fail", f"{case.get('job.script')} differs from the one on {differing[0]}", "copy it again, or use a shared folder"
            )
        else:
            yield Outcome("ok", str(case.get("job.script")))


@doctor_check("model")
def model(case: Case) -> Outcomes:
    """The model's folder exists and is complete."""
    found = case.ready.get("model")
    if not found:
        yield Outcome("skipped", "the Plan names no folder of a model")
    elif found.get("problem"):
        fix = "download it again there (git lfs pull, or huggingface-cli download), or use a shared folder"
        yield Outcome("fail", f"{case.get('model.source')}: {found['problem']}", fix)
    else:
        files = f": {counted(found['files'], 'file')} of weights" if found["files"] else ""
        yield Outcome("ok", f"{case.get('model.source')}{files}")


@doctor_check("folder")
def folder(case: Case) -> Outcomes:
    """The job's folder exists, can be written to, and has room."""
    for path, found in (case.ready.get("folders") or {}).items():
        if not found["exists"]:
            yield Outcome("fail", f"there is no folder {path}", "the same path must be on every host: share it, or copy it there")
        elif found.get("problem"):
            yield Outcome("fail", f"{path} cannot be written to: {found['problem']}", "choose another job.workdir, or change its owner")
        elif found["free"] < ROOM:
            yield Outcome(
                "warn", f"{format_size(found['free'])} free in {path}", "a checkpoint takes 14 to 18 bytes per parameter: make room"
            )
        elif found["write_seconds"] > SLOW_WRITE:
            message = f"a small write in {path} takes {found['write_seconds']:.1f} s ({found['filesystem']})"
            yield Outcome("warn", message, "keep logs and caches on a local disk")
        else:
            yield Outcome("ok", f"{path}: {format_size(found['free'])} free ({found['filesystem']})")
    if not case.ready.get("folders"):
        yield Outcome("skipped", "not checked")


@doctor_check("shared-folder")
def shared_folder(case: Case) -> Outcomes:
    """Every host sees the same folder of the job."""
    shared = case.ready.get("shared")
    if case.here or shared is None:
        yield Outcome("skipped", "one host" if len(case.hosts) < 2 else "the folder where dstui runs")
    elif shared:
        yield Outcome("ok", "the job's folder is the same as on this machine")
    else:
        fix = "use a folder that all hosts share; with copies, checkpoints need use_node_local_storage"
        yield Outcome("warn", "the job's folder is not this machine's: files that ranks write there stay there", fix)


@doctor_check("accelerate-config", once=True)
def accelerate_config(case: Case) -> Outcomes:
    """No default_config.yaml of accelerate's that would apply unnoticed."""
    if case.get("job.integration") != "accelerate":
        yield Outcome("skipped", "the Plan is not for accelerate")
        return
    path = default_config()
    if is_file(path):
        message = f"{path} is there: `accelerate launch` without --config_file takes it silently; dstui's own launches never do"
        yield Outcome("warn", message, "without dstui give it --config_file accelerate.yaml (dstui render writes one), or remove it")
    else:
        yield Outcome("ok", "accelerate has no default configuration here")


@doctor_check("environment", once=True)
def environment(case: Case) -> Outcomes:
    """Variables of this shell that the job may need reach ranks on other hosts."""
    if all(other.here for other in (case, *case.others)):
        yield Outcome("skipped", "the ranks run here: they get this environment")
        return
    lost = _lost(case)
    stray = [text for folder in _searched(case) if (text := _stray(folder))]
    for text in stray:
        fix = "move what is needed into cluster.env and remove the file: DeepSpeed's launcher reads it at every launch"
        yield Outcome("warn", text, fix)
    if lost:
        names = ", ".join(lost)
        yield Outcome(
            "warn", f"set here, but not passed on to other hosts: {names}", f"put {lost[0]} into cluster.env, if the job needs it"
        )
    elif not stray:
        yield Outcome("ok", "no variable that is known to matter is left out")


def _lost(case: Case) -> list[str]:
    """Return the variables of this shell that may matter and do not reach the ranks."""
    shell = [name for name in WORTH_TELLING if name in case.environment]
    if case.plan is None:
        return shell
    try:
        spec = Target(case.plan, case.start, case.pool).launch
    except RenderError:
        return []
    return [
        found.name for found in trace_variables(spec, shell, gpu_here=bool(case.start.gpus)) if not found.reaches and found.name in shell
    ]


def _searched(case: Case) -> list[Path]:
    """Return the folders in which DeepSpeed's launcher looks for .deepspeed_env."""
    folders = [_home(), *([Path(case.plan.place(case.plan.job.workdir))] if case.plan else [])]
    return list(dict.fromkeys(folders))


def _home() -> Path:
    return Path(os.path.expanduser("~"))  # noqa: PTH111 - Path.home() raises where nobody knows the user


def _stray(folder: Path) -> str:
    """Describe a .deepspeed_env in a folder; "" if there is none."""
    path = folder / ENV_FILE
    try:
        text = read_text(path) if is_file(path) else None
    except FileProblem as problem:
        return str(problem)
    if text is None:
        return ""
    bad = next((number for number, line in enumerate(text.splitlines(), 1) if "=" not in line), None)
    dies = f", and its line {bad} makes them fail: DeepSpeed takes NAME=value only, no comment, no empty line" if bad else ""
    whose = "of this user" if folder == _home() else "from that folder"
    return f"{path} applies to every plain `deepspeed` launch {whose}{dies}; dstui passes it to other hosts too"
