"""Compare the Plans of two runs key by key. Values count, not their form (order of keys, comments, spelling of numbers)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

from dstui.base.dataclass import dataclass
from dstui.base.files import FileProblem, read_text
from dstui.documents.plan_files import is_shipped
from dstui.jobs.store.folder import JobFolder
from dstui.plan import Plan, PlanError, load
from dstui.plan.scalars import yaml_scalar

Op = Literal["add", "remove", "replace"]


@dataclass(frozen=True, slots=True)
class Change:
    """One key that only one of two Plans has, or that has different values; `path` is dotted from the Plan's root."""

    op: Op
    path: str
    before: Any = None
    after: Any = None

    def __str__(self) -> str:
        if self.op == "replace":
            return f"{self.path}: {_text(self.before)} → {_text(self.after)}"
        value = self.after if self.op == "add" else self.before
        return f"{'+' if self.op == 'add' else '-'} {self.path}: {_text(value)}"

    def as_json(self) -> dict[str, Any]:
        """Return the object that `dstui runs --json` documents."""
        return {"op": self.op, "path": self.path, "before": self.before, "after": self.after}


def changes(before: Plan, after: Plan) -> tuple[Change, ...]:
    """Return the changes from one Plan to the other, in the order of the second."""
    return data_changes(before.data, after.data)


def data_changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[Change, ...]:
    """Return the changes between the data of two Plans."""
    return tuple(_mappings(before, after, ""))


def _mappings(before: Mapping[str, Any], after: Mapping[str, Any], parent: str) -> Iterator[Change]:
    for key in (*after, *(key for key in before if key not in after)):
        path = f"{parent}{key}"
        if key not in before:
            yield Change("add", path, after=after[key])
        elif key not in after:
            yield Change("remove", path, before=before[key])
        elif isinstance(before[key], Mapping) and isinstance(after[key], Mapping):
            yield from _mappings(before[key], after[key], f"{path}.")
        elif not same(before[key], after[key]):
            yield Change("replace", path, before[key], after[key])


def same(one: Any, other: Any) -> bool:
    """Return whether two values are equal: 5e8 and 500000000 are, true and 1 are not.

    The order of a list matters, that of keys does not.
    """
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    return isinstance(one, bool) == isinstance(other, bool) and (one == other or repr(one) == repr(other))  # nan is not equal to itself


def plan_of(folder: JobFolder) -> Plan:
    """Return the Plan of a run, with paths relative to its original folder. Raises FileProblem or PlanError."""
    path = folder.path / "plan.yaml"
    launch = folder.read_launch()
    base = (launch and (launch.base or launch.workdir)) or str(folder.path)  # older records have no "base"
    return load(read_text(path), str(path), base)


def same_document(one: Plan, other: Plan) -> bool:
    """Return whether two Plans are the same document, perhaps edited: equal name and place."""
    return (name_of(one), one.base) == (name_of(other), other.base)


def name_of(plan: Plan) -> str:
    """Return the title of a Plan: its name, else what it trains."""
    return plan.name or plan.job.script or plan.job.module or "".join(plan.job.command[:1])


def project_of(plan: Plan, begun_in: str) -> tuple[str, str, str]:
    """Return the key of a project: the Plan's name, the working folder, and the script in it.

    A shipped Plan belongs to no project: the folder in which it was started (`begun_in`) decides.
    """
    place = begun_in if is_shipped(plan.base) else plan.place(plan.job.workdir)
    return name_of(plan), place, plan.job.script or plan.job.module or ""


def history(folders: Iterable[JobFolder]) -> Iterator[tuple[Change, ...] | None]:
    """Yield for each run, oldest first, the changes since the previous run of the same project.

    None for the first run of a project, and if a Plan cannot be read.
    """
    latest: dict[tuple[str, str, str], Plan] = {}
    for folder in folders:
        try:
            plan = plan_of(folder)
        except (FileProblem, PlanError):
            yield None
            continue
        project = project_of(plan, folder.begun_in)
        before = latest.get(project)
        yield None if before is None else changes(before, plan)
        latest[project] = plan


def last_run(plan: Plan, folders: Sequence[JobFolder]) -> tuple[JobFolder, Plan] | None:
    """Return the latest readable run of the same project, with its Plan; None if there is none. `folders`: oldest first."""
    project = project_of(plan, str(Path.cwd()))
    for folder in reversed(folders):
        with suppress(FileProblem, PlanError):
            if project_of(before := plan_of(folder), folder.begun_in) == project:
                return folder, before
    return None


def _text(value: Any) -> str:
    """Format a value in one line: a scalar as YAML, others as JSON."""
    return json.dumps(value, ensure_ascii=False) if isinstance(value, (Mapping, list)) else yaml_scalar(value)
