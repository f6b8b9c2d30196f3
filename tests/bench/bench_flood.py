"""A flood in the real TUI: 256 ranks write 100,000 numbered lines a second for half a minute.

    DSTUI_FLOOD_SECONDS=30 python -m pytest tests/bench/bench_flood.py -s

Runs `dstui attach`, then `tail -F`, lnav and toolong (`tl`, or the program in DSTUI_TOOLONG) if installed, each in its own terminal over
its own flood, and measures memory, CPU time, and the delay until the last line is visible. For dstui also the delay of frames, the time of
a key during the flood, the time in which Home counts every line, and whether every rank's last line arrives.
"""

from __future__ import annotations

import os
import re
import select
import shutil
import sys
import time
from bisect import bisect_left
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest

from dstui.tui.run.ticks import POLL
from tests.flood import end, lines_per_rank, running_job, start_flood
from tests.terminal import UNKNOWN, Terminal

RANKS, RATE = 256, 100_000
SECONDS = float(os.environ.get("DSTUI_FLOOD_SECONDS", "30"))
EACH = lines_per_rank(RANKS, RATE, SECONDS)
LAST = f"line {EACH - 1} of rank"
FRAME_GAP = 0.004
"""Seconds without output after which a new frame begins."""
HOME = "\x1b[H"
COUNTED_WITHIN = 4 * SECONDS
"""Seconds after which every line must be counted: each is folded, in slices between keys and frames."""
OTHERS = {"tail -F": ["tail", "-q", "-F", "-n0"], "lnav": ["lnav"], "toolong": [os.environ.get("DSTUI_TOOLONG", "tl")]}


class Watched(Terminal):
    """A terminal that records what was painted when, and only interprets it on request, so that it does not slow down the flood."""

    def __init__(self, argv: list[str]) -> None:
        self.times: list[float] = []
        self.ends: list[int] = []
        self._fed = 0
        super().__init__(argv)

    def pump(self, seconds: float) -> bytes:
        """Read the output that arrives within this many seconds."""
        if not select.select([self.fd], [], [], seconds)[0]:
            return b""
        try:
            data = os.read(self.fd, 1 << 20)
        except OSError:
            return b""
        self.raw += data
        self.times.append(time.time())
        self.ends.append(len(self.raw))
        return data

    def pump_until(self, moment: float) -> None:
        """Read output until a moment."""
        while (left := moment - time.time()) > 0:
            self.pump(min(left, 0.05))

    @property
    def text(self) -> str:
        """The screen, line by line."""
        self._feed(len(self.raw))
        return "\n".join(self.screen.display)

    def _feed(self, end: int) -> None:
        self.stream.feed(UNKNOWN.sub(b"", bytes(self.raw[self._fed : end])))
        self._fed = end

    def painted(self, text: str, since: float, timeout: float = 20.0) -> float:
        """Return when a text was written to the terminal, after a moment."""
        first = bisect_left(self.times, since)
        while True:
            at = self.raw.find(text.encode(), self.ends[first - 1] if first else 0)
            if at >= 0:
                return self.times[bisect_left(self.ends, at + len(text))]
            if time.time() > since + timeout:
                raise AssertionError(f"{text!r} was not painted within {timeout} s:\n{self.text}")
            self.pump(0.05)

    def shown(self, text: str, since: float, timeout: float = 20.0) -> float:
        """Return when a text was on the screen, for programs that only write differences."""
        self.pump_until(since + timeout)
        for number in range(bisect_left(self.times, since), len(self.ends)):
            self._feed(self.ends[number])
            if text in "\n".join(self.screen.display):
                return self.times[number]
        return float("nan")

    def frames(self, since: float, until: float) -> list[float]:
        """Return the seconds from each frame to the next."""
        times = [t for t in self.times if since <= t <= until]
        done = [a for a, b in pairwise(times) if b - a > FRAME_GAP]
        return [b - a for a, b in pairwise(done)]

    def memory(self) -> int:
        """Return the command's peak memory so far, in MiB."""
        found = re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{self.pid}/status").read_text())
        assert found
        return int(found[1]) >> 10


class Cost(NamedTuple):
    """The cost of watching a flood. `behind`: seconds from the last line to its display; `cpu`: of one core."""

    memory: int
    cpu: float
    behind: float

    def __str__(self) -> str:
        return f"{self.memory} MiB, {self.cpu:.0%} of a core, the last line seen after {self.behind:.2f} s"


def watch(terminal: Watched, folder: Path, during: Callable[[], object], seen: Callable[[str, float], float]) -> Cost:
    """Write a flood to the logs of a folder and measure the cost of watching it. `seen` returns when a text was displayed."""
    flood, used = start_flood(folder, RANKS, RATE, SECONDS), terminal.cpu_seconds()
    during()
    while flood.poll() is None:
        terminal.pump(0.05)
    assert flood.stdout is not None
    written = float(flood.stdout.read())
    cpu = (terminal.cpu_seconds() - used) / SECONDS
    memory = terminal.memory()
    return Cost(memory, cpu, max(seen(LAST, written - 0.5) - written, 0.0))


def percentiles(values: list[float]) -> str:
    """Return percentiles in milliseconds."""
    ordered = sorted(values)
    return ", ".join(f"p{p} {1000 * ordered[min(len(ordered) * p // 100, len(ordered) - 1)]:.0f} ms" for p in (50, 99, 100))


def keys(terminal: Watched, until: float) -> list[float]:
    """Return the seconds from each key to the line above the first one on the screen, in the log of rank 0."""
    began = time.time()
    terminal.press("0")
    terminal.painted("Log: rank 0", began)
    terminal.pump_until(time.time() + 0.5)
    terminal.press("\x1b[A")
    terminal.pump_until(time.time() + 0.5)
    found = re.findall(r"line (\d+) of rank 0,", terminal.text)
    top, taken = min(map(int, found)), list[float]()
    while time.time() < until:
        top -= 1
        pressed = time.time()
        terminal.press("\x1b[A")
        taken.append(terminal.painted(f"line {top} of rank 0,", pressed) - pressed)
        terminal.pump_until(time.time() + 0.1 + 0.037 * (top % 7))
    return taken


def show_rank(terminal: Watched, rank: int) -> None:
    """Show the log of a rank at its last line."""
    began = time.time()
    terminal.press("g")
    terminal.painted("Its number", began)
    terminal.press(f"{rank}\r")
    terminal.painted(f"{LAST} {rank},", began)


def test_flood_is_shown_completely_while_the_tui_stays_responsive(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = running_job(tmp_path / "job", RANKS)
    terminal = Watched([sys.executable, "-m", "dstui", "attach", str(folder.path)])
    told = dict[str, list[float]]()

    def look() -> None:
        began = time.time()
        terminal.pump_until(began + 0.4 * SECONDS)
        told["frames"] = terminal.frames(began + 1.0, time.time())
        told["keys"] = keys(terminal, began + 0.8 * SECONDS)
        terminal.press("a")
        terminal.pump_until(time.time() + 0.5)
        terminal.press("f")

    try:
        terminal.wait("Log: all ranks")
        terminal.pump_until(time.time() + 2.0)
        cost = watch(terminal, folder.path, look, terminal.painted)
        with capsys.disabled():
            print(f"\ndstui: {cost}")
            print(f"  from frame to frame {percentiles(told['frames'])} ({len(told['frames'])} frames, one due every {1000 * POLL:.0f} ms)")
            print(f"  from key to painted {percentiles(told['keys'])} ({len(told['keys'])} keys)")
        began = time.time()
        terminal.press(HOME)  # the log was opened again: of the lines before that only some are counted, until someone wants them
        counted = terminal.painted(f" {RANKS * EACH:,} lines", began - 1.0, COUNTED_WITHIN) - began
        with capsys.disabled():
            print(f"  Home: all {RANKS * EACH:,} lines counted after {counted:.1f} s")
        for rank in range(RANKS):
            show_rank(terminal, rank)
        end(folder)
    finally:
        terminal.close()
    late = sorted(max(seconds - POLL, 0.0) for seconds in told["frames"])
    assert late[len(late) * 99 // 100] < 0.05
    assert cost.memory < 250


@pytest.mark.parametrize("name", OTHERS)
def test_other_programs_watch_the_same_flood(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = OTHERS[name]
    if not shutil.which(command[0]):
        pytest.skip(f"{command[0]} is not installed")
    folder = running_job(tmp_path / "job", RANKS)
    logs = [folder.log(rank) for rank in range(RANKS)]
    for log in logs:
        log.write_text("2026-01-01 00:00:00,000 INFO a first line\n")
    terminal = Watched([*command, *map(str, logs)])
    try:
        terminal.pump_until(time.time() + 5.0)
        cost = watch(terminal, folder.path, lambda: None, terminal.painted if name == "tail -F" else terminal.shown)
        with capsys.disabled():
            print(f"\n{name}: {cost}")
    finally:
        terminal.close()
