"""Run dstui and record callbacks that block the UI thread: `python tests/watchdog.py REPORT WORDS…`.

Each line of REPORT is one callback of the event loop that took longer than NOTED: seconds, CPU seconds of the thread, and the innermost
lines of sampled stacks with their counts.
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

NOTED = 0.03
"""Callbacks that take longer than this many seconds are recorded."""
EVERY = 0.004
"""Seconds between two samples of a running callback's stack."""
DEEP = 6
"""Innermost stack lines that are recorded."""


class Block(NamedTuple):
    """One slow callback."""

    at: float
    """Seconds since the start."""
    seconds: float
    cpu: float
    where: list[str]


def read_blocks(report: Path) -> list[Block]:
    """Return the blocks in a report."""
    return [Block(**json.loads(line)) for line in report.read_text().splitlines()]


class Watchdog:
    """Times every callback of this thread's event loop; another thread samples the stacks of slow ones."""

    def __init__(self, report: Path) -> None:
        self._report = report.open("a")
        self._main, self._began, self._start = threading.get_ident(), 0.0, time.perf_counter()
        self._seen: Counter[str] = Counter()
        threading.Thread(target=self._look, daemon=True).start()

    def watch(self) -> None:
        """Time each callback from now on."""
        run = asyncio.Handle._run

        def timed(handle: Any) -> None:
            if threading.get_ident() != self._main:
                return run(handle)
            self._seen = Counter()
            cpu, self._began = time.thread_time(), time.perf_counter()
            try:
                return run(handle)
            finally:
                seconds, self._began = time.perf_counter() - self._began, 0.0
                if seconds > NOTED:
                    self._note(seconds, time.thread_time() - cpu)

        # Private: asyncio's debug mode only measures wall time of slow callbacks, and slows down each of them.
        asyncio.Handle._run = timed  # type: ignore[method-assign]

    def _note(self, seconds: float, cpu: float) -> None:
        where = [f"{count}x {stack}" for stack, count in self._seen.most_common(4)]
        block = Block(time.perf_counter() - self._start, seconds, cpu, where)
        self._report.write(json.dumps(block._asdict()) + "\n")
        self._report.flush()

    def _look(self) -> None:
        while True:
            time.sleep(EVERY)
            began = self._began
            if began and time.perf_counter() - began > NOTED / 3 and (frame := sys._current_frames().get(self._main)):
                self._seen[_stack(frame)] += 1


def _stack(frame: FrameType | None) -> str:
    lines: list[str] = []
    while frame is not None and len(lines) < DEEP:
        file = Path(frame.f_code.co_filename)
        if frame.f_code.co_name != "timed" and "importlib" not in file.name:
            lines.append(f"{file.parent.name}/{file.name}:{frame.f_lineno} {frame.f_code.co_name}")
        frame = frame.f_back
    return " < ".join(lines)


def main() -> int:
    """Run dstui under the watchdog."""
    report, *words = sys.argv[1:]
    sys.path.remove(str(Path(__file__).parent))
    Watchdog(Path(report)).watch()
    from dstui.cli import main as dstui

    with suppress(SystemExit):
        return dstui(words)
    return 0


if __name__ == "__main__":
    sys.exit(main())
