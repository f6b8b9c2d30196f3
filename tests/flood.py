"""A flood of log lines: one process writes numbered lines to the logs of many ranks at a constant rate.

    python tests/flood.py LOGS RANKS LINES_PER_SECOND SECONDS

The process prints the time of its last line.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import IO

from dstui.jobs.store.folder import JobFolder
from dstui.jobs.store.status import initial
from dstui.logs.log_rows import LogRows

TICK = 0.1
"""Seconds in which every rank writes once."""
GROUPS = 10
"""Groups of ranks that write one after another within a tick."""
LINE = b"2026-01-01 %s,%03d INFO line %d of rank %d, one of a flood that goes on\n"
STEP = b"2026-01-01 %s,%03d INFO line %d of rank %d, step=%d loss: 1.25 lr: 1e-4\n"


def running_job(path: Path, ranks: int) -> JobFolder:
    """Create the folder of a running job and hold its lock."""
    from tests.job_json import write_status_json  # this file is also run as a program
    from tests.owned import add_to_index

    folder = add_to_index(JobFolder(path), "tag")
    folder.prepare(1)
    assert folder.lock() is not None
    status = initial("tag", dict.fromkeys(range(ranks), "here"), None).as_json()
    for facts in status["ranks"].values():
        facts["state"] = "started"
    write_status_json(folder, {**status, "state": "running"})
    return folder


def end(folder: JobFolder) -> None:
    """Mark the job and all its ranks as ended with exit code 0."""
    from tests.job_json import status_json, write_status_json

    status = status_json(folder)
    for facts in status["ranks"].values():
        facts |= {"state": "ended", "exit_code": 0}
    write_status_json(folder, {**status, "state": "succeeded", "exit_code": 0})


def start_flood(folder: Path, ranks: int, rate: int, seconds: float) -> subprocess.Popen[str]:
    """Start a process that writes the flood to the logs of a job folder."""
    words = [sys.executable, __file__, str(folder / "logs"), str(ranks), str(rate), str(seconds)]
    return subprocess.Popen(words, stdout=subprocess.PIPE, text=True)


class LineCounts:
    """The number of lines seen of each rank; they must arrive in order and none may be missing."""

    def __init__(self) -> None:
        self.of: dict[int, int] = {}

    def note(self, rank: int, text: str) -> None:
        """Count the next line of a rank."""
        found, expected = re.search(r"line (\d+) of ", text), self.of.get(rank, 0)
        assert found and int(found[1]) == expected, f"rank {rank}: {text!r} instead of line {expected}"
        self.of[rank] = expected + 1


def count_lines(view: LogRows) -> LineCounts:
    """Return the line counts of the log on the screen. A row that stands for several ranks counts for each."""
    view.wanted = 1 << 30
    while view.poll(ended=True) or not view.complete:
        pass
    numbers = LineCounts()
    for row in range(view.first, view.end):
        for rank in view.ranks_of(row):
            numbers.note(rank, view.line(row).text)
    view.timeline.close()
    return numbers


def lines_per_rank(ranks: int, rate: int, seconds: float) -> int:
    """Return how many lines each rank writes in total."""
    return round(seconds / TICK) * max(round(rate * TICK / ranks), 1)


def write_flood(logs: Path, ranks: int, rate: int, seconds: float) -> None:
    """Write the flood."""
    batch, ticks = max(round(rate * TICK / ranks), 1), round(seconds / TICK)
    with ExitStack() as stack:
        files = [stack.enter_context((logs / f"rank_{rank}.log").open("ab", buffering=0)) for rank in range(ranks)]
        began = time.monotonic()
        for tick in range(ticks):
            for group in range(GROUPS):
                write(files, range(group, ranks, GROUPS), range(tick * batch, (tick + 1) * batch))
                time.sleep(max(0.0, began + (tick + (group + 1) / GROUPS) * TICK - time.monotonic()))


def write(files: list[IO[bytes]], ranks: range, numbers: range) -> None:
    """Write the next lines of some ranks, each batch in two pieces, so that a reader also meets incomplete lines."""
    now = time.time()
    stamp, thousandth = time.strftime("%H:%M:%S", time.gmtime(now)).encode(), int(now * 1000) % 1000
    for rank in ranks:
        lines = [
            STEP % (stamp, thousandth, number, rank, number // 50) if number % 50 == 49 else LINE % (stamp, thousandth, number, rank)
            for number in numbers
        ]
        text = b"".join(lines)
        files[rank].write(text[: len(text) // 2])
        files[rank].write(text[len(text) // 2 :])


def main() -> None:
    """Run as a separate process."""
    import resource

    logs, ranks, rate, seconds = sys.argv[1:]
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    write_flood(Path(logs), int(ranks), int(rate), float(seconds))
    print(time.time())


if __name__ == "__main__":
    main()
