"""Write what the hosts of a job send into the job folder, as if the ranks had written it here.

A host may be broken or malicious: it can write only the logs and records of its own ranks, each byte once and at its place.
"""

from __future__ import annotations

import json
import os
import re
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from dstui.base.regular_files import json_object, open_regular, read_json, read_regular
from dstui.hosts.frames import FrameError
from dstui.jobs.store.folder import JobFolder
from dstui.jobs.store.record_forms import SHIM, rank_number, sound
from dstui.jobs.store.records import JobStatus

NAME = re.compile(r"(?:attempts/([0-9]{1,5})/)?((?:logs|ranks|engine)/)rank_([0-9]{1,5})(\.log|\.jsonl?|\.stacks)")
KINDS = {"logs/.log": "log", "ranks/.json": "record", "engine/.jsonl": "jsonl", "engine/.stacks": "stacks", "engine/.json": "state"}
ENGINE_SUFFIXES = ("jsonl", "stacks")
"""Files of a rank's hook that grow."""
LAUNCHER = "launcher.log"
HOST_KEYS = ("shim", "ticks", "boot")
"""Facts of a record that have a meaning only on the rank's own host."""
TIMES = ("started", "ended", "lost")
LONGEST_LINE = 1 << 16
"""Bytes of a line of a host's launcher."""
CLOCKS_AGREE = 1.0
"""Seconds of apparent clock difference that are ignored, since messages take time."""


class Mirror:
    """Writes the files of one job, whose ranks and hosts are in `status`."""

    def __init__(self, folder: JobFolder, tag: str, status: JobStatus) -> None:
        self.folder, self.tag, self.attempt = folder, tag, status.attempt
        self.owners = {number: rank.host for number, rank in status.ranks.items()}
        self._launchers: dict[str, tuple[int, bytes]] = {}
        """Host -> bytes of its launcher's output received so far, and an incomplete line of it."""

    def have(self, host: str) -> dict[str, int]:
        """Return file -> its bytes received so far, for all files that the host may send."""
        found = {LAUNCHER: self._launcher(host)[0]}
        for rank in self.ranks(host):
            engine = [self.folder.engine(rank, self.attempt, kind) for kind in ENGINE_SUFFIXES]
            for path in (self.folder.log(rank, self.attempt), *engine):
                with suppress(OSError):
                    found[str(path.relative_to(self.folder.path))] = path.lstat().st_size
        return found

    def log(self, host: str, name: str, at: int, data: bytes) -> None:
        """Write bytes of a log from `at` on. Raises FrameError if they do not fit, OSError if they cannot be written."""
        if name == LAUNCHER:
            return self._launcher_lines(host, at, data)
        attempt, rank, kind = self._place(host, name)
        if kind != "log" and kind not in ENGINE_SUFFIXES:
            raise FrameError(f"it sent {name} as a log")
        path = self.folder.log(rank, attempt)
        if kind in ENGINE_SUFFIXES:
            path = self.folder.engine(rank, attempt, kind)
            path.parent.mkdir(0o700, exist_ok=True)
        _write_at(path, at, data)

    def record(self, host: str, name: str, data: bytes, skew: float) -> None:
        """Store the record of a rank's shim or hook, with the host's name in the Plan and times by this machine's clock.

        `skew`: the host's clock minus this one, in seconds. Raises FrameError and OSError as `log`.
        """
        attempt, rank, kind = self._place(host, name)
        found = json_object(data)
        if kind == "state" and found:
            return self._state(self.folder.engine(rank, attempt, "json"), found)
        if kind != "record" or not sound(found, SHIM) or found.get("rank") != rank or found.get("tag") != self.tag:
            raise FrameError(f"{name}, which it sent, is not a record of rank {rank}")
        facts: dict[str, Any] = {key: value for key, value in found.items() if key in SHIM and key not in HOST_KEYS}
        if abs(skew) > CLOCKS_AGREE:
            facts |= {key: max(facts[key] - skew, 0.0) for key in TIMES if facts.get(key) is not None}
        self.folder.write_json(self.folder.record(rank, attempt), facts | {"host": host})

    def _state(self, path: Path, found: dict[str, Any]) -> None:
        """Store the present state of a rank that its hook reports."""
        path.parent.mkdir(0o700, exist_ok=True)
        self.folder.write_json(path, found)

    def gpus(self, host: str, data: bytes) -> None:
        """Store NVML's present state of a host's GPUs (dstui/machine/nvml.py --watch). Raises OSError if it cannot be written."""
        match json_object(b'{"line": %b}' % data).get("line"), self.ranks(host):
            case ["sample", [*states]], [first, *_]:
                file = self.folder.gpus(first)
                file.parent.mkdir(0o700, exist_ok=True)
                self.folder.write_json(file, {"t": time.time(), "gpus": states})

    def lose(self, host: str, now: float) -> list[int]:
        """Record that the living ranks of a host are gone, and return them. Raises OSError if that cannot be written."""
        found = []
        for rank in self.ranks(host):
            path = self.folder.record(rank, self.attempt)
            facts = read_json(path)
            if facts.get("pid") is not None and facts.get("exit_code") is None:
                self.folder.write_json(path, facts | {"lost": now})
                found.append(rank)
        return found

    def ranks(self, host: str) -> list[int]:
        """Return the ranks on a host."""
        return [rank for rank, owner in self.owners.items() if owner == host]

    def _place(self, host: str, name: str) -> tuple[int, int, str]:
        """Return attempt, rank and kind of a file that this host may write. Raises FrameError."""
        match = NAME.fullmatch(name)
        rank, attempt = (rank_number(match[3]), rank_number(match[1] or "1")) if match else (None, None)
        kind = KINDS.get(match[2] + match[4]) if match else None
        if not kind or rank is None or not attempt or self.owners.get(rank) != host:
            raise FrameError(f"it sends {json.dumps(name)[:100]}, which is not a file of its ranks")
        return attempt, rank, kind

    def _launcher(self, host: str) -> tuple[int, bytes]:
        """Return how much of a host's launcher output was received. A new supervisor counts the host's lines in launcher.log."""
        if host not in self._launchers:
            mark, size = f"{host}: ".encode(), 0
            with suppress(OSError):
                lines = read_regular(self.folder.launcher_log).splitlines(keepends=True)
                size = sum(len(line) - len(mark) for line in lines if line.startswith(mark))
            self._launchers[host] = (size, b"")
        return self._launchers[host]

    def _launcher_lines(self, host: str, at: int, data: bytes) -> None:
        """Append complete lines to launcher.log, each with the host's name in front."""
        size, rest = self._launcher(host)
        if at > size + len(rest):
            raise FrameError(f"it leaves out {at - size - len(rest)} bytes of its launcher's output")
        data = rest + data[size + len(rest) - at :]
        whole, newline, rest = data.rpartition(b"\n")
        if not newline and len(rest) > LONGEST_LINE:
            whole, rest = rest, b""
        lines = (whole + newline).splitlines(keepends=True) if newline else [whole + b"\n"] if whole else []
        _append(self.folder.launcher_log, b"".join(f"{host}: ".encode() + line for line in lines))
        self._launchers[host] = (size + len(data) - len(rest), rest)


def _append(path: Path, data: bytes) -> None:
    if data:
        fd = open_regular(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        with os.fdopen(fd, "wb", buffering=0) as file:
            file.write(data)


def _write_at(path: Path, at: int, data: bytes) -> None:
    """Append what the file does not have yet. A piece that leaves a gap is refused."""
    fd = open_regular(path, os.O_WRONLY | os.O_CREAT)
    with os.fdopen(fd, "wb", buffering=0) as file:
        size = os.fstat(fd).st_size
        if at > size:
            raise FrameError(f"it leaves out {at - size} bytes of {path.name}")
        data = data[size - at :]
        while data:
            data = data[os.pwrite(fd, data, size) :]
            size = os.fstat(fd).st_size
        file.flush()
