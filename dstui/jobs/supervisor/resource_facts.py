"""Facts about an end that no log contains: the kernel's count of out-of-memory kills, memory, /dev/shm and disks.

A SIGKILL is an out-of-memory kill only if the kernel's count rose; a SIGBUS is shared memory only if /dev/shm was full. The supervisor
samples once a second (0.5 ms) and writes the facts to events.jsonl at the launch and whenever ranks have ended.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

PROC, CGROUPS, SHM = Path("/proc"), Path("/sys/fs/cgroup"), Path("/dev/shm")
NO_LIMIT = 1 << 60
"""cgroup v1 writes a slightly larger number for "no limit"."""
FILES = {
    "memory_limit": ("memory.max", "memory.limit_in_bytes"),
    "memory_used": ("memory.current", "memory.usage_in_bytes"),
    "memory_peak": ("memory.peak", "memory.max_usage_in_bytes"),
}
"""Facts of a cgroup -> their files in version 2 and in version 1."""
KILLS = ("memory.events", "memory.oom_control")
FULL_BELOW = 16 << 10
"""With fewer bytes there is no room for a line of a log and the record of its rank."""
LEAST = ("memory_available", "shm_free", "disk_free")
"""Values that may have recovered when a rank's end is noticed: their minimum is kept."""


def cgroup_of(pid: int | str, proc: Path = PROC, root: Path = CGROUPS) -> Path | None:
    """Return the folder of the cgroup that counts the memory of a process, or its nearest visible ancestor."""
    for line in _text(proc / str(pid) / "cgroup").splitlines():
        number, controllers, path = [*line.split(":", 2), "", ""][:3]
        base = root if number == "0" and not controllers else root / "memory" if "memory" in controllers.split(",") else None
        if base is None:
            continue
        folder = base / path.lstrip("/")
        for group in (folder, *folder.parents):
            if any((group / name).is_file() for name in KILLS):
                return group
            if group == base:
                break
    return None


def kills_in(cgroup: Path) -> int | None:
    """Return how many processes of a cgroup the kernel has killed for lack of memory."""
    return next((found for name in KILLS if (found := _count(_text(cgroup / name), "oom_kill")) is not None), None)


def resources(cgroup: Path | None, places: Iterable[Path], proc: Path = PROC, shm: Path = SHM) -> dict[str, Any]:
    """Return the current bytes and counts. Unreadable ones are left out."""
    found: dict[str, Any] = {"host_oom_kill": _count(_text(proc / "vmstat"), "oom_kill")}
    if cgroup is not None:
        found |= {"cgroup": str(cgroup), "oom_kill": kills_in(cgroup)}
        found |= {what: next(filter(None, (_number(cgroup / name) for name in names)), None) for what, names in FILES.items()}
    available = _count(_text(proc / "meminfo"), "MemAvailable:")
    found["memory_available"] = None if available is None else available * 1024
    found["shm_total"], found["shm_free"] = _space(shm)
    found["disk_free"] = {str(place): free for place in places if (free := _space(place)[1]) is not None}
    return {what: value for what, value in found.items() if value is not None}


class ResourceFacts:
    """The supervisor's samples during one attempt: the first one, and the minimum since then."""

    def __init__(self, places: Iterable[Path]) -> None:
        self.places = tuple(dict.fromkeys(places))
        self._own = cgroup_of("self")
        self._groups: dict[int, tuple[Path, int | None]] = {}
        self._least: dict[str, Any] = {}

    def now(self) -> dict[str, Any]:
        """Return the current memory, kills and disks, and update the minimum."""
        found = resources(self._own, self.places)
        self._least = least(self._least, found)
        return found

    def full_disk(self) -> Path | None:
        """Return the first of the places whose disk is full. A read-only disk does not count."""
        for place in self.places:
            with suppress(OSError):
                found = os.statvfs(place)
                if found.f_blocks and not found.f_flag & os.ST_RDONLY and found.f_bavail * found.f_frsize < FULL_BELOW:
                    return place
        return None

    def began(self, rank: int, pid: int) -> None:
        """Record the cgroup of a started rank: a scheduler may have given it one of its own."""
        group = cgroup_of(pid)
        if group is not None and group != self._own:
            self._groups[rank] = (group, kills_in(group))

    def ended(self, ranks: Iterable[int]) -> dict[str, Any]:
        """Return the facts at the time when the end of ranks was noticed."""
        found = {"ranks": sorted(ranks), **self.now(), "least": self._least}
        groups = {rank: self._groups[rank] for rank in found["ranks"] if rank in self._groups}
        killed = {str(rank): (kills_in(group) or 0) - (before or 0) for rank, (group, before) in groups.items()}
        return {**found, "killed": killed} if killed else found


def least(before: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, Any]:
    """Return the smaller values of two samples."""
    found = {what: min(before.get(what, now[what]), now[what]) for what in LEAST[:2] if what in now}
    disks = now.get("disk_free", {})
    return {**found, "disk_free": {place: min(before.get("disk_free", {}).get(place, free), free) for place, free in disks.items()}}


def _text(path: Path) -> str:
    with suppress(OSError):
        return path.read_text(errors="replace")
    return ""


def _number(path: Path) -> int | None:
    text = _text(path).strip()
    return int(text) if text.isdecimal() and int(text) < NO_LIMIT else None


def _count(text: str, name: str) -> int | None:
    found = re.search(rf"^{re.escape(name)}\s+(\d+)", text, re.MULTILINE)
    return int(found[1]) if found else None


def _space(place: Path) -> tuple[int | None, int | None]:
    """Return total bytes, and bytes available to this user."""
    try:
        found = os.statvfs(place)
    except OSError:
        return None, None
    return found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize
