"""The table of runs (`J`): sort, filter, mark, compare and return, without blocking the TUI."""

from __future__ import annotations

from pathlib import Path
from threading import Thread

import pytest
from textual.pilot import Pilot

from dstui.jobs.store.folder import JobFolder
from dstui.jobs.store.index import listing_stamp
from dstui.runs.find import find_runs
from dstui.tui.runs import reading
from dstui.tui.runs.runs_screen import RunsTable
from dstui.tui.session.settings import setting
from tests.jobs.made import make_job
from tests.runs.test_table import at, log, plan
from tests.tui.conftest import Open, attach, job_view, screen, text_of, until
from tests.waiting import wait_for


@pytest.fixture
def three_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write three runs in the current folder: one that learned, one that learned more, one that failed."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))  # the table lists every run of the index: leave out those of other tests
    runs = tmp_path / "dstui_runs"
    make_job(runs / "run-a", plan(), log(3.0, 2.5), **at(1))
    make_job(runs / "run-b", plan(stage=3, lr="3e-4"), log(3.0, 1.5), **at(2))
    make_job(runs / "run-c", plan(stage=3), {0: "KeyError: 'labels'\n"}, state="failed", exit_code=1, **at(3))
    for name in "abc":
        (runs / f"run-{name}" / "launch.json").unlink()
    return runs


def names(pilot: Pilot[int]) -> list[str]:
    """Return the names of the runs in the table's order."""
    return [word[4:] for line in text_of(pilot, "#runs").splitlines() for word in line.split() if word.startswith("run-")]


async def open_table(pilot: Pilot[int]) -> None:
    await pilot.press("J")
    await until(pilot, lambda: "run-a" in screen(pilot) and "2.5" in screen(pilot))


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_runs_are_sorted_filtered_and_left(open_app: Open, three_runs: Path, size: tuple[int, int]) -> None:
    async with open_app(size=size) as pilot:
        step = pilot.app.step
        await open_table(pilot)
        assert [name for name in names(pilot) if name in "abc"] == list("cba"), "the latest first"
        await pilot.press(*[">"] * 4)
        await until(pilot, lambda: "sort: step" in screen(pilot) or "sort: loss" in screen(pilot))
        while "sort: loss" not in screen(pilot):
            await pilot.press(">")
        await until(pilot, lambda: names(pilot)[:3] == list("bac"))
        await pilot.press("r")
        await until(pilot, lambda: names(pilot)[:3] == list("abc"))
        await pilot.press("/", *"lr>1e-4", "enter")
        await until(pilot, lambda: names(pilot) == ["b"] and "lr>1e-4" in screen(pilot))
        await pilot.press("escape")
        await until(pilot, lambda: len(names(pilot)) >= 3)
        await pilot.press("escape")
        await until(pilot, lambda: pilot.app.screen is pilot.app.main and pilot.app.step is step)


def test_ended_runs_are_read_once_until_one_is_added(three_runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(three_runs.parent)
    monkeypatch.setattr(reading, "PAUSE", 0.01)
    reads: list[int] = []
    monkeypatch.setattr(reading, "find_runs", lambda kept: reads.append(len(found := find_runs(kept))) or found)
    checks: list[int] = []
    monkeypatch.setattr(reading, "listing_stamp", lambda: checks.append(0) or listing_stamp())
    reader = reading.Reading(lambda _table: None)
    thread = Thread(target=reader.work)
    thread.start()
    try:
        wait_for(lambda: len(checks) > 5)
        assert reads == [3]
        make_job(three_runs / "run-d", plan(), log(3.0, 2.5), **at(4))
        wait_for(lambda: 4 in reads)
    finally:
        reader.end()
        thread.join()


async def test_invalid_filter_is_refused_while_typing(open_app: Open, three_runs: Path) -> None:
    async with open_app() as pilot:
        await open_table(pilot)
        await pilot.press("/", *"loss<x", "enter")
        await until(pilot, lambda: "x is not a number" in " ".join(screen(pilot).split()))


async def test_marked_runs_are_compared_copied_and_plotted_together(open_app: Open, three_runs: Path) -> None:
    async with open_app() as pilot:
        await open_table(pilot)
        await pilot.press("=")
        await until(pilot, lambda: "Space marks runs" in " ".join(screen(pilot).split()))
        await pilot.press("down", "space", "space")
        await until(pilot, lambda: screen(pilot).count("◉") == 2 and "2 marked" in screen(pilot))
        await pilot.press("=")
        await until(pilot, lambda: "zero_optimization.stage" in screen(pilot) and "★ 1.5" in screen(pilot))
        await pilot.press("y")
        assert pilot.app.clipboard.startswith("|  | b | a |") and "| loss | **1.5** | 2.5 |" in pilot.app.clipboard
        await pilot.press("m")
        await until(pilot, lambda: "beside run-a" in screen(pilot))
        await pilot.press("escape", "escape")
        await until(pilot, lambda: "Runs 3" in screen(pilot) or "Runs 4" in screen(pilot))


async def test_enter_opens_a_run_and_l_launches_it_again(open_app: Open, three_runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    again: list[str] = []
    monkeypatch.setattr("dstui.tui.flows.launching.Launching.again", lambda _flow, job: again.append(job.name))
    async with open_app() as pilot:
        await open_table(pilot)
        await pilot.press("down", "enter")
        await until(pilot, lambda: job_view(pilot).job is not None and job_view(pilot).job.folder.name == "run-b")
        assert again == []
        await open_table(pilot)
        await pilot.press("l")
        await until(pilot, lambda: again == ["run-c"])


async def test_columns_are_chosen_and_remembered(open_app: Open, three_runs: Path) -> None:
    async with open_app() as pilot:
        await open_table(pilot)
        await pilot.press("c", "ctrl+u", *"name, stage,loss", "enter")
        await until(pilot, lambda: text_of(pilot, "#runs-head").split() == ["state", "name", "stage", "loss"])
        await until(pilot, lambda: setting("columns") == ["name", "stage", "loss"])
        await pilot.press(">", ">", ">")
        await until(pilot, lambda: "sort: stage" in screen(pilot))
        await pilot.press("escape", "J")
        await until(pilot, lambda: text_of(pilot, "#runs-head").split() == ["state", "name", "stage", "loss"])
        await pilot.press("c", "ctrl+u", "enter")
        await until(pilot, lambda: "took" in text_of(pilot, "#runs-head") and setting("columns") == [])


async def test_table_is_opened_from_a_plot_which_a_chosen_run_closes(open_app: Open, three_runs: Path) -> None:
    async with open_app() as pilot:
        await attach(pilot, JobFolder(three_runs / "run-a"))
        await pilot.press("m")
        await until(pilot, lambda: "Metrics" in screen(pilot))
        plot = pilot.app.screen
        await open_table(pilot)
        await pilot.press("escape")
        await until(pilot, lambda: pilot.app.screen is plot)
        await open_table(pilot)
        await pilot.press("enter")
        await until(pilot, lambda: job_view(pilot).job.name == "run-c" and pilot.app.screen is pilot.app.main)
        await open_table(pilot)
        await pilot.press("space", "space", "equals_sign")
        await until(pilot, lambda: "How they ended" in screen(pilot))
        await pilot.press("m")
        await until(pilot, lambda: "beside" in screen(pilot))
        await pilot.press("J")
        await until(pilot, lambda: isinstance(pilot.app.screen, RunsTable))


async def test_keys_that_need_a_run_are_shown_when_there_is_one(open_app: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))

    def footer() -> str:
        return pilot.app.screen.footer.rows[0].text

    async with open_app() as pilot:
        await pilot.press("J")
        await until(pilot, lambda: isinstance(pilot.app.screen, RunsTable) and not pilot.app.screen.rows.keys and "c columns" in footer())
        assert "Enter look" not in footer() and "Space mark" not in footer()
        make_job(tmp_path / "dstui_runs" / "run-d", plan(), log(3.0, 2.5), **at(4))
        await until(pilot, lambda: "Enter look" in footer() and "Space mark" in footer())
