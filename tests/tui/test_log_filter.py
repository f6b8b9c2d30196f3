"""The filter of the log: applied while typing, named in the frame, cleared, kept and recalled."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from dstui.logs.line_query import parse_line_query
from dstui.logs.log_filter import Filter
from tests.logs.made_logs import MadeJob
from tests.tui.conftest import Open, job_view, screen, until
from tests.tui.test_log import show_job
from tests.tui.test_plot import job as ended_run


@pytest.fixture
def job(tmp_path: Path) -> MadeJob:
    """Return a job of four ranks on two hosts; rank 3 warns every ten seconds."""
    made = MadeJob(tmp_path / "job", 4, hosts=2, state="failed")
    for second in range(60):
        for rank in range(4):
            made.say(rank, f"step {second} loss 1.5", f"eval {second} of rank {rank}")
        if second % 10 == 0:
            made.say(3, f"WARNING: slow link at {second}")
        made.update(second)
    return made


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_filter_applies_while_typing_and_escape_shows_all_lines(open_app: Open, job: MadeJob, size: tuple[int, int]) -> None:
    async with open_app(size=size) as pilot:
        await show_job(pilot, job.folder)
        view = job_view(pilot)
        await pilot.press("ampersand", *"eval r1")
        await until(pilot, lambda: "Log: all ranks, folded, filter eval r1" in screen(pilot))
        assert "60 of 120 lines, 60 hidden" in screen(pilot)
        assert "keep" in screen(pilot) and "show all" in screen(pilot)  # the footer shows the keys
        assert {view.log_view.lines.line(n).rank for n in range(view.log_view.lines.first, view.log_view.lines.end)} == {1}
        await pilot.press("escape")
        await until(pilot, lambda: "filter" not in view.job_log.filter.title() and view.log_view.has_focus)
        assert "486 lines" in screen(pilot)


async def test_kept_filter_is_recalled_and_escape_in_the_log_ends_it(open_app: Open, job: MadeJob) -> None:
    async with open_app() as pilot:
        await show_job(pilot, job.folder)
        view = job_view(pilot)
        await pilot.press("ampersand", *"level:warn", "enter")
        await until(pilot, lambda: "6 of 486 lines, 480 hidden" in screen(pilot) and view.log_view.has_focus)
        await pilot.press("escape")
        await until(pilot, lambda: not view.job_log.filter.query.text)
        await pilot.press("ampersand", "up")
        await until(pilot, lambda: view.job_log.filter.query.text == "level:warn")


async def test_invalid_filter_is_reported_and_changes_nothing(open_app: Open, job: MadeJob) -> None:
    async with open_app() as pilot:
        await show_job(pilot, job.folder)
        view = job_view(pilot)
        await pilot.press("ampersand", *"eval", "space", *"(")
        await until(pilot, lambda: "✖ (: not a regular expression" in screen(pilot))
        assert view.job_log.filter.query.text in ("", "eval")
        await pilot.press("escape")
        await until(pilot, lambda: "✖ (:" not in screen(pilot))


async def test_search_suggests_a_filter_that_typing_replaces(open_app: Open, job: MadeJob) -> None:
    async with open_app(size=(80, 24)) as pilot:
        await show_job(pilot, job.folder)
        view = job_view(pilot)
        await pilot.press("slash", *"step", "enter", "ampersand")
        await until(pilot, lambda: view.job_log.filter.query.text == "step")
        await pilot.press(*"eval")
        await until(pilot, lambda: view.job_log.filter.query.text == "eval")


async def test_hosts_times_and_ranks_can_be_filtered(open_app: Open, job: MadeJob) -> None:
    async with open_app() as pilot:
        await show_job(pilot, job.folder)
        view = job_view(pilot)
        view.apply_filter("host:worker-1 !r3 since:5s")
        await until(pilot, lambda: view.log_view.lines.complete)
        shown = [view.log_view.lines.line(n) for n in range(view.log_view.lines.first, view.log_view.lines.end)]
        assert {line.rank for line in shown} == {2} and 0 < len(shown) < 20


async def test_later_lines_are_filtered(open_app: Open, tmp_path: Path) -> None:
    made = MadeJob(tmp_path / "job", 1, state="running")
    made.say(0, "step 1", "eval 1")
    made.update(1)
    async with open_app() as pilot:
        await show_job(pilot, made.folder)
        view = job_view(pilot)
        await pilot.press("ampersand", *"eval", "enter")
        await until(pilot, lambda: "1 of 2 lines, 1 hidden" in screen(pilot))
        made.say(0, "step 2", "eval 2")
        made.update(2)
        await until(pilot, lambda: "2 of 4 lines, 2 hidden" in screen(pilot))
        assert view.job_log.to_copy()[0].splitlines() == ["eval 1", "eval 2"]


@pytest.mark.parametrize("query", ["level:warn", "level:error", "!step", "loss level:warn"])
def test_filtered_log_opens_quickly(tmp_path: Path, query: str) -> None:
    text = "".join(f"step {n} loss {n / 7:.4f} a line as training writes it\n" + "[W] odd\n" * (n % 400 == 0) for n in range(6000))
    folder = ended_run(tmp_path / "job", dict.fromkeys(range(4), text))
    rows = Filter(query=parse_line_query(query, 0.0)).open(folder, dict.fromkeys(range(4), "here"))
    spent = []
    while not rows.complete:
        rows.wanted, began = 4, time.thread_time()
        rows.poll(0.016)
        [rows.line(number) for number in range(max(rows.first, rows.end - 40), rows.end)]
        spent.append(time.thread_time() - began)
    assert sorted(spent)[len(spent) * 9 // 10] < 0.05
