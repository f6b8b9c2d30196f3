"""Floods of numbered lines: as many are told as were written, in their order, whatever the number of ranks.

Through real shims up to 64 ranks; from one writer of many files up to 1,024.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from dstui.run import shim
from dstui.run.events import Exited, Line
from dstui.run.folder import JobFolder
from dstui.run.follow import Follower
from dstui.run.logfile import LogFile
from dstui.run.status import initial

WRITER = "import sys\nfor number in range(int(sys.argv[1])):\n    print(f'line {number} of a flood that goes on and on', flush=True)\n"
MEMORY = 250 << 20


def job(path: Path, ranks: int) -> JobFolder:
    """A job that runs, as far as its folder says; somebody holds its lock."""
    folder = JobFolder(path)
    folder.prepare(1)
    assert folder.lock() is not None
    status = initial("tag", dict.fromkeys(range(ranks), "here"), None)
    for facts in status["ranks"].values():
        facts["state"] = "started"
    folder.write_status({**status, "state": "running"})
    return folder


def end(folder: JobFolder) -> None:
    status = folder.read_status()
    for facts in status["ranks"].values():
        facts |= {"state": "ended", "exit_code": 0}
    folder.write_status({**status, "state": "succeeded", "exit_code": 0})


def told(folder: JobFolder, flood: threading.Thread) -> tuple[dict[int, int], int]:
    """Follow to the end: how many lines of each rank came, each in its turn; and the longest poll in milliseconds."""
    follower, counts, longest = Follower(folder), dict[int, int](), 0.0
    while True:
        if not flood.is_alive() and folder.read_status()["state"] == "running":
            end(folder)
        began = time.perf_counter()
        events = follower.poll()
        longest = max(longest, time.perf_counter() - began)
        for event in events:
            if isinstance(event, Line) and event.rank is not None:
                expected = counts.get(event.rank, 0)
                assert event.text.startswith(f"line {expected} "), f"rank {event.rank}: {event.text} instead of {expected}"
                counts[event.rank] = expected + 1
        if events and isinstance(events[-1], Exited):
            follower.close()
            return counts, round(1000 * longest)


def stored(folder: JobFolder, rank: int) -> int:
    log = LogFile(folder.log(rank))
    log.poll()
    try:
        return len(log.read(0, log.ended))
    finally:
        log.close()


def test_64_real_shims_lose_no_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ranks, lines = 64, 20_000
    folder = job(tmp_path / "job", ranks)
    script = tmp_path / "flood.py"
    script.write_text(WRITER)

    def flood() -> None:
        words = [sys.executable, shim.__file__, str(folder.path), "tag", str(script), str(lines)]
        shims = [subprocess.Popen(words, env={**os.environ, "RANK": str(rank), "WORLD_SIZE": str(ranks)}) for rank in range(ranks)]
        assert [process.wait() for process in shims] == [0] * ranks

    check(folder, flood, ranks, lines, capsys)


@pytest.mark.parametrize("ranks", [64, 256, 1024])
def test_one_writer_of_many_files_loses_no_line(tmp_path: Path, ranks: int, capsys: pytest.CaptureFixture[str]) -> None:
    lines, batch = 1_000_000 // ranks, 50
    folder = job(tmp_path / "job", ranks)

    def flood() -> None:
        began = time.monotonic()
        for first in range(0, lines, batch):
            numbers = range(first, min(first + batch, lines))
            text = b"".join(b"line %d of a flood that goes on and on\n" % number for number in numbers)
            for rank in range(ranks):
                with folder.log(rank).open("ab", buffering=0) as log:
                    log.write(text[: len(text) // 2])  # a line is not written in one piece
                    log.write(text[len(text) // 2 :])
            time.sleep(max(0.0, began + (numbers.stop * ranks) / 100_000 - time.monotonic()))  # 100,000 lines a second in all

    check(folder, flood, ranks, lines, capsys)


def check(folder: JobFolder, flood: object, ranks: int, lines: int, capsys: pytest.CaptureFixture[str]) -> None:
    """Written, told and stored are the same."""
    thread = threading.Thread(target=flood)  # type: ignore[arg-type]
    began = time.monotonic()
    thread.start()
    counts, longest = told(folder, thread)
    seconds = time.monotonic() - began
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    with capsys.disabled():
        rate = ranks * lines / seconds
        print(f"\n{ranks} ranks: {ranks * lines:,} lines in {seconds:.1f} s ({rate:,.0f}/s), longest poll {longest} ms, {memory >> 20} MiB")
    assert counts == dict.fromkeys(range(ranks), lines)
    assert {stored(folder, rank) for rank in range(ranks)} == {lines}
    assert memory < MEMORY
