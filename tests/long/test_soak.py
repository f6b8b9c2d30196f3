"""Eight hours of a job with 64 ranks in a few minutes: the memory of the TUI stays flat, and a job that has ended costs no CPU time.

    DSTUI_SOAK_SECONDS=120 python -m pytest -n0 -s tests/long/test_soak.py

One process writes what the ranks and the supervisor write in eight hours, at an accelerated clock: a line with numbers per rank every ten
seconds, a warning now and then, and the history of usage. The TUI watches in its own terminal and is used all the time.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import cycle
from pathlib import Path

from dstui.jobs.store.folder import JobFolder
from dstui.jobs.watch.usage import Usage
from dstui.jobs.watch.usage_history import UsageHistory
from tests.flood import end, running_job
from tests.terminal import Terminal
from tests.waiting import PATIENCE

RANKS, HOURS = 64, 8
SECONDS = float(os.environ.get("DSTUI_SOAK_SECONDS", "120"))
LINE_EVERY, USAGE_EVERY = 10, 30
"""Simulated seconds between two lines of a rank, and between two samples of its usage."""
WARM, GROWTH = 4, 4
"""Simulated hours until the caches are full (40,000 lines of the log's rows, the metrics, numpy), and MiB of growth from then on.

What is in use stays the same from then on; the rest are free pools of Python's allocator that it cannot return.
"""
IDLE_CPU, WAKEUPS = 0.003, 3
"""The most of a core that an ended job may take, and how often threads may be woken per second."""
KEYS = ("a", "u", "v", "\x1b[5~", "\x1b[F", "D", "D", "1", "a", "e", "\x1b[F", "&loss\r", "\x1b", "/step 9\r", "\x1b", "m", "\x1b")


def write_hours(folder: Path, ranks: int, hours: float, seconds: float) -> None:
    """Write what the ranks write in so many hours within so many seconds."""
    usage, began, total = UsageHistory(folder), time.monotonic(), int(hours * 3600)
    start = time.time() - total
    with ExitStack() as stack:
        logs = [stack.enter_context((folder / "logs" / f"rank_{rank}.log").open("ab", buffering=0)) for rank in range(ranks)]
        for at in range(0, total, LINE_EVERY):
            stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(start + at))
            step = at // LINE_EVERY
            for rank, log in enumerate(logs):
                text = f"{stamp},000 INFO step={step} loss: {5 / (step + 1) + rank / 1000:.4f} lr: 1e-4 grad_norm: {1 + rank / 64:.3f}\n"
                warning = f"{stamp},500 WARNING rank {rank}: a slow loader\n" if (step + rank) % 120 == 0 else ""
                log.write((text + warning).encode())
            if at % USAGE_EVERY == 0:
                usage.add(start + at, {rank: Usage("CPU", load=50.0 + at % 50, memory=2 << 30) for rank in range(ranks)}, "")
            time.sleep(max(0.0, began + at / total * seconds - time.monotonic()))


def memory(terminal: Terminal) -> int:
    """Return the resident memory of the command, in MiB."""
    found = re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{terminal.pid}/status").read_text())
    assert found
    return int(found[1]) >> 10


def watch(terminal: Terminal, keys: Iterator[str], until: float) -> None:
    """Use the session until a moment."""
    while (left := until - time.monotonic()) > 0:
        terminal.press(next(keys))
        quiet = time.monotonic() + min(left, 0.5)
        while (rest := quiet - time.monotonic()) > 0:
            terminal.pump(rest)
        terminal.raw.clear()


def cost_of_an_ended_job(folder: JobFolder, terminal: Terminal) -> tuple[float, float]:
    """End the job; return the part of a core that the session then takes, and how often its threads are woken per second."""
    end(folder)
    for key in "\x1b", "\x1b", "9":  # close what is open, which leads to a form if nothing is; back to the run
        terminal.press(key)
        terminal.settle(1.0, timeout=3.0)
    terminal.wait("succeeded", f"step {HOURS * 3600 // LINE_EVERY - 1:,}", timeout=2 * SECONDS + PATIENCE)  # every line was read
    terminal.settle(3.0, timeout=10.0)
    before, woken, began = terminal.cpu_seconds(), terminal.wakeups(), time.monotonic()
    terminal.settle(10.0, timeout=10.0)
    took = time.monotonic() - began
    return (terminal.cpu_seconds() - before) / took, (terminal.wakeups() - woken) / took


def test_eight_hours_of_64_ranks_leave_the_memory_flat(tmp_path: Path) -> None:
    folder = running_job(tmp_path / "job", RANKS)
    writer = subprocess.Popen([sys.executable, "-m", "tests.long.test_soak", str(folder.path), str(RANKS), str(HOURS), str(SECONDS)])
    terminal = Terminal([sys.executable, "-m", "dstui", "attach", str(folder.path)], columns=200, rows=50)
    keys, sizes = cycle(KEYS), []
    try:
        terminal.wait("running", "loss")
        began = time.monotonic()
        for hour in range(1, HOURS + 1):
            watch(terminal, keys, began + hour * SECONDS / HOURS)
            sizes.append(memory(terminal))
            print(f"hour {hour}: {sizes[-1]} MiB, {terminal.cpu_seconds():.1f} s of CPU time", flush=True)
        assert writer.wait(timeout=SECONDS) == 0
        idle, woken = cost_of_an_ended_job(folder, terminal)
        print(f"ended: {idle:.2%} of a core, threads woken {woken:.1f} times a second")
    finally:
        writer.kill()
        terminal.close()
    assert sizes[-1] - sizes[WARM - 1] <= GROWTH
    assert idle <= IDLE_CPU and woken <= WAKEUPS


if __name__ == "__main__":
    write_hours(Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), float(sys.argv[4]))
