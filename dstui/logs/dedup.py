"""The lines of several ranks as one list of rows, in the order in which they came; lines that are the same on several ranks are one row.

Within a look at the logs nobody knows the order of different ranks' lines: they are told side by side, in equal shares. A line that several
ranks said waits until all of them have come to it, so that it is one row however their other lines lie between; each rank's own lines
stay in their order, always.
Lines are the same where they differ only in the rank's own number and in a time stamp. A line costs about 1.5 µs.
"""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Sequence
from math import ceil
from typing import NamedTuple

WINDOW = 5.0
"""Seconds after a row in which further ranks may say the same. What is not known to be later may."""
SHARES = 16
"""How many shares a look's lines are told in, at most: more would cost more than they show where hundreds of ranks speak."""
STAMP = re.compile(rb":\d\d:\d\d(?:[.,]\d+)?")
"""Minutes and seconds; a pattern that begins with a letter of its own is looked for ten times as fast."""
NAMED = re.compile(rb"ank[ \t]*[:=#]?[ \t]*(\d+)\b")
"""A rank by its number."""
DEVICE = re.compile(rb"cuda:\d+")
DRAWN_OVER = re.compile(rb"^.*\r(?=[^\r\n]*[^\s\r])|\r+$", re.MULTILINE)
"""What a progress bar shows no longer."""


class Said(NamedTuple):
    """What one log had to say since the last look: its number (a bit in `Rows.said`), its rank, and the lines."""

    log: int
    rank: int | None
    lines: list[bytes]


class Rows:
    """Rows of lines: for each the line itself (the first rank's), whose it is, who said it (a bit for each log), and when it came."""

    def __init__(self, *, fold: bool) -> None:
        self.fold = fold
        self.raw: list[bytes] = []
        self.log: list[int] = []
        self.said: list[int] = []
        self.time: list[float] = []
        self.lines = 0
        """How many lines the rows stand for."""
        self._latest: dict[bytes, int] = {}
        self._last: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self.raw)

    def add(self, time: float, said: Sequence[Said]) -> None:
        """What came since the last look, seen at `time`."""
        self.lines += sum(len(lines) for _, _, lines in said)
        if self.fold:
            voices = _voices(said, self._last)
            _Look(self, time, voices, self._latest).merge()
            self._last |= {log: voice.last for voice in voices for log in voice.logs}
            return
        for log, _, lines in said:
            self.raw += lines
            self.log += [log] * len(lines)
            self.said += [1 << log] * len(lines)
            self.time += [time] * len(lines)


class _Voice:
    """Logs that say the very same, as one."""

    def __init__(self, logs: list[int], lines: list[bytes], keys: list[bytes], last: int) -> None:
        self.logs, self.lines, self.keys, self.last = logs, lines, keys, last
        self.at = 0
        self.waits = False
        self.said = sum(1 << log for log in logs)


class _Look:
    """One look's lines on their way into the rows."""

    def __init__(self, rows: Rows, time: float, voices: list[_Voice], latest: dict[bytes, int]) -> None:
        self.rows, self.time, self.voices, self.latest = rows, time, voices, latest
        self.left = Counter[bytes]()
        """How often each line is still to come."""
        for voice in voices:
            self.left.update(voice.keys)
        self.waiting: dict[bytes, list[_Voice]] = {}
        """Those who have come to a line that others have still before them."""
        self.ready: deque[bytes] = deque()
        """Lines to which everybody has come who has them."""
        self.share = 1.0
        """How much of its lines everybody may tell so far."""

    def merge(self) -> None:
        """All of them, each rank's in its order."""
        shares = min(max((len(voice.keys) for voice in self.voices), default=0), SHARES)
        for share in range(1, shares + 1):
            self.share = share / shares
            for voice in self.voices:
                if not voice.waits:
                    self._advance(voice)
            while self.ready:
                self._tell(self.ready.popleft())
        for voice in self.voices:
            while voice.at < len(voice.keys):
                self._tell(self.ready.popleft() if self.ready else voice.keys[voice.at])

    def _advance(self, voice: _Voice) -> None:
        """Over the lines that nobody else has still to say, or that join a row that is there."""
        rows, left, waiting, latest = self.rows, self.left, self.waiting, self.latest
        keys, at, last, since = voice.keys, voice.at, voice.last, self.time - WINDOW
        end = ceil(len(keys) * self.share)
        while at < end:
            key = keys[at]
            number = latest.get(key, -1)
            if number > last and not rows.time[number] < since:
                rows.said[number] |= voice.said
                last = number
            elif left[key] == 1:
                last = self._row(voice, at)
            else:
                there = waiting.setdefault(key, [])
                there.append(voice)
                voice.waits = True
                if len(there) == left[key]:
                    self.ready.append(key)
                break
            at += 1
            left[key] -= 1
            if key in waiting and len(waiting[key]) == left[key]:
                self.ready.append(key)
        voice.at, voice.last = at, last

    def _tell(self, key: bytes) -> None:
        """A line that those who have come to it say together."""
        voices = self.waiting.pop(key, ())
        if voices:
            first = min(voices, key=lambda voice: voice.logs[0])
            number = self._row(first, first.at)
            self.left[key] -= len(voices)
        for voice in voices:
            self.rows.said[number] |= voice.said
            voice.last = number
            voice.at += 1
            voice.waits = False
        for voice in voices:
            self._advance(voice)

    def _row(self, voice: _Voice, at: int) -> int:
        rows = self.rows
        rows.raw.append(voice.lines[at])
        rows.log.append(voice.logs[0])
        rows.said.append(voice.said)
        rows.time.append(self.time)
        number = self.latest[voice.keys[at]] = len(rows.raw) - 1
        return number


def _voices(said: Sequence[Said], last: dict[int, int]) -> list[_Voice]:
    """Who says what: those who say the very same together. `last`: the last row of each log."""
    texts: dict[bytes, list[Said]] = {}
    for each in said:
        if each.lines:
            texts.setdefault(key_of(b"\n".join(each.lines), each.rank), []).append(each)
    return [
        _Voice([each.log for each in same], same[0].lines, text.split(b"\n"), max(last.get(each.log, -1) for each in same))
        for text, same in texts.items()
    ]


def key_of(text: bytes, rank: int | None) -> bytes:
    """What has to be the same in lines that are one row."""
    if b"\r" in text:
        text = DRAWN_OVER.sub(b"", text)
    if b":" in text:
        text = STAMP.sub(b"", text)
    if b"cuda:" in text:
        text = DEVICE.sub(b"", text)
    if rank is None:
        return text
    if b"ank" in text:
        own = b"%d" % rank
        text = NAMED.sub(lambda found: b"" if found[1] == own else found[0], text)
    for name in (b"\n%d:" % rank, b"\n[%d]" % rank):  # as mpirun and srun label lines
        if name[1:] in text:
            text = (b"\n" + text).replace(name, b"\n")[1:]
    return text
