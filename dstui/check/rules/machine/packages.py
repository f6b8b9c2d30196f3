"""Rules about the Python packages that a job imports beside torch and DeepSpeed."""

from __future__ import annotations

from dstui.check.rules.machine.machine_finding import Level, MachineFinding, MachineFindings, machine_rule
from dstui.check.rules.machine.requirement import Requirement
from dstui.machine.codec import known
from dstui.machine.snapshot import Machine
from dstui.plan.catalogue import is_version, version_tuple

NEEDED_BY_TRANSFORMERS = {"5.0": "1.1.0", "4.45": "0.26.0", "4.37": "0.21.0", "4.30": "0.20.1"}
"""Release of transformers -> the oldest accelerate that TrainingArguments take from then on, newest first. Older ones take any."""


@machine_rule("MC022", "error", source="transformers/training_args.py (_setup_devices)")
def accelerate_is_missing(machine: Machine, requirement: Requirement) -> MachineFindings:
    """accelerate, which the Trainer needs too, is not installed or too old."""
    software, of_trainer = machine.software, requirement.integration == "trainer"
    if requirement.integration not in ("trainer", "accelerate") or requirement.other_python or not known(software.deepspeed, None):
        return  # without DeepSpeed, nothing trains with this interpreter: it may only plan
    least = _least_accelerate(known(software.transformers, None)) if of_trainer else ""
    if software.accelerate is None:
        state = "is not installed"
    elif is_version(software.accelerate) and least and version_tuple(str(software.accelerate)) < version_tuple(least):
        state = f"{software.accelerate} is too old"
    else:
        return
    who = f"transformers {software.transformers}'s Trainer" if least else "the Trainer" if of_trainer else "the script"
    wanted = f"accelerate>={least}" if least else "accelerate"
    why = f"{who} needs {wanted}: every rank ends with an ImportError"
    fix = f"{known(software.python_path, 'python')} -m pip install '{wanted}'"
    level: Level = "warning" if "PYTHONPATH" in requirement.environment or not requirement.reader_is_seen else "error"
    yield MachineFinding(f"accelerate {state} for the interpreter of the job", why, fix, path="job.integration", level=level)


def _least_accelerate(transformers: str | None) -> str:
    """Return the oldest accelerate that this release of transformers takes; "" if any, or if that is unknown."""
    if not is_version(transformers):
        return ""
    return next((least for since, least in NEEDED_BY_TRANSFORMERS.items() if version_tuple(str(transformers)) >= version_tuple(since)), "")
