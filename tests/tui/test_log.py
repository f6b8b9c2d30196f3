"""The log of a job in the TUI: folding of equal lines, filters, times, long lines, many ranks."""

from __future__ import annotations

import re
import time
from itertools import count
from pathlib import Path

import pytest
from textual.pilot import Pilot
from textual.selection import SELECT_ALL

from dstui.jobs.store.folder import JobFolder
from dstui.logs import log_rows
from dstui.logs.log_filter import Filter
from dstui.logs.log_search import Search
from dstui.tui.run import shown_lines
from dstui.tui.run.shown_lines import LATE, ShownLines
from dstui.tui.session.settings import setting
from tests.job_json import status_json, write_status_json
from tests.logs.made_logs import BEGAN, MadeJob
from tests.owned import add_to_index
from tests.tui.conftest import Open, attach, job_view, screen, text_of, until
from tests.tui.test_plot import job as ended_run

TRACE = [
    "Traceback (most recent call last):",
    '  File "train.py", line 7, in main',
    "ValueError: an error in [bold]markup[/] here \x1b[2J" + " and so on" * 40,
]


@pytest.fixture
def job(tmp_path: Path) -> MadeJob:
    """Return a job of eight ranks on two hosts that print the same lines for two minutes; rank 5 also prints others."""
    made = MadeJob(tmp_path / "job", 8, hosts=2, state="failed")
    for second in range(120):
        for rank in range(8):
            made.say(rank, f"step {second} loss 1.5")
        if second == 60:
            made.say(5, "[W] NCCL watchdog: waiting", *TRACE)
        made.update(second)
    return made


async def show_job(pilot: Pilot[int], folder: JobFolder) -> None:
    """Attach to the job and wait until its log is shown."""
    await attach(pilot, folder)
    await until(pilot, lambda: re.search("lines?  following", screen(pilot)) is not None)


def clock(second: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(BEGAN + second))


async def test_equal_lines_of_all_ranks_are_one_row_until_u_unfolds_them(open_app: Open, job: MadeJob) -> None:
    async with open_app() as pilot:
        await show_job(pilot, job.folder)
        assert f"{clock(119)}             ×8 step 119 loss 1.5" in screen(pilot)
        assert "124 rows, 964 lines" in screen(pilot)
        await pilot.press("u")
        await until(pilot, lambda: "Log: all ranks, folded ─" in screen(pilot) and "124 rows, 964 lines" in screen(pilot))
        await pilot.press("u")
        await until(pilot, lambda: "964 lines" in screen(pilot) and "rows, 964" not in screen(pilot))
        assert f"{clock(119)} worker-1    r7 step 119 loss 1.5" in screen(pilot)


async def test_v_shows_warnings_and_errors_then_errors_and_a_all_lines(open_app: Open, job: MadeJob) -> None:
    async with open_app() as pilot:
        await show_job(pilot, job.folder)
        await pilot.press("v")
        await until(pilot, lambda: "Log: all ranks, warnings and errors, folded" in screen(pilot) and "4 of 964 lines" in screen(pilot))
        assert "r5 [W] NCCL watchdog: waiting" in screen(pilot)
        await pilot.press("v")
        await until(pilot, lambda: "3 of 964 lines" in screen(pilot))
        assert "r5   File" in screen(pilot)
        await pilot.press("a")
        await until(pilot, lambda: "124 rows, 964 lines" in screen(pilot))


COLOURED = ["\x1b[38;2;200;100;50mINFO\x1b[0m loaded \x1b[38;2;0;200;0mthe shard\x1b[0m", "not \x1b[30;40mhidden\x1b[0m"]


@pytest.mark.parametrize("mono", [False, True])
async def test_script_colours_are_kept_unless_disabled_and_copies_are_plain(
    open_app: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mono: bool
) -> None:
    if mono:
        monkeypatch.setenv("NO_COLOR", "1")
    made = MadeJob(tmp_path / "job", 1, state="succeeded")
    made.say(0, *COLOURED)
    made.update(1)
    async with open_app() as pilot:
        await show_job(pilot, made.folder)
        colours = {}
        for piece in (piece for strip in pilot.app.screen._compositor.render_strips() for piece in strip):
            colours[piece.text.strip()] = piece.style.color.name if piece.style and piece.style.color else None
        if mono:
            assert "INFO loaded the shard" in colours
        else:
            assert (colours["INFO"], colours["the shard"]) == ("#c86432", "#00c800")
            assert colours["hidden"] == colours["not"]
        assert job_view(pilot).job_log.to_copy()[0].splitlines()[-2:] == ["INFO loaded the shard", "not hidden"]
        await pilot.press("slash", *"ed the sh", "enter")
        await until(pilot, lambda: "1 of 1" in screen(pilot))
        assert "INFO loaded the shard" in screen(pilot)


async def test_h_cycles_through_the_hosts(open_app: Open, job: MadeJob) -> None:
    async with open_app() as pilot:
        await show_job(pilot, job.folder)
        await pilot.press("h")
        await until(pilot, lambda: "Log: worker-0, folded" in screen(pilot) and "×4 step 119" in screen(pilot))
        await pilot.press("h", "e")
        await until(pilot, lambda: "Log: worker-1, folded" in screen(pilot) and "r5▸Traceback" in screen(pilot))
        await pilot.press("h")
        await until(pilot, lambda: "Log: all ranks, folded" in screen(pilot))


async def test_t_goes_to_a_time_and_other_filters_keep_it(open_app: Open, job: MadeJob) -> None:
    async with open_app() as pilot:
        await show_job(pilot, job.folder)
        await pilot.press("t", *"25:00", "enter")
        await until(pilot, lambda: "25:00 is neither a time nor a step" in screen(pilot))
        await pilot.press("escape", "t", *clock(30), "enter")
        view = job_view(pilot).log_view
        await until(pilot, lambda: view.at is not None and view.lines.line(view.at).text == "step 30 loss 1.5")
        await pilot.press("3")
        await until(pilot, lambda: "Log: rank 3" in screen(pilot) and view.at is not None)
        assert view.lines.line(view.at).text == "step 30 loss 1.5"
        await pilot.press("t", "7", "enter")
        await until(pilot, lambda: view.at is not None and view.lines.line(view.at).text == "step 7 loss 1.5")


async def test_errors_of_all_ranks_are_counted_and_enter_shows_one_with_context(open_app: Open, job: MadeJob) -> None:
    async with open_app() as pilot:
        await show_job(pilot, job.folder)
        await pilot.press("e")
        await until(pilot, lambda: "errors 1 of 2" in screen(pilot))
        await pilot.press("n")
        await until(pilot, lambda: "errors 2 of 2" in screen(pilot))
        await pilot.press("enter")
        await until(pilot, lambda: f"rank 5  on worker-1  {clock(60)}" in screen(pilot))
        whole = text_of(pilot, "#whole-line")
        assert "ValueError: an error in [bold]markup[/] here" in whole
        assert whole.count("and so on") >= 30
        assert "step 59 loss 1.5" in whole
        assert "step 61 loss 1.5" in whole
        assert "\x1b" not in screen(pilot)
        await until(pilot, lambda: "ValueError: an error in [bold]" in screen(pilot))  # it is scrolled to
        await pilot.press("escape")
        await until(pilot, lambda: "errors 2 of 2" in screen(pilot))


async def test_e_goes_to_an_error_that_is_found_later(open_app: Open, job: MadeJob, monkeypatch: pytest.MonkeyPatch) -> None:
    advance, calls = Search.advance, count()
    monkeypatch.setattr(Search, "advance", lambda self, *a, **k: bool(self.name == "errors" and next(calls)) and advance(self, *a, **k))
    async with open_app() as pilot:
        await show_job(pilot, job.folder)
        await pilot.press("e")
        await until(pilot, lambda: "errors 1 of 2" in screen(pilot))


async def test_new_lines_appear_and_the_progress_bar_of_a_selected_rank(open_app: Open, tmp_path: Path) -> None:
    made = MadeJob(tmp_path / "job", 2)
    assert add_to_index(made.folder).lock() is not None
    made.say(0, "ready")
    async with open_app() as pilot:
        await show_job(pilot, made.folder)
        made.say(0, "loaded")
        made.say(1, "loaded")
        await until(pilot, lambda: "×2 loaded" in screen(pilot))
        made.say(1, " 10%|#  \r 20%|## ", end="")
        await pilot.press("1")
        await until(pilot, lambda: "20%|##" in screen(pilot) and "10%" not in screen(pilot))
        made.say(1, "\r 30%|###", end="")
        await until(pilot, lambda: "30%|###" in screen(pilot) and "20%" not in screen(pilot))


def test_paintings_read_a_screen_of_many_blocks_one_after_another(job: MadeJob, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_rows, "WORKED", 300)
    monkeypatch.setattr(log_rows, "KEPT", 600)
    monkeypatch.setattr(shown_lines, "SPELL", 0.0)
    lines = Filter().open(job.folder, {})
    while lines.poll() or not lines.complete:
        lines.wanted = 4
    screen, shown, paintings = range(lines.first, lines.first + 20), ShownLines(), [-1]
    shown.begin(lines)
    while shown.late or paintings == [-1]:
        with shown.painting():
            paintings.append(sum(shown.line(number) is not LATE for number in screen))
        assert paintings[-1] > paintings[-2]
    assert len(paintings) > 4
    assert [shown.line(number) for number in screen] == [lines.line(number) for number in screen]


async def test_found_line_stays_in_view_when_the_screen_gets_smaller(open_app: Open, job: MadeJob) -> None:
    async with open_app(size=(120, 50)) as pilot:
        await show_job(pilot, job.folder)
        await pilot.press("/", *"step 77 ", "enter")
        await until(pilot, lambda: "step 77 loss" in screen(pilot))
        await pilot.resize_terminal(120, 24)
        await until(pilot, lambda: pilot.app.screen.outer_size.height == 24 and "×8▸step 77 loss" in screen(pilot))


async def test_text_that_the_mouse_has_selected_is_marked(open_app: Open, job: MadeJob) -> None:
    async with open_app() as pilot:
        await show_job(pilot, job.folder)
        log, ground = job_view(pilot).log_view, pilot.app.screen.get_component_rich_style("screen--selection").bgcolor
        assert ground not in {segment.style.bgcolor for segment in log.render_line(0)}
        pilot.app.screen.selections = {log: SELECT_ALL}
        assert {segment.style.bgcolor for segment in log.render_line(0)} == {ground}


async def test_whole_line_is_wrapped_again_for_a_narrower_terminal(open_app: Open, tmp_path: Path) -> None:
    made = MadeJob(tmp_path / "job", 1, state="succeeded")
    made.say(0, f"begin {'.' * 150} end")
    async with open_app() as pilot:
        await show_job(pilot, made.folder)
        await pilot.press("home", "enter")
        await until(pilot, lambda: " end" in text_of(pilot, "#whole-line"))
        await pilot.resize_terminal(80, 24)
        await until(pilot, lambda: len(text_of(pilot, "#whole-line").splitlines()) > 2)
        assert " end" in screen(pilot)


async def test_home_goes_to_the_first_line(open_app: Open, tmp_path: Path) -> None:
    made = MadeJob(tmp_path / "job", 1, state="succeeded")
    made.say(0, *(f"line {n} {'.' * 100}" for n in range(60_000)))
    async with open_app() as pilot:
        await show_job(pilot, made.folder)
        assert "line 59999 " in screen(pilot)
        await pilot.press("home")
        await until(pilot, lambda: " line 0 ." in screen(pilot))


async def test_earlier_lines_are_also_counted_between_two_ticks(open_app: Open, tmp_path: Path) -> None:
    made = MadeJob(tmp_path / "job", 2, state="succeeded")
    for rank in range(2):
        made.say(rank, *(f"line {n} {'.' * 100}" for n in range(10_000)))
    async with open_app() as pilot:
        await show_job(pilot, made.folder)
        await until(pilot, lambda: not job_view(pilot).job_log.busy)
        lines = job_view(pilot).log_view.lines
        assert not lines.complete
        await pilot.press("home")
        job_view(pilot).ticks.end()
        job_view(pilot).job_log.tick(ended=True)
        await until(pilot, lambda: lines.complete)


@pytest.mark.parametrize(("ranks", "hosts"), [(64, 8), (256, 32), (1024, 128)])
async def test_many_ranks_are_summarised_by_host_worst_first(open_app: Open, tmp_path: Path, ranks: int, hosts: int) -> None:
    made = MadeJob(tmp_path / "job", ranks, hosts=hosts, state="failed")
    status = status_json(made.folder)
    status["ranks"][str(ranks - 3)]["exit_code"] = 1
    write_status_json(made.folder, status)
    made.say(0, "step 1")
    made.update(1)
    async with open_app(size=(100, 30)) as pilot:
        await show_job(pilot, made.folder)
        await until(pilot, lambda: f"{ranks - 1:,} ended" in text_of(pilot, "#ranks"))
        shown = text_of(pilot, "#ranks").splitlines()
        assert shown[0].split() == f"{ranks:,} ranks on {hosts} hosts ✖ 1 failed ✔ {ranks - 1:,} ended step 1".split()
        assert f"worker-{hosts - 1}" in shown[1]
        assert f"rank {ranks - 3}" in shown[1]
        assert "more hosts" in shown[-1]


async def test_host_name_is_shown_literally(open_app: Open, tmp_path: Path) -> None:
    made = MadeJob(tmp_path / "job", 2, hosts=2, state="succeeded")
    made.hosts[1] = "[b]x\x1b[2J\x9b31m"
    made.status("succeeded")
    made.say(1, "here")
    async with open_app() as pilot:
        await show_job(pilot, made.folder)
        await pilot.press("h", "h")
        await until(pilot, lambda: "Log: [b]x, folded" in screen(pilot))
        assert "\x1b" not in screen(pilot)
        assert "\x9b" not in screen(pilot)


LONG = "".join(f"{n:03} " + "word " * 40 + f"end{n:03}\n" for n in range(60))


async def test_l_wraps_long_lines_permanently(open_app: Open, tmp_path: Path) -> None:
    folder = ended_run(tmp_path / "job", {0: LONG})
    async with open_app(size=(80, 24)) as pilot:
        view = (await attach(pilot, folder)).log_view
        await until(pilot, lambda: "059 word" in screen(pilot))
        assert "end059" not in screen(pilot)
        assert next(row for row in screen(pilot).splitlines() if "059 word" in row).rstrip("│ ▁▂▃▄▅▆▇█").endswith("›"), "it is cut"
        await pilot.press("L")
        await until(pilot, lambda: "end059" in screen(pilot) and setting("wrap") is True)
        assert "".join(row.strip("│ ▁▂▃▄▅▆▇█") for row in screen(pilot).splitlines()[-8:]).count("word") > 40
        await pilot.press("up")
        await until(pilot, lambda: not view.follow and "end059" not in screen(pilot) and "end057" in screen(pilot))
        top = view.wrapping.top
        await pilot.press("down", "down")
        await until(pilot, lambda: view.follow and "end059" in screen(pilot))
        assert view.wrapping.top == top + 1
        await pilot.press("home")
        await until(pilot, lambda: "000 word" in screen(pilot))
        view.go_to(view.lines.first + 30)
        await until(pilot, lambda: "030 word" in screen(pilot) and "end030" in screen(pilot))
        await pilot.press("L")
        await until(pilot, lambda: "030 word" not in screen(pilot) or "end030" not in screen(pilot))
        assert view.wrapping.top - view.lines.first in range(24, 31)


async def test_times_are_of_day_since_start_or_hidden(open_app: Open, job: MadeJob) -> None:
    async with open_app() as pilot:
        await show_job(pilot, job.folder)
        await until(pilot, lambda: f"{clock(119)}             ×8 step 119" in screen(pilot))
        await pilot.press("T")
        await until(pilot, lambda: "×8 step 119" in screen(pilot) and clock(119) not in screen(pilot))
        assert re.search(r"│ +\d+:\d\d(?::\d\d)? +×8 step 119", screen(pilot))
        await pilot.press("T")
        await until(pilot, lambda: re.search(r"│ +×8 step 119", screen(pilot)) and setting("timestamps") == "none")


async def test_w_goes_to_the_next_warning_and_the_scrollbar_marks_warnings_and_errors(open_app: Open, job: MadeJob) -> None:
    async with open_app() as pilot:
        await show_job(pilot, job.folder)
        view = job_view(pilot).log_view
        await until(
            pilot, lambda: {"error", "warning"} & set(view.marks.cells(view.lines.first, view.lines.end, 20, None).values()) != set()
        )
        await until(pilot, lambda: "✖│" in screen(pilot))
        await pilot.press("w")
        await until(pilot, lambda: "warnings 1 of 1" in screen(pilot))
        assert view.at is not None
        assert view.lines.line(view.at).text == "[W] NCCL watchdog: waiting"
        await pilot.press("slash", *"step 11[0-9]", "enter")
        await until(pilot, lambda: "◆│" in screen(pilot))


async def test_c_copies_the_selected_line_and_y_all_shown_lines(open_app: Open, job: MadeJob) -> None:
    async with open_app() as pilot:
        await show_job(pilot, job.folder)
        await pilot.press("e", "c")
        await until(pilot, lambda: "Copied the line;" in screen(pilot))
        assert "\n" not in pilot.app.clipboard
        await pilot.press("ampersand", *"watchdog")
        await until(pilot, lambda: "of 964 lines" in screen(pilot))
        await pilot.press("enter", "escape", "Y")
        await until(pilot, lambda: "watchdog" in pilot.app.clipboard)
        assert pilot.app.clipboard == "[W] NCCL watchdog: waiting"


async def test_selected_json_line_is_expanded(open_app: Open, tmp_path: Path) -> None:
    made = MadeJob(tmp_path / "job", 1, state="succeeded")
    made.say(0, '12:00 INFO {"step": 7, "note": "a\\u202e\\u001b[2J", "by": {"loss": 1.5}}')
    made.update(1)
    async with open_app() as pilot:
        await show_job(pilot, made.folder)
        await pilot.press("up", "enter")
        await until(pilot, lambda: '"loss": 1.5' in text_of(pilot, "#whole-line"))
        whole = [line.rstrip() for line in text_of(pilot, "#whole-line").splitlines()]
        assert any(line.endswith('  "step": 7,') for line in whole)
        assert "\u202e" not in screen(pilot) and "\x1b" not in screen(pilot)
