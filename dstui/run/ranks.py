"""What is known of every rank, from the records that the shims write, and the job's exit status that follows from it.

Nothing here rests on the launcher's word: `deepspeed` says 0 when its launch.py is killed, 247 for a SIGKILL, and the largest of
several codes instead of the first.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from dstui.run.folder import JobFolder, read_json
from dstui.run.processes import Process

RankState = Literal["waiting", "started", "ended", "lost"]
KILLED = 128 + 9
"""A rank that is gone without a word was killed, for only SIGKILL leaves the shim no time to write."""
NEVER_STARTED = 1
MOST = 1 << 16
"""Ranks that a record may announce."""


@dataclass(slots=True)
class Rank:
    """One rank. Times are seconds since the epoch, by the clock of the rank's host."""

    host: str
    state: RankState = "waiting"
    pid: int | None = None
    exit_code: int | None = None
    ended: float | None = None
    shim: Process | None = None
    master: tuple[str, str] | None = None
    """MASTER_ADDR and MASTER_PORT, as the rank has them."""
    written: int = 0
    """Modification time of the record when it was read, in ns."""
    began: float | None = None
    seen: float = 0.0
    """When the rank was last seen alive: it was lost after that, so that its peers' failures come later."""

    @property
    def over(self) -> bool:
        """Whether it will not change any more."""
        return self.state in ("ended", "lost")

    def as_json(self) -> dict[str, Any]:
        """As status.json has it."""
        return {"host": self.host, "pid": self.pid, "state": self.state, "exit_code": self.exit_code}

    def as_record(self, number: int, tag: str) -> dict[str, Any]:
        """As its shim has written it, where that was deleted."""
        shim = {"shim": self.shim.pid, "ticks": self.shim.ticks} if self.shim else {}
        known = {"pid": self.pid, "started": self.began, "ended": self.ended, "exit_code": self.exit_code, "master": self.master}
        return {"rank": number, "host": self.host, "tag": tag, **known, **shim}


@dataclass
class Ranks:
    """All ranks of one attempt on this host's view of the job folder."""

    folder: JobFolder
    attempt: int = 1
    ranks: dict[int, Rank] = field(default_factory=dict)

    @classmethod
    def expected(cls, folder: JobFolder, hosts: Mapping[int, str], attempt: int = 1) -> Ranks:
        """The ranks that the launch plan names, none of them started yet."""
        return cls(folder, attempt, {rank: Rank(host) for rank, host in sorted(hosts.items())})

    def update(self, now: float) -> list[int]:
        """Read what has changed and look after the living; the ranks whose state is another one now."""
        before = {number: rank.state for number, rank in self.ranks.items()}
        self._read_records()
        here = os.uname().nodename
        for number, rank in self.ranks.items():
            if rank.state != "started" or rank.host != here:
                continue
            if rank.shim is not None and rank.shim.alive:
                rank.seen = now
                continue
            self._read(number, rank)  # its last word may have come in between
            if rank.state == "started":
                rank.state, rank.exit_code, rank.ended = "lost", KILLED, rank.seen
        return [number for number, rank in self.ranks.items() if before.get(number) != rank.state]

    def _read_records(self) -> None:
        try:
            entries = list(os.scandir(self.folder.record(0, self.attempt).parent))
        except OSError:
            return
        for entry in entries:
            digits = entry.name.removeprefix("rank_").removesuffix(".json")
            if digits.isdigit():
                rank = self.ranks.setdefault(int(digits), Rank("?"))
                if not rank.over and _modified(entry) != rank.written:
                    self._read(int(digits), rank)

    def _read(self, number: int, rank: Rank) -> None:
        path = self.folder.record(number, self.attempt)
        written = _modified(path)
        found = read_json(path)
        if not isinstance(found.get("pid"), int):
            return  # not written yet; a record is one write, so that the next look has it whole
        rank.written, rank.host, rank.pid = written, str(found.get("host")), found["pid"]
        shim, ticks = found.get("shim"), found.get("ticks")
        rank.shim = Process(shim, ticks) if isinstance(shim, int) and isinstance(ticks, int) else None
        master = found.get("master") or [None, None]
        rank.master = (str(master[0]), str(master[1])) if all(master) else None
        size = found.get("world_size")
        for missing in range(min(size, MOST) if isinstance(size, int) else 0):
            self.ranks.setdefault(missing, Rank(rank.host))
        began = found.get("started")
        rank.began = float(began) if isinstance(began, (int, float)) else None
        rank.seen = max(rank.seen, rank.began or 0.0)
        rank.state = "started"
        if isinstance(found.get("exit_code"), int):
            rank.state, rank.exit_code, rank.ended = "ended", found["exit_code"], found.get("ended") or rank.seen

    @property
    def living(self) -> list[int]:
        """The ranks that run."""
        return [number for number, rank in self.ranks.items() if rank.state == "started"]

    @property
    def waiting(self) -> list[int]:
        """The ranks that have not started."""
        return [number for number, rank in self.ranks.items() if rank.state == "waiting"]

    @property
    def over(self) -> bool:
        """Whether every rank has started and ended."""
        return bool(self.ranks) and all(rank.over for rank in self.ranks.values())

    @property
    def first_failure(self) -> int | None:
        """The rank that failed first, by time."""
        failed = [(rank.ended or 0.0, number) for number, rank in self.ranks.items() if rank.over and rank.exit_code]
        return min(failed)[1] if failed else None

    def exit_code(self) -> int:
        """0 only where every rank ended with 0; else that of the first to fail; 1 where one never started."""
        first = self.first_failure
        if first is not None:
            return self.ranks[first].exit_code or 0
        return 0 if self.over else NEVER_STARTED


def ranks_in_words(ranks: Iterable[int]) -> str:
    """`rank 3`; `ranks 0-3, 7`."""
    spans: list[list[int]] = []
    for rank in ranks:
        if spans and rank == spans[-1][1] + 1:
            spans[-1][1] = rank
        else:
            spans.append([rank, rank])
    words = ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in spans)
    return f"rank{'' if len(spans) == 1 and spans[0][0] == spans[0][1] else 's'} {words}"


def _modified(path: Path | os.DirEntry[str]) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0
