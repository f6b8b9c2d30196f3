"""Cost of a table of 2,000 ended runs, compared to reading their records: the first time, and later. `python tests/bench/bench_runs.py`."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

from dstui.jobs.store.index import runs
from dstui.runs.columns import USUAL, column
from dstui.runs.find import find_runs
from dstui.runs.kept import Kept
from dstui.runs.run import link
from dstui.runs.table import cells, lines, ordered
from tests.jobs.made import make_job

COUNT = 2000
LIMIT = 4.0
"""Allowed time of the table as a multiple of reading the records,"""
FIRST_LIMIT = 30.0
"""and the first time, when each Plan and the end of a log of each run are read."""


def listed() -> int:
    """Create the whole table and return its number of runs."""
    kept = Kept()
    found = find_runs(kept)
    link(found)
    columns = [column(name) for name in USUAL]
    made_of = lines(cells(ordered(found, column("loss")), columns), columns, 120)
    kept.save()
    return len(made_of) - 1


def test_listing_2000_runs_takes_about_a_second() -> None:
    log = {rank: "".join(f"step {n}/100 loss {n} 1234 tokens/s\n" for n in range(100)) for rank in (0, 1)}
    with tempfile.TemporaryDirectory() as place:
        os.environ |= {"XDG_CACHE_HOME": f"{place}/cache", "XDG_STATE_HOME": f"{place}/state"}
        os.chdir(place)
        for number in range(COUNT):
            make_job(Path(place) / "dstui_runs" / f"tiny-{number:04}", logs=log)
        took = []
        for work in (runs, listed, listed):
            start = time.perf_counter()
            work()
            took.append(time.perf_counter() - start)
        records, first, again = took
        os.chdir("/")
    print(
        f"{COUNT} runs: records {records:.2f} s, the table {first:.2f} s the first time ({first / records:.1f}x), {again:.2f} s again ({again / records:.1f}x)"
    )
    assert again < LIMIT * records
    assert first < FIRST_LIMIT * records


if __name__ == "__main__":
    test_listing_2000_runs_takes_about_a_second()
