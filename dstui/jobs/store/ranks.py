"""The state of every rank from the records of the shims, and the job's exit status that follows from it.

The launcher's status is not used: `deepspeed` exits with 0 when its launch.py is killed, with 247 for a SIGKILL, and with the largest of
several statuses instead of the first.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import field, replace
from pathlib import Path
from typing import Any

from dstui.base.dataclass import dataclass
from dstui.base.text import sanitise
from dstui.jobs.store.folder import JobFolder, read_json
from dstui.jobs.store.processes import Process, boot
from dstui.jobs.store.record_forms import SHIM, rank_number, sound
from dstui.jobs.store.records import JobStatus, RankState, RankStatus

KILLED = 128 + 9
"""The status of a rank that is gone without a record of its end: only SIGKILL leaves the shim no time to write."""
TERMINATED = 128 + 15
NEVER_STARTED = 1


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
    """MASTER_ADDR and MASTER_PORT of the rank."""
    written: int = 0
    """Modification time of the record when it was read, in ns."""
    began: float | None = None
    last_alive: float = 0.0
    """The time at which the rank was last seen alive. It was lost after that, so failures of its peers count as later."""

    @property
    def over(self) -> bool:
        """Return whether its state is final."""
        return self.state in ("ended", "lost")

    def status(self) -> RankStatus:
        """Return its entry in status.json."""
        return RankStatus(self.host, self.pid, self.state, self.exit_code)

    def as_record(self, number: int, tag: str) -> dict[str, Any]:
        """Return the record that its shim had written, to restore a deleted one."""
        shim = {"shim": self.shim.pid, "ticks": self.shim.ticks, "boot": boot()} if self.shim else {}
        known = {"pid": self.pid, "started": self.began, "ended": self.ended, "exit_code": self.exit_code, "master": self.master}
        return {"rank": number, "host": self.host, "tag": tag, **known, **shim}


@dataclass
class Ranks:
    """All ranks of one attempt, as the job folder on this host shows them."""

    folder: JobFolder
    attempt: int = 1
    ranks: dict[int, Rank] = field(default_factory=dict)
    tag: str | None = None
    """The job's tag: records with another one are ignored."""
    unseen: bool = False
    """True if its processes are invisible, so that their absence proves nothing."""

    @classmethod
    def expected(cls, folder: JobFolder, hosts: Mapping[int, str], attempt: int = 1, tag: str | None = None) -> Ranks:
        """Return the ranks of the launch spec, none of them started yet."""
        return cls(folder, attempt, {rank: Rank(host) for rank, host in sorted(hosts.items())}, tag)

    @property
    def run_elsewhere(self) -> bool:
        """Return whether a rank without an end was started on another host."""
        return any(rank.state == "started" and rank.host != os.uname().nodename for rank in self.ranks.values())

    def update(self, now: float) -> list[int]:
        """Read changed records and check living ranks. Return the ranks whose state has changed."""
        before = {number: rank.state for number, rank in self.ranks.items()}
        self._read_records()
        here = os.uname().nodename
        for number, rank in list(self.ranks.items()):
            if rank.state != "started" or rank.host != here or self.unseen:
                continue
            if rank.shim is not None and rank.shim.alive:
                rank.last_alive = now
                continue
            self._read(number, rank)  # it may have written its end in between
            if rank.state == "started":
                rank.state, rank.exit_code, rank.ended = "lost", KILLED, rank.last_alive
        return [number for number, rank in self.ranks.items() if before.get(number) != rank.state]

    def _read_records(self) -> None:
        try:
            entries = list(os.scandir(self.folder.record(0, self.attempt).parent))
        except OSError:
            return
        for entry in entries:
            number = rank_number(entry.name.removeprefix("rank_").removesuffix(".json"))
            rank = self.ranks.get(number, Rank("?")) if number is not None else None
            if number is not None and rank is not None and not rank.over and _modified(entry) != rank.written:
                self._read(number, rank)

    def _read(self, number: int, rank: Rank) -> None:
        path = self.folder.record(number, self.attempt)
        written = _modified(path)
        found = read_record(path)
        if found.get("pid") is None or (self.tag is not None and found.get("tag") != self.tag):
            return  # not written yet (a record is one write, so the next look has it complete), or of another job
        self.ranks[number] = rank
        rank.written = written
        if rank.state == "waiting":
            self._begin(rank, found)
        if found.get("exit_code") is not None:
            rank.state, rank.exit_code, rank.ended = "ended", found["exit_code"], found.get("ended") or rank.last_alive
        elif found.get("lost") is not None:  # reported by its host's agent
            rank.state, rank.exit_code, rank.ended = "lost", KILLED, found["lost"]

    def _begin(self, rank: Rank, found: Mapping[str, Any]) -> None:
        """Record the identity of a started rank. No later record changes it."""
        rank.state, rank.host, rank.pid = "started", str(found.get("host")), found["pid"]
        shim, ticks = found.get("shim"), found.get("ticks")
        this_boot = found.get("boot") in (boot(), None)
        rank.shim = Process(shim, ticks) if shim is not None and ticks is not None and this_boot else None
        master = found.get("master") or [None, None]
        rank.master = (master[0], master[1]) if all(master) else None
        for missing in range(found.get("world_size") or 0):
            self.ranks.setdefault(missing, Rank(rank.host))
        rank.began = found.get("started")
        rank.last_alive = max(rank.last_alive, rank.began or 0.0)

    def remember(self, reported: Mapping[int, RankStatus]) -> None:
        """Use a status for ranks whose records are gone."""
        for number in self.waiting:
            known = reported.get(number)
            if known and known.state in ("ended", "lost") and known.exit_code is not None:
                rank = self.ranks[number]
                rank.state, rank.pid, rank.exit_code = known.state, known.pid, known.exit_code

    def statuses(self) -> dict[int, RankStatus]:
        """Return the entries of status.json."""
        first = self.first_failure
        return {
            number: replace(rank.status(), killed_after=first if first is not None and self._followed(number, first) else None)
            for number, rank in sorted(self.ranks.items())
        }

    def _followed(self, number: int, first: int) -> bool:
        """Return whether a rank ended because another had failed: by a signal of the launcher, and not the same signal as that one."""
        cause, code = self.ranks[first].exit_code, self.ranks[number].exit_code
        return number != first and self.ranks[number].over and code in (TERMINATED, KILLED) and cause not in (code, TERMINATED)

    @property
    def living(self) -> list[int]:
        """The running ranks."""
        return [number for number, rank in self.ranks.items() if rank.state == "started"]

    @property
    def waiting(self) -> list[int]:
        """The ranks that have not started."""
        return [number for number, rank in self.ranks.items() if rank.state == "waiting"]

    @property
    def over(self) -> bool:
        """Return whether every rank has started and ended."""
        return bool(self.ranks) and all(rank.over for rank in self.ranks.values())

    @property
    def first_failure(self) -> int | None:
        """The rank that failed first, by time."""
        failed = [(rank.ended or 0.0, number) for number, rank in self.ranks.items() if rank.over and rank.exit_code]
        return min(failed)[1] if failed else None

    def exit_code(self) -> int:
        """Return 0 if every rank ended with 0, else the first failure's status; 1 if a rank never started and the rest was stopped."""
        first = self.first_failure
        if first is not None and not (self.waiting and self.ranks[first].exit_code == TERMINATED):
            return self.ranks[first].exit_code or 0
        return 0 if self.over else NEVER_STARTED


def read_record(path: Path) -> dict[str, Any]:
    """Read the record of a rank's shim; empty if it is missing, half-written or invalid."""
    found = read_json(path)
    return found if sound(found, SHIM) else {}


def hosts_of_ranks(status: JobStatus | None) -> dict[int, str]:
    """Return rank -> host, safe to show; empty if all ranks are on the supervisor's host."""
    return {number: sanitise(rank.host) for number, rank in status.ranks.items()} if status and status.hosts else {}


def rank_label(rank: int | None, hosts: Mapping[int, str], width: int = 0) -> str:
    """Return the label of a rank's lines: `[1]`, for several hosts `[1 h2]`; a dash for the launcher's own.

    `hosts`: rank -> host, empty if all ranks are on this one.
    """
    longest = max(map(len, hosts.values()), default=0)
    text = "-" if rank is None else f"{rank:>{width}}"
    host = f" {hosts.get(rank, '') if rank is not None else '':<{longest}}" if hosts else ""
    return f"[{text:>{width}}{host}]"


def ranks_in_words(ranks: Iterable[int]) -> str:
    """Format ranks: `rank 3`; `ranks 0-3, 7`."""
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
