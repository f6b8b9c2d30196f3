"""A small flood of log lines is shown completely, rank by rank. Large floods are in tests/long and tests/bench."""

from __future__ import annotations

import subprocess
import time
from contextlib import suppress
from pathlib import Path

import pytest

from dstui.logs.log_filter import Filter
from tests.flood import GROUPS, TICK, count_lines, end, lines_per_rank, running_job, start_flood
from tests.tui.conftest import Open, attach, screen, until

RANKS, RATE, SECONDS = 8, 12_000, 1.0
LINES = lines_per_rank(RANKS, RATE, SECONDS)


@pytest.mark.every_frame
async def test_tui_shows_every_line_of_a_flood(open_app: Open, tmp_path: Path) -> None:
    folder = running_job(tmp_path / "job", RANKS)
    async with open_app() as pilot:
        await attach(pilot, folder)
        flood = start_flood(folder.path, RANKS, RATE, SECONDS)
        await until(pilot, lambda: flood.poll() is not None, 60)
        flood.communicate()
        await until(pilot, lambda: f"{RANKS * LINES:,} lines" in screen(pilot), 30)
        for rank in range(RANKS):
            await pilot.press(str(rank))
            await until(
                pilot, lambda rank=rank: f"line {LINES - 1} of rank {rank}," in screen(pilot) and f"{LINES:,} lines" in screen(pilot)
            )


def test_log_has_every_line_of_every_rank_in_order_folded_or_not(tmp_path: Path) -> None:
    for dedup in (True, False):
        folder = running_job(tmp_path / f"job {dedup}", RANKS)
        view = Filter(dedup=dedup).open(folder, {})
        flood = start_flood(folder.path, RANKS, RATE, SECONDS)
        deadline = time.monotonic() + 60
        while flood.poll() is None:
            assert time.monotonic() < deadline
            view.timeline.find()
            view.poll()
            with suppress(subprocess.TimeoutExpired):
                flood.wait(TICK / GROUPS / 2)  # a look between any two writes
        flood.communicate()
        end(folder)
        assert count_lines(view).of == dict.fromkeys(range(RANKS), LINES)
        assert count_lines(Filter(dedup=dedup).open(folder, {})).of == dict.fromkeys(range(RANKS), LINES)
