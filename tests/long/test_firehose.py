"""Floods of numbered lines: all lines are read and shown in order, whatever the number of ranks.

Through real shims up to 64 ranks; from one writer of many files up to 1,024.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from dstui.jobs.rank import shim
from dstui.jobs.store.events import Event, Exited, Line
from dstui.jobs.store.folder import JobFolder
from dstui.jobs.watch.follow import Follower
from dstui.logs.log_file import LogFile
from tests.flood import LineCounts, count_lines, end, lines_per_rank, running_job, start_flood

WRITER = "import sys\nfor number in range(int(sys.argv[1])):\n    print(f'line {number} of a flood that goes on and on', flush=True)\n"
MEMORY = 250 << 20


def stored(folder: JobFolder, rank: int) -> int:
    log = LogFile(folder.log(rank))
    log.poll()
    try:
        return len(log.read(0, log.ended))
    finally:
        log.close()


def test_real_shims_of_64_ranks_lose_no_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ranks, lines = 64, 20_000
    folder = running_job(tmp_path / "job", ranks)
    script = tmp_path / "flood.py"
    script.write_text(WRITER)
    words = [sys.executable, shim.__file__, str(folder.path), "tag", str(script), str(lines)]
    shims = [subprocess.Popen(words, env={**os.environ, "RANK": str(rank), "WORLD_SIZE": str(ranks)}) for rank in range(ranks)]
    check(folder, lambda: all(process.poll() is not None for process in shims), ranks, lines, capsys)
    assert [process.wait() for process in shims] == [0] * ranks


@pytest.mark.parametrize("ranks", [64, 256, 1024])
def test_one_writer_of_many_files_loses_no_line(tmp_path: Path, ranks: int, capsys: pytest.CaptureFixture[str]) -> None:
    folder = running_job(tmp_path / "job", ranks)
    flood = start_flood(folder.path, ranks, 100_000, 10.0)
    check(folder, lambda: flood.poll() is not None, ranks, lines_per_rank(ranks, 100_000, 10.0), capsys)
    flood.communicate()


def check(folder: JobFolder, over: Callable[[], bool], ranks: int, lines: int, capsys: pytest.CaptureFixture[str]) -> None:
    """Assert that written, stored, reported and shown lines are the same."""
    began = time.monotonic()
    told, seen, longest = look(folder, over)
    seconds = time.monotonic() - began
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    every = ranks * lines
    with capsys.disabled():
        print(
            f"\n{ranks} ranks: {every:,} lines in {seconds:.1f} s ({every / seconds:,.0f}/s), longest look {longest} ms, {memory >> 20} MiB"
        )
    assert {rank: stored(folder, rank) for rank in range(ranks)} == dict.fromkeys(range(ranks), lines)
    assert told.of == dict.fromkeys(range(ranks), lines)
    assert seen.of == dict.fromkeys(range(ranks), lines)
    assert memory < MEMORY


def look(folder: JobFolder, over: Callable[[], bool]) -> tuple[LineCounts, LineCounts, int]:
    """Follow to the end; return what is reported and shown of each rank, and the longest poll in milliseconds."""
    from dstui.logs.log_filter import Filter

    follower, view = Follower(folder), Filter().open(folder, {})
    told, longest, running = LineCounts(), 0.0, True
    events: list[Event] = []
    while not (events and isinstance(events[-1], Exited)):
        if running and over():
            running = False
            view.timeline.find()
            end(folder)
        began = time.perf_counter()
        events = follower.poll()
        view.poll()
        longest = max(longest, time.perf_counter() - began)
        for event in events:
            if isinstance(event, Line) and event.rank is not None:
                told.note(event.rank, event.text)
    follower.close()
    return told, count_lines(view), round(1000 * longest)
