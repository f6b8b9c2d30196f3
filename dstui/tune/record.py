"""tune.json: the measurements of a tune, in its folder among the runs, so that it can be interrupted and resumed.

A folder that came with a repository is not trusted: a result counts only if the user's own index of runs knows its job.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from datetime import datetime
from glob import escape
from pathlib import Path
from typing import Any

from dstui.base.dataclass import dataclass
from dstui.base.files import FileProblem, reason, write_atomic
from dstui.facts.measured import machine_key
from dstui.jobs.store.folder import RUNS_FOLDER, JobFolder, create_folder, read_json
from dstui.jobs.store.ownership import is_own
from dstui.jobs.store.record_forms import integer_between, is_number, is_text, one_of, record, sound
from dstui.machine.snapshot import Machine
from dstui.plan import Plan
from dstui.plan.finding import Operation

FILE = "tune.json"
VERSION = 1
STATES = ("running", "measured", "slower", "out of memory", "failed", "no steps", "not applied", "stopped")
MAX_RESULTS = 100
JOB = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,200}-[0-9]{1,6}")
"""The name of a job: PLAN-tune-3, or trial-3 before 0.5.1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The result of one candidate. None means unknown."""

    label: str
    patch: Sequence[Operation] = ()
    job: str = ""
    """The name of its job folder, in the folder of the tune."""
    state: str = "running"
    note: str = ""
    """The reason why it was not measured, as a sentence."""
    rate: float | None = None
    """Samples per second of all ranks."""
    spread: float | None = None
    """The median deviation of the time of a step, as a share."""
    steps: int = 0
    """Measured steps, without the first."""
    memory: int | None = None
    """Bytes of a GPU that torch reserved, or RAM of the ranks on a node."""
    expected_rate: float | None = None
    expected_memory: int | None = None
    elements: float | None = None
    """Elements that a micro-step passed to the model."""
    seconds: float = 0.0
    """The duration of the job."""


def _is_patch(value: Any) -> bool:
    return isinstance(value, list) and len(value) <= 200 and all(isinstance(one, dict) and is_text(one.get("path")) for one in value)


RESULT = {
    "label": is_text,
    "patch": _is_patch,
    "job": lambda value: is_text(value) and JOB.fullmatch(value) is not None,
    "state": one_of(STATES),
    "note": is_text,
    **dict.fromkeys(("rate", "spread", "expected_rate", "elements", "seconds"), is_number),
    **dict.fromkeys(("memory", "expected_memory"), integer_between(0, 1 << 60)),
    "steps": integer_between(0, 1 << 30),
}
FORM = {
    "version": integer_between(VERSION, VERSION),
    "key": is_text,
    "finished": lambda value: isinstance(value, bool),
    "results": lambda value: isinstance(value, list) and len(value) <= MAX_RESULTS and all(map(record(**RESULT), value)),
}


class TuneFolder:
    """The folder of a tune: its record and the folders of its jobs."""

    def __init__(self, path: Path, key: str, results: Sequence[Result] = ()) -> None:
        self.path, self.key = path, key
        self.results = list(results)

    def job(self, result: Result) -> JobFolder:
        """Return the job of a result."""
        return JobFolder(self.path / result.job)

    def new_job(self) -> str:
        """Return a name for the next job folder: PLAN-tune-3, counted over all tunes of a Plan, so that a list of runs tells them apart."""
        stem = re.sub(r"-\d{8}-\d{6}(-\d+)?$", "", self.path.name)
        others = (path.name.removeprefix(f"{stem}-") for path in self.path.parent.glob(f"*/{escape(stem)}-*"))
        return f"{stem}-{max((int(n) for n in others if n.isdecimal() and len(n) < 7), default=0) + 1}"

    def outputs(self, job: str) -> Path:
        """Return the folder for the redirected output of a job."""
        return self.path / f"{job}-output"

    def keep(self, result: Result, *, finished: bool = False) -> None:
        """Store a result, replacing an earlier one of the same job. Raises FileProblem if it cannot be written."""
        self.results = [*(one for one in self.results if not one.job or one.job != result.job), result]
        self.write(finished=finished)

    def write(self, *, finished: bool = False) -> None:
        """Write the record. Raises FileProblem if it cannot be written."""
        found = {"version": VERSION, "key": self.key, "finished": finished, "results": [asdict(one) for one in self.results]}
        try:
            write_atomic(self.path / FILE, json.dumps(found, indent=1, default=str) + "\n", replace=True, private=True)
        except OSError as error:
            raise FileProblem(f"Cannot write {self.path / FILE}: {reason(error)}") from None


def key_of(plan: Plan, machine: Machine, steps: int, only: str) -> str:
    """Return a key that is equal for the same tune: the Plan, the machine and what is measured."""
    data = json.dumps(plan.data, sort_keys=True, default=str)
    return hashlib.sha256("\0".join([data, plan.base, machine_key(machine), str(steps), only]).encode()).hexdigest()[:16]


def new_folder(plan: Plan, key: str) -> TuneFolder:
    """Create a folder for a new tune. Raises FileProblem."""
    name = plan.name or Path(plan.job.script or plan.job.module or "plan").stem
    folder = TuneFolder(create_folder(f"{name}-tune", datetime.now()).path, key)
    folder.write()
    return folder


def unfinished(key: str) -> TuneFolder | None:
    """Return the newest unfinished tune of the current folder, with the results of the user's own jobs."""
    found = sorted((Path.cwd() / RUNS_FOLDER).glob(f"*/{FILE}"), key=lambda path: path.parent.name, reverse=True)
    for path in found:
        folder = path.parent.lstat()
        data = read_json(path)
        if folder.st_uid != os.geteuid() or folder.st_mode & 0o022 or not sound(data, FORM) or data.get("key") != key:
            continue
        if data.get("finished"):
            return None
        results = [result_of(one) for one in data.get("results") or ()]
        mine = [one for one in results if one.job and _is_own(JobFolder(path.parent / one.job))]
        return TuneFolder(path.parent, key, mine)
    return None


def _is_own(folder: JobFolder) -> bool:
    status = folder.read_status()
    return status is not None and is_own(folder, status)


def result_of(found: Mapping[str, Any]) -> Result:
    """Return a result from its stored form."""
    return replace(Result(label=""), **{name: found[name] for name in Result.__slots__ if found.get(name) is not None})
