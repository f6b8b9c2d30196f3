"""`dstui machine --watch`: the load of this machine without a job: its GPUs, and CPU and RAM; redrawn in place, or a line each time."""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from dstui.base.dataclass import dataclass
from dstui.base.output import Ink, coloured, draws_unicode, flush, tell, wants_lines, width
from dstui.machine.codec import known
from dstui.machine.live import Live
from dstui.machine.report import format_size

if TYPE_CHECKING:
    from dstui.machine.live import GpuState

BARS = "▁▂▃▄▅▆▇█"
CELLS = 30
"""Samples that the line of bars shows."""


@dataclass(frozen=True, slots=True)
class Load:
    """The load of one GPU now, or of CPU and RAM of this machine. None means unknown."""

    name: str
    percent: float | None = None
    used: int | None = None
    capacity: int | None = None
    celsius: float | None = None
    watts: float | None = None
    slowed: tuple[str, ...] = ()

    def __str__(self) -> str:
        facts = [self.name, f"{self.percent:3.0f} %" if self.percent is not None else "load n/a"]
        facts += [f"{format_size(self.used)} of {format_size(self.capacity)}"] if self.used is not None and self.capacity else []
        facts += [f"{self.celsius:.0f} C"] if self.celsius is not None else []
        facts += [f"{self.watts:.0f} W"] if self.watts is not None else []
        facts += [f"slowed: {', '.join(self.slowed)}"] if self.slowed else []
        return "  ".join(facts)


def watch(interval: float, *, as_json: bool) -> int:
    """Show the load every so many seconds, until it is interrupted or the reader goes."""
    drawn, history = 0, dict[str, deque[float]]()
    in_place = not as_json and coloured() and not wants_lines()
    with Live(interval) as live:
        for loads, note in _samples(live, interval):
            if as_json:
                told = {"t": round(time.time(), 1), "gpus_unknown": note or None, "loads": [asdict(load) for load in loads]}
                tell(json.dumps(told))
            elif in_place:
                for load in loads:
                    history.setdefault(load.name, deque(maxlen=CELLS)).append(load.percent or 0.0)
                drawn = _redraw([*(f"{_bars(history[load.name])}  {load}" for load in loads), *([note] if note else [])], drawn)
            else:
                tell(f"{time.strftime('%H:%M:%S')}  ", " | ".join([*map(str, loads), *([note] if note else [])]))
            flush()
    return 0


def _samples(live: Live, interval: float) -> Iterator[tuple[list[Load], str]]:
    """Yield the load at each interval, and why there is nothing of GPUs."""
    import psutil

    states: dict[int, GpuState] = {}
    psutil.cpu_percent(None)  # since when the next one counts
    while True:
        time.sleep(interval)
        states = live.poll() or states
        problem = live.problem
        why = problem.reason if problem is not None else "" if states else "NVML has not answered yet"
        memory = psutil.virtual_memory()
        here = Load("CPU and RAM", psutil.cpu_percent(None), memory.total - memory.available, memory.total)
        yield [*(_gpu_load(state) for _, state in sorted(states.items()) if not why), here], why and f"GPUs n/a: {why}"


def _gpu_load(state: GpuState) -> Load:
    return Load(
        f"GPU {state.index}",
        known(state.utilization, None),
        known(state.memory_used, None),
        known(state.memory_total, None),
        known(state.temperature, None),
        known(state.power, None),
        tuple(known(state.throttle, ())),
    )


def _bars(percents: Sequence[float]) -> str:
    """Return the last samples as bars of 0 to 100 %; "" where the terminal draws none."""
    if not draws_unicode():
        return ""
    return "".join(BARS[min(max(round(percent / 100 * 7), 0), 7)] for percent in percents).rjust(CELLS)


def _redraw(lines: Sequence[str], before: int) -> int:
    """Draw lines over those of the time before; return how many there are."""
    tell(Ink(f"\x1b[{before}F\x1b[J" if before else ""), end="")
    room = (width() or 80) - 1
    for line in lines:
        tell(line[:room])
    return len(lines)
