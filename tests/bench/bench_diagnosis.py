"""Cost of diagnosing large logs, compared to reading their lines in the same run. `python tests/bench/bench_diagnosis.py`."""

from __future__ import annotations

import resource
import tempfile
import time
from pathlib import Path

from dstui.diagnosis import diagnose

SIZE = 100_000_000
SLOWER = 10.0
"""Allowed time as a multiple of reading the lines."""
MEMORY = 150 << 20
STEP = "[2026-03-01 10:00:{0:02},{1:03}] [INFO] [logging.py:107:log_dist] [Rank 0] step={1}, lr=[{2:.3e}], loss={3:.5f}, tokens/s={4}\n"
LAST = '[rank0]: Traceback (most recent call last):\n[rank0]:   File "t.py", line 3, in <module>\n[rank0]: ValueError: the end\n'


def training(path: Path) -> None:
    """Write a log of ordinary steps, with a traceback at its end."""
    with path.open("w") as file:
        written = step = 0
        while written < SIZE:
            written += file.write(STEP.format(step % 60, step, 1e-4 / (step + 1), 2.0 + step % 7 / 10, 9000 + step % 100))
            step += 1
        file.write(LAST)


def reading(path: Path) -> float:
    """Return the CPU seconds for reading all lines."""
    start = time.process_time()
    with path.open("rb") as file:
        lines = sum(1 for _ in file)
    assert lines > 100_000
    return time.process_time() - start


def test_hundred_megabytes_take_seconds_and_little_memory() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log"
        training(path)
        read = min(reading(path) for _ in range(3))
        start = time.process_time()
        found = diagnose([path])
        took = time.process_time() - start
    print(f"100 MB: read in {read:.2f} s, diagnosed in {took:.2f} s ({took / read:.1f} times)")
    assert found.cause == "USER-PY"
    assert took < SLOWER * read
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 < MEMORY


RANKS, A_RANK = 512, 400_000
"""A job of 512 ranks, and bytes of one rank's log: 200 MB, a fiftieth of 10 GB."""
WHOLE, MINUTE, ALL_MEMORY = 10_000_000_000, 60.0, 200 << 20
HANG = "[rank{0}]:[E1203 10:11:12.345 ProcessGroupNCCL.cpp:616] [Rank {0}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=812)\n"


def test_logs_of_512_ranks_take_a_minute_for_ten_gigabytes() -> None:
    with tempfile.TemporaryDirectory() as folder:
        for rank in range(RANKS):
            with (Path(folder) / f"rank{rank}.log").open("w") as file:
                written = step = 0
                while written < A_RANK:
                    written += file.write(STEP.format(step % 60, step, 1e-4 / (step + 1), 2.0 + step % 7 / 10, 9000 + step % 100))
                    step += 1
                file.write(LAST.replace("rank0", "rank317") if rank == 317 else HANG.format(rank))
        start = time.process_time()
        found = diagnose([folder])
        took = time.process_time() - start
    whole = took * WHOLE / (RANKS * A_RANK)
    print(f"512 ranks, {RANKS * A_RANK / 1e6:.0f} MB: {took:.2f} s of CPU time; 10 GB at that rate: {whole:.0f} s")
    assert (found.cause, found.first_failing_rank) == ("USER-PY", 317)
    assert whole < MINUTE
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 < ALL_MEMORY


if __name__ == "__main__":
    test_logs_of_512_ranks_take_a_minute_for_ten_gigabytes()
    test_hundred_megabytes_take_seconds_and_little_memory()
