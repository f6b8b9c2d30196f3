"""The events of a job, one frozen dataclass each. `as_json` returns the form that `--headless --json` prints."""

from __future__ import annotations

import math
from dataclasses import field
from typing import Any

from dstui.base.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Started:
    """The job has a folder. `t`: seconds since the epoch."""

    folder: str
    t: float

    def as_json(self) -> dict[str, Any]:
        """Return the JSON form. Only this event carries the version of the stream."""
        return {"version": 1, "t": self.t, "event": "start", "folder": self.folder}


@dataclass(frozen=True, slots=True)
class RankState:
    """A rank has started, ended (with an exit status, 128+n for signal n) or is lost (gone without a record: killed)."""

    rank: int
    host: str
    state: str
    exit_code: int | None
    killed_after: int | None = None
    """The rank that had failed first, if the launcher then ended this one by a signal."""

    def as_json(self) -> dict[str, Any]:
        victim = {} if self.killed_after is None else {"killed_after": self.killed_after}
        return {"event": "rank", "rank": self.rank, "host": self.host, "state": self.state, "exit_code": self.exit_code, **victim}


@dataclass(frozen=True, slots=True)
class HostChange:
    """A host of the job was reached, is unreachable, or has ended: nothing of the job is left there.

    While it is unreachable, the event repeats every minute with `seconds`.
    """

    host: str
    state: str
    """As records.HostState, or `lost`: unreachable for so long that the job was ended."""
    text: str
    """A description, with the reason if there is one."""
    seconds: float | None = None
    """For how long the host has been unreachable."""

    def as_json(self) -> dict[str, Any]:
        lasting = {} if self.seconds is None else {"seconds": self.seconds}
        return {"event": "host", "host": self.host, "state": self.state, "text": self.text, **lasting}


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a rank's log, safe to show; `rank` is None for the launcher's own."""

    rank: int | None
    text: str

    def as_json(self) -> dict[str, Any]:
        return {"event": "line", "rank": self.rank, "text": self.text}


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric of a rank."""

    rank: int
    step: int
    name: str
    value: float
    steps: int | None = field(default=None, compare=False)
    """The total number of steps, if the lines name it."""
    counted: bool = field(default=False, compare=False)
    """True if no line named a step: it then counts the values of this name."""
    source: str = field(default="log", compare=False)
    """`log`: a line of the rank; `engine`: DeepSpeed's engine itself."""

    def as_json(self) -> dict[str, Any]:
        """Return the JSON form. NaN and infinity, which JSON lacks, become null."""
        value = self.value if math.isfinite(self.value) else None
        facts = {"event": "metric", "rank": self.rank, "step": self.step, "name": self.name, "value": value}
        more = {"steps": self.steps, "counted": self.counted or None, "source": self.source if self.source != "log" else None}
        return facts | {name: fact for name, fact in more.items() if fact is not None}


@dataclass(frozen=True, slots=True)
class Notice:
    """A message of dstui about the job."""

    text: str
    about: str = ""
    """The subject of a state, such as the build of an op: the state lasts until the next notice with the same subject, whose text may be
    empty."""
    lasts: bool = False
    code: str = ""
    """The kind of notice, for programs (see watch/engine_notices.py); empty for most."""

    def as_json(self) -> dict[str, Any]:
        return {"event": "notice", "text": self.text} | ({"code": self.code} if self.code else {})


@dataclass(frozen=True, slots=True)
class Exited:
    """The job has ended, and everything that it wrote was reported."""

    exit_code: int
    state: str

    def as_json(self) -> dict[str, Any]:
        return {"event": "exit", "exit_code": self.exit_code, "state": self.state}


Event = Started | RankState | HostChange | Line | Metric | Notice | Exited
