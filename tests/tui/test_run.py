"""A job in the TUI, from its folder: ranks, logs, search, following; log content is shown literally."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from textual.pilot import Pilot

from dstui.jobs.store.folder import JobFolder
from dstui.tui.session.messages import Launched
from tests.tui.conftest import Open, attach, job_view, log_is_shown, screen, store, text_of, until

HOSTILE = [
    "[rank0]: Traceback (most recent call last):",
    "x: list[int] = [1, 2]",
    "[/bar] closes nothing",
    "[@click=app.quit]do not click[/]",
    "\x1b[2J\x1b[H\x1b]0;owned\x07clear \x1b[31mred\x1b[0m \x9b31m",
]


@pytest.fixture
def job(tmp_path: Path) -> JobFolder:
    """Write an ended job of two ranks as its supervisor leaves it; rank 1 failed."""
    folder = JobFolder(tmp_path / "job")
    folder.path.mkdir()
    folder.prepare(1)
    folder.log(0).write_text("".join(f"step {n}/400 loss {3 - n / 200:.4f}\n" for n in range(1, 401)))
    folder.log(1).write_text("".join(f"{line}\n" for line in HOSTILE) + "RuntimeError: out of memory\n")
    folder.launcher_log.write_text("")
    rank = {"host": "here", "pid": 1, "state": "ended", "exit_code": 0}
    status = {"state": "failed", "exit_code": 3, "started": "2026-01-01T00:00:00+00:00", "ended": "2026-01-01T00:00:17+00:00", "attempt": 1}
    folder.status_file.write_text(json.dumps({**status, "ranks": {"0": rank, "1": {**rank, "exit_code": 3}}}))
    return folder


async def show_job(pilot: Pilot[int], job: JobFolder) -> None:
    """Attach to the job and wait until all of it is read."""
    await attach(pilot, job)
    await until(pilot, lambda: store(pilot).state.run == "failed" and "exit status 3" in screen(pilot))
    await until(pilot, lambda: "1 ✖ failed" in text_of(pilot, "#ranks"))


async def test_ended_job_shows_its_summary_and_each_ranks_state(open_app: Open, job: JobFolder) -> None:
    async with open_app() as pilot:
        await show_job(pilot, job)
        assert "✖ failed (exit status 3)  0:17" in text_of(pilot, "#run-head")
        assert "0 ✔ ended  step 400  loss 1" in text_of(pilot, "#ranks")
        assert "1 ✖ failed" in text_of(pilot, "#ranks")
        assert "✖9" in text_of(pilot, "#step-line") and "l again" in screen(pilot)


async def test_a_long_line_about_the_run_is_wrapped_in_its_dialog(open_app: Open, job: JobFolder) -> None:
    async with open_app(size=(80, 24)) as pilot:
        await show_job(pilot, job)
        await pilot.press("P")
        await until(pilot, lambda: "as resolved by DeepSpeed" in screen(pilot))
        shown = " ".join(line.strip(" │▐█") for line in text_of(pilot, "#help").splitlines())
        assert "no rank of job has reported an engine: deepspeed.initialize was not reached" in shown


async def test_digit_selects_a_rank_and_not_a_step(open_app: Open, job: JobFolder) -> None:
    async with open_app() as pilot:
        await show_job(pilot, job)
        await pilot.press("7")
        assert pilot.app.step.id == "run"
        await until(pilot, lambda: "There is no rank 7; this job has 0 to 1" in " ".join(screen(pilot).split()))


async def test_session_remembers_the_launched_and_the_selected_job(open_app: Open, job: JobFolder) -> None:
    async with open_app() as pilot:
        pilot.app.post_message(Launched(job))
        await until(pilot, lambda: store(pilot).state.run == "failed" and "✖9" in text_of(pilot, "#step-line"))
        await pilot.press("J")
        await until(pilot, lambda: "Runs" in screen(pilot))
        pilot.app.screen.dismiss((job, False))
        await until(pilot, lambda: store(pilot).state.run == "failed" and "✖9" in text_of(pilot, "#step-line"))


async def test_failed_job_shows_its_reason_and_evidence(open_app: Open, job: JobFolder) -> None:
    job.log(1).write_text("Traceback (most recent call last):\nModuleNotFoundError: No module named 'flash_attn'\n")
    async with open_app() as pilot:
        await show_job(pilot, job)
        await until(pilot, lambda: "Why it ended" in screen(pilot))
        assert "flash_attn" in text_of(pilot, "#why")
        assert "rank_1.log:2" in text_of(pilot, "#why")


async def test_log_lines_are_shown_literally_without_escape_sequences(open_app: Open, job: JobFolder) -> None:
    async with open_app() as pilot:
        await show_job(pilot, job)
        await pilot.press("1")
        await until(pilot, lambda: "Log: rank 1" in screen(pilot) and "out of memory" in screen(pilot))
        shown = screen(pilot)
        for line in HOSTILE[:4]:
            assert line in shown
        assert "clear red" in shown
        assert "\x1b" not in shown
        assert "\x9b" not in shown


async def test_rank_is_selected_by_number_and_all_by_a(open_app: Open, job: JobFolder) -> None:
    async with open_app() as pilot:
        await show_job(pilot, job)
        await pilot.press("g", "0", "enter")
        await until(pilot, lambda: "Log: rank 0" in screen(pilot))
        await pilot.press("a")
        await until(pilot, lambda: log_is_shown(pilot))
        await pilot.press("g", "7", "enter")
        await until(pilot, lambda: "There is no rank 7" in screen(pilot))


async def test_search_counts_matches_and_n_goes_to_the_next(open_app: Open, job: JobFolder) -> None:
    async with open_app() as pilot:
        await show_job(pilot, job)
        await pilot.press("0", "slash", *"step 39", "enter")
        await until(pilot, lambda: "of 11" in screen(pilot))  # 39 and 390 to 399
        first = job_view(pilot).log_view.at
        await pilot.press("n")
        assert job_view(pilot).log_view.at != first
        await pilot.press("N")
        assert job_view(pilot).log_view.at == first


async def test_search_is_a_regex_marked_while_typing_and_tab_makes_it_literal(open_app: Open, job: JobFolder) -> None:
    async with open_app() as pilot:
        await show_job(pilot, job)
        await pilot.press("0", "slash", *"step (7")
        await until(pilot, lambda: "✖ not a regular expression" in screen(pilot))
        await pilot.press(*"|39)0")
        await until(pilot, lambda: "/step (7|39)0: 2" in screen(pilot))
        assert job_view(pilot).log_view.follow
        await pilot.press("tab")
        await until(pilot, lambda: "/step (7|39)0: no match" in screen(pilot) and "Tab text / expression" in screen(pilot))
        await pilot.press("tab", "enter")
        await until(pilot, lambda: "2 of 2" in screen(pilot))
        await pilot.press("slash", "escape")
        await until(pilot, lambda: job_view(pilot).log_view.search is None)
        await pilot.press("slash", "up")
        await until(pilot, lambda: "/step (7|39)0 2 of 2" in screen(pilot))


async def test_filter_starts_with_the_search_text(open_app: Open, job: JobFolder) -> None:
    async with open_app() as pilot:
        await show_job(pilot, job)
        await pilot.press("0", "slash", *"step 39[0-4]", "enter", "ampersand")
        view = job_view(pilot).log_view
        await until(pilot, lambda: view.lines.end - view.lines.first == 5 and "5 of 400 lines, 395 hidden" in screen(pilot))
        await pilot.press("enter", "escape")
        await until(pilot, lambda: view.search is None and view.lines.end - view.lines.first == 5)
        await pilot.press("escape")
        await until(pilot, lambda: view.lines.end - view.lines.first == 400)


async def test_rank_killed_after_another_failed_is_not_shown_as_the_failed_one(open_app: Open, job: JobFolder) -> None:
    status = json.loads(job.status_file.read_text())
    status["ranks"]["0"] |= {"exit_code": 143, "killed_after": 1}
    job.status_file.write_text(json.dumps(status))
    async with open_app() as pilot:
        await show_job(pilot, job)
        assert "0 ■ killed (143)  after rank 1 failed" in text_of(pilot, "#ranks")
        assert "1 ✖ failed (3)" in text_of(pilot, "#ranks")


async def test_e_goes_to_the_line_of_an_error(open_app: Open, job: JobFolder) -> None:
    async with open_app() as pilot:
        await show_job(pilot, job)
        await pilot.press("1", "e")
        view = job_view(pilot).log_view
        assert "Traceback" in view.lines.line(view.at).text or "out of memory" in view.lines.line(view.at).text


async def test_new_lines_are_counted_and_do_not_scroll_a_reader(open_app: Open, job: JobFolder) -> None:
    async with open_app() as pilot:
        await show_job(pilot, job)
        await pilot.press("0")
        view, pane = job_view(pilot).log_view, job_view(pilot)
        await until(pilot, lambda: view.follow and "step 400/400" in screen(pilot))
        await pilot.press("home")
        assert "step 1/400" in screen(pilot)
        with job.log(0).open("a") as log:
            log.write("a new line\n" * 3)
        pane.tick()
        await until(pilot, lambda: "▼ 3 new" in screen(pilot))
        assert "step 1/400" in screen(pilot)
        await pilot.press("f")
        await until(pilot, lambda: "a new line" in screen(pilot) and "following" in screen(pilot))
