"""Count the failures of many runs by cause, host or user."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any, Final, Literal

from dstui.base.dataclass import dataclass
from dstui.runs.run import FAILED, Run

By = Literal["cause", "host", "user"]
NO_CAUSE: Final = "(nothing says why)"


@dataclass(slots=True)
class Count:
    """The number of runs in one group, and how many of them failed."""

    name: str
    failed: int = 0
    runs: int = 0
    """Ended runs, successful or not; by cause only the failed ones."""
    users: set[str] = field(default_factory=set)
    latest: Run | None = None
    """The latest failed run."""
    title: str = ""

    @property
    def rate(self) -> float:
        """Return the share of runs that failed."""
        return self.failed / self.runs if self.runs else 0.0

    def as_json(self) -> dict[str, Any]:
        """Return the shape that `dstui runs --by … --json` promises."""
        latest = str(self.latest.folder.path) if self.latest else None
        return {"name": self.name, "failed": self.failed, "runs": self.runs, "users": sorted(self.users), "latest": latest}


NAMES: Final[Mapping[By, Callable[[Run], Sequence[str]]]] = {
    "cause": lambda run: [run.cause or NO_CAUSE] if run.status.state in FAILED else [],
    "host": lambda run: run.hosts,
    "user": lambda run: [run.user],
}
"""The names of the groups in which a run is counted."""


def count(runs: Sequence[Run], by: By) -> list[Count]:
    """Count ended runs by cause, host or user, most failures first. `runs`: oldest first.

    By host, a failure counts for the host that failed first, and the run for each of its hosts.
    """
    found: dict[str, Count] = {}
    for run in runs:
        if run.active:
            continue
        for name in NAMES[by](run):
            one = found.setdefault(name, Count(name))
            one.runs += 1
            if run.status.state in FAILED and (by != "host" or name == run.failed_host):
                one.failed, one.latest = one.failed + 1, run
                one.users.add(run.user)
                one.title = run.why or one.title
    return sorted(found.values(), key=lambda one: (-one.failed, -one.rate, one.name))


def texts(counts: Sequence[Count], by: By) -> list[list[str]]:
    """Return a table: its header, then a row for each group."""
    last = {"cause": "for example", "host": "last failure", "user": "last failure"}[by]
    rows = [
        [
            one.name,
            str(one.failed),
            *([] if by == "cause" else [str(one.runs), f"{one.rate:.0%}" if one.failed else ""]),
            *([", ".join(sorted(one.users))] if by == "cause" else []),
            one.latest.name if one.latest else "",
            one.title if by == "cause" else one.latest.cause or one.title if one.latest else "",
        ]
        for one in counts
    ]
    more = ["whose"] if by == "cause" else ["runs", "failed"]
    return [[by, "failures", *more, last, "why"], *rows]
