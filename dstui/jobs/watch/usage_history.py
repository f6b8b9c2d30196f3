"""Keep what each rank of a job used in the last minutes, stored in the job folder by its supervisor for sessions that attach later.

One line per sample in a file of bounded size: when it is full, its older half is dropped. The file is not trusted, so every value is
checked before it is shown.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import takewhile
from math import inf, isnan, nan
from pathlib import Path
from typing import Any, NamedTuple

from dstui.base.regular_files import append_regular, read_regular, replace_regular
from dstui.base.text import sanitise
from dstui.jobs.store.record_forms import is_number, rank_number
from dstui.jobs.watch.usage import Usage

USAGE_HISTORY = "usage.jsonl"
EVERY = 5.0
"""Seconds between two samples of the supervisor."""
SHOWN = 300.0
"""Seconds of history that are displayed."""
LARGEST = 1 << 20
"""Bytes of the file: an hour of 8 ranks, eight minutes of 64."""
OFTEN_ENOUGH = 128 << 10
"""Bytes at the end that usually hold the last minutes of a few ranks."""
LONGEST_WORD, MAX_WORDS, LONGEST_NOTE, MAX_DEVICES = 40, 8, 200, 1 << 16
"""Limits on values from the file, which is not trusted."""


class Sample(NamedTuple):
    """The usage of a rank at one time. None means unknown."""

    t: float
    kind: str
    load: float | None = None
    memory: float | None = None
    capacity: float | None = None
    temperature: float | None = None
    power: float | None = None
    device: int | None = None
    throttle: tuple[str, ...] = ()
    """Reasons for which the GPU's clocks were lowered."""


class History(NamedTuple):
    """The samples of the last minutes by rank and in order, and why some are missing."""

    samples: Mapping[int, list[Sample]] = {}
    note: str = ""


NUMBERS = ("load", "memory", "capacity", "temperature", "power")


class UsageHistory:
    """Writes the file, for the supervisor."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / USAGE_HISTORY

    def add(self, t: float, usages: Mapping[int, Usage], note: str) -> None:
        """Append a sample of every rank. On a full disk it is lost, and the job continues."""
        if not usages and not note:
            return
        ranks = {str(rank): _packed(usage) for rank, usage in usages.items() if not usage.why}
        line = json.dumps({"t": round(t, 1), "ranks": ranks, **({"note": note} if note else {})}, separators=(",", ":")) + "\n"
        with suppress(OSError):
            append_regular(self._path, line.encode())
            if self._path.stat().st_size > LARGEST:
                replace_regular(self._path, b"".join(kept + b"\n" for kept in _tail(self._path, LARGEST // 2)))


def _packed(usage: Usage) -> list[Any]:
    return [usage.kind, *(getattr(usage, name) for name in NUMBERS), usage.device, list(usage.throttle)]


def read_history(folder: Path) -> History:
    """Read the last minutes of the file; empty if there is none. Invalid values are left out."""
    found = History()
    with suppress(OSError):
        for most in (OFTEN_ENOUGH, LARGEST):
            found, reached = _collected(_tail(folder / USAGE_HISTORY, most), SHOWN)
            if reached or (folder / USAGE_HISTORY).stat().st_size <= most:
                break
    return found


def read_later(folder: Path, after: float) -> Iterator[History]:
    """Yield the samples of the whole file that are later than `after`, in order, one look of the supervisor at a time.

    All of them at once would take many times the memory of the file.
    """
    lines: list[bytes] = []
    with suppress(OSError):
        lines = _tail(folder / USAGE_HISTORY, LARGEST)
    later = [*takewhile(lambda line: _look(line).get("t", inf) > after, reversed(lines))]
    return (_collected([line], SHOWN)[0] for line in reversed(later))


def _tail(path: Path, most: int) -> list[bytes]:
    """Return the complete lines among the last bytes."""
    start = max(path.stat().st_size - most, 0)
    lines = read_regular(path, start, most).split(b"\n")
    return lines[start > 0 : -1]


def _look(line: bytes) -> dict[str, Any]:
    with suppress(ValueError, RecursionError):
        found = json.loads(line)
        if isinstance(found, dict) and isinstance(found.get("ranks"), dict) and is_number(found.get("t")):
            return found
    return {}


def _collected(lines: list[bytes], seconds: float) -> tuple[History, bool]:
    """Return the samples of the last lines, and whether earlier lines than are wanted were reached: those are not parsed."""
    samples: dict[int, list[Sample]] = {}
    note, since, reached = None, nan, False
    for look in filter(None, map(_look, reversed(lines))):
        if isnan(since):
            note, since = look.get("note"), look["t"] - seconds
        if reached := look["t"] < since:
            break
        for rank, packed in look["ranks"].items():
            if (number := rank_number(rank)) is not None and (sample := _sample(look["t"], packed)) is not None:
                samples.setdefault(number, []).append(sample)
    in_order = {rank: samples[rank][::-1] for rank in sorted(samples)}
    return History(in_order, sanitise(note)[:LONGEST_NOTE] if isinstance(note, str) else ""), reached


def _sample(t: float, packed: Any) -> Sample | None:
    if not isinstance(packed, list) or len(packed) != len(NUMBERS) + 3 or packed[0] not in ("GPU", "CPU"):
        return None
    *numbers, device, throttle = packed[1:]
    load, memory, capacity, temperature, power = (value if is_number(value) else None for value in numbers)
    number = device if type(device) is int and 0 <= device < MAX_DEVICES else None
    words = [word for word in throttle[:MAX_WORDS] if isinstance(word, str)] if isinstance(throttle, list) else []
    why = tuple(sanitise(word)[:LONGEST_WORD] for word in words)
    return Sample(t, packed[0], load, memory, capacity, temperature, power, number, why)
