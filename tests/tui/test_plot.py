"""Metrics over steps: what a plot shows, and the keys that change it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from rich.cells import cell_len
from textual.pilot import Pilot

from dstui.jobs.metrics.series import MetricSeries
from dstui.jobs.store.folder import JobFolder
from dstui.jobs.watch.summary import value_text
from dstui.tui.plot.canvas import Canvas
from dstui.tui.plot.cells import picture_rows
from dstui.tui.plot.curves import Axis, Picture, PlotLine, View, decades, picture, ticks
from dstui.tui.session.messages import PathChosen
from tests.owned import add_to_index
from tests.tui.conftest import Open, attach, log_is_shown, screen, text_of, until, value

CELLS = (60, 20)


def job(path: Path, logs: dict[int, str], state: str = "succeeded", **attempts: str) -> JobFolder:
    """Write a job as its supervisor leaves it; `attempt_2="…"` is the log of rank 0 in that attempt."""
    folder = JobFolder(path)
    folder.prepare(1)
    for rank, text in logs.items():
        folder.log(rank).write_text(text)
    for name, text in attempts.items():
        folder.prepare(int(name[-1]))
        folder.log(0, int(name[-1])).write_text(text)
    ranks = {str(rank): {"host": "here", "pid": 1, "state": "ended", "exit_code": 0} for rank in logs}
    moments = {"started": "2026-01-01T00:00:00+00:00", "ended": "2026-01-01T00:00:17+00:00"}
    folder.status_file.write_text(json.dumps({"state": state, "exit_code": 0, **moments, "attempt": 1 + len(attempts), "ranks": ranks}))
    return folder


def drawn(folder: JobFolder, view: View = View(), other: JobFolder | None = None) -> Picture:  # noqa: B008
    runs = [MetricSeries(each) for each in (folder, other) if each is not None]
    for history in runs:
        while history.advance(0.01):
            pass
    return picture(runs[0], view, CELLS, value_text, runs[1:])


def steps(count: int, loss: str = "{0}") -> str:
    return "".join(f"step {n} loss {loss.format(n)}\n" for n in range(1, count + 1))


def styles(shown: Picture) -> list[str]:
    return [line.style for line in shown.lines]


def test_one_rank_is_a_line_and_several_are_a_mean_between_two_faint_ones(tmp_path: Path) -> None:
    assert drawn(job(tmp_path / "one", {0: steps(3)})).lines == [PlotLine([1, 2, 3], [1, 2, 3], "main")]
    shown = drawn(job(tmp_path / "two", {0: steps(2), 1: steps(2, "{0}0")}))
    assert shown.lines == [PlotLine([1, 2], [1, 2], "faint"), PlotLine([1, 2], [10, 20], "faint"), PlotLine([1, 2], [5.5, 11], "main")]


def test_every_rank_has_a_named_line(tmp_path: Path) -> None:
    shown = drawn(job(tmp_path / "job", {0: steps(2), 1: steps(2), 9: steps(2)}), View(each=True))
    assert [(line.label, line.style) for line in shown.lines] == [("r0", "rank 0"), ("r1", "rank 1"), ("r9", "rank 1")]


def test_smoothed_line_is_drawn_over_the_raw_one(tmp_path: Path) -> None:
    shown = drawn(job(tmp_path / "job", {0: "step 1 loss 0\nstep 2 loss 1\n"}), View(weight=0.6))
    assert styles(shown) == ["faint", "main"]
    assert shown.lines[1].ys == pytest.approx([0, 0.4 / 0.64])


def test_names_of_lines_that_end_together_are_all_readable() -> None:
    names = ("many8", "beta", "eval")
    lines = [
        PlotLine([1, 2], [2.0, 1 + n / 100], style, name)
        for n, (name, style) in enumerate(zip(names, ("main", "other", "beside"), strict=True))
    ]
    rows = picture_rows(Picture(lines=lines, x=Axis(1, 2, [], []), y=Axis(0, 2, [], [])), 40, 12)
    assert all(any(name in row.text for row in rows) for name in names), rows


def test_logarithmic_scale_omits_values_and_says_so(tmp_path: Path) -> None:
    shown = drawn(job(tmp_path / "job", {0: "step 1 loss 100\nstep 2 loss 0\nstep 3 loss 0.1\n"}), View(log=True))
    assert shown.lines[0].ys == pytest.approx([2, -1]) and shown.left_out == 1
    assert [text.strip() for text in shown.y.texts] == ["0.1", "1", "10", "100"]


def test_evaluation_is_drawn_at_the_trainers_step(tmp_path: Path) -> None:
    shown = drawn(job(tmp_path / "job", {0: steps(4) + "eval_loss: 7\n"}))
    assert shown.lines[-1] == PlotLine([4], [7], "beside", "eval")


def test_attempts_are_marked_at_their_start_and_the_last_is_the_main_one(tmp_path: Path) -> None:
    shown = drawn(job(tmp_path / "job", {0: steps(4)}, attempt_2="step 3 loss 5\nstep 4 loss 6\n", attempt_3="step 5 loss 9\n"))
    assert (styles(shown), shown.attempts) == (["faint", "faint", "main"], {3: 5, 2: 3})


def test_nan_is_marked_and_reported(tmp_path: Path) -> None:
    shown = drawn(job(tmp_path / "job", {0: "step 1 loss 1\nstep 2 loss nan\nstep 3 loss inf\nstep 9 loss nan\n"}))
    assert [(mark.x, mark.top) for mark in shown.marks] == [(2, False), (3, True), (9, False)]
    assert shown.faults == "NaN at step 2 and 2 more" and shown.x.high == 9


@pytest.mark.parametrize("log", [False, True])
@pytest.mark.parametrize("values", [["1.7e308", "-1.7e308"], ["1.7e308", "inf"], ["5e-324", "0"], ["1e-300", "1e300"], ["nan"]])
def test_extreme_values_are_drawn(tmp_path: Path, values: list[str], log: bool) -> None:
    text = "".join(f"step {n} loss {value}\n" for n, value in enumerate(values))
    shown = drawn(job(tmp_path / "中文", {0: text, 1: text}), View(log=log, weight=0.6), JobFolder(tmp_path / "中文"))
    for width, height in ((0, 0), (5, 3), CELLS):
        rows = picture_rows(shown, width, height)
        assert len(rows) in (0, height) and all(sum(cell_len(span.text) for span in row.left) <= width for row in rows)


def test_another_run_is_drawn_beside(tmp_path: Path) -> None:
    shown = drawn(job(tmp_path / "job", {0: steps(2)}), other=job(tmp_path / "other", {0: steps(3)}))
    assert [(line.style, line.xs) for line in shown.lines] == [("main", [1, 2]), ("other", [1, 2, 3])]


def test_no_data_gives_an_empty_picture(tmp_path: Path) -> None:
    assert drawn(job(tmp_path / "job", {0: "hello\n"})).lines == []


def test_axes_have_round_numbers() -> None:
    assert ticks(0, 400, 4) == [0, 100, 200, 300, 400]
    assert ticks(0.31, 4.2, 5) == [1, 2, 3, 4]
    assert ticks(3, 3, 5) == [3]
    assert decades(-4.2, -0.5, 5) == [-4, -3, -2, -1]


# In the TUI


async def open_plot(pilot: Pilot[int], folder: JobFolder) -> None:
    await attach(pilot, folder)
    await pilot.press("m")
    await until(pilot, lambda: "Metrics" in screen(pilot) and "reading" not in screen(pilot))


def box(pilot: Pilot[int]) -> str:
    """Return the text of the plot's frame."""
    frame = pilot.app.screen.query_one("#plot-box")
    return f"{frame.border_title} | {frame.border_subtitle}"


def metrics(pilot: Pilot[int]) -> list[str]:
    """Return the list of metrics with their latest values."""
    return [" ".join(line.split()) for line in text_of(pilot, "#metrics").splitlines()]


async def test_m_opens_the_plot_of_the_loss_and_closes_it(open_app: Open, tmp_path: Path) -> None:
    folder = job(tmp_path / "job", {0: steps(50) + "step 51 loss nan lr 1e-05\n", 1: steps(50)})
    async with open_app() as pilot:
        await open_plot(pilot, folder)
        await until(pilot, lambda: "mean of 2 ranks" in box(pilot) and "✖ NaN at step 51" in box(pilot))
        assert metrics(pilot) == ["loss nan", "lr 1e-05"]
        assert any("⠀" < char <= "⣿" for char in screen(pilot)), "there is a line"
        assert "✖" in screen(pilot).partition("NaN at step")[0], "and a mark"
        await pilot.press("m")
        await until(pilot, lambda: log_is_shown(pilot))


async def test_keys_change_the_plot(open_app: Open, tmp_path: Path) -> None:
    text = "".join(f"step {n} loss {n} lr 0.1\n" for n in range(1, 9))
    async with open_app(size=(80, 24)) as pilot:
        await open_plot(pilot, job(tmp_path / "job", {0: text, 1: text}))
        await until(pilot, lambda: "mean of 2 ranks" in box(pilot))
        await pilot.press("a", "plus", "y")
        await until(pilot, lambda: box(pilot).startswith("loss · 2 ranks · smoothed 0.6 · log"))
        await pilot.press("minus", "y", "a", "down")
        await until(pilot, lambda: box(pilot).startswith("lr · mean of 2 ranks"))
        await pilot.press("f1")
        await until(pilot, lambda: "moving average" in screen(pilot))
        await pilot.press("escape", "escape")
        await until(pilot, lambda: log_is_shown(pilot))


async def test_two_moves_at_once_end_at_the_second(open_app: Open, tmp_path: Path) -> None:
    """Each move redraws the plot, which moves nothing back."""
    async with open_app() as pilot:
        lines = "".join(f"step {n} loss {n} lr 0.{n} grad_norm {n}\n" for n in range(1, 9))
        await attach(pilot, job(tmp_path / "job", {0: lines}))
        await pilot.press("m")
        await until(pilot, lambda: "grad" in text_of(pilot, "#metrics"))
        plot = pilot.app.screen
        names = list(plot.metrics.keys)
        plot.metrics.action_edge(-1)
        await pilot.pause()
        plot.metrics.action_move(1)
        plot.metrics.action_move(1)
        await until(pilot, lambda: plot.view.name == names[2])
        await pilot.pause()
        settled = plot.view
        await pilot.pause(0.1)
        assert plot.view is settled and settled.name == names[2]


@pytest.mark.parametrize("theme", ["ansi-dark", "dstui-light", "dstui"])
async def test_plot_is_drawn_in_every_theme_and_without_colours(
    open_app: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, theme: str
) -> None:
    if theme == "dstui":
        monkeypatch.setenv("NO_COLOR", "1")
    async with open_app() as pilot:
        pilot.app.theme = theme
        await open_plot(pilot, job(tmp_path / "job", {0: steps(20) + "eval_loss: 9\n", 1: steps(20, "{0}5")}, attempt_2=steps(30)))
        await until(pilot, lambda: "attempt 2" in screen(pilot) and "●" in screen(pilot) and "eval" in screen(pilot))
        assert pilot.app.no_color is (theme == "dstui")
        canvas = pilot.app.screen.query_one(Canvas)
        grounds = {segment.style.bgcolor for y in range(canvas.size.height) for segment in canvas.render_line(y)}
        assert len(grounds) == 1, "a label has the background of the plot"


async def test_plot_grows_while_the_job_runs(open_app: Open, tmp_path: Path) -> None:
    folder = job(tmp_path / "job", {0: steps(5)}, state="running")
    lock = add_to_index(folder).lock()
    assert lock is not None
    async with open_app() as pilot:
        await open_plot(pilot, folder)
        await until(pilot, lambda: "loss 5" in metrics(pilot))
        with folder.log(0).open("a") as log:
            log.write("step 6 loss 77 reward 3\n")
        await until(pilot, lambda: "loss 77" in metrics(pilot))


async def test_another_run_is_picked_from_the_list_and_removed(open_app: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))  # without the runs of other tests
    job(tmp_path / "dstui_runs/before", {0: steps(20)})
    add_to_index(job(tmp_path / "elsewhere/dstui_runs/theirs", {0: steps(20)}))
    async with open_app() as pilot:
        await open_plot(pilot, job(tmp_path / "job", {0: steps(9)}))
        await pilot.press("o")
        await until(pilot, lambda: "Add another run to the plot" in screen(pilot) and "before" in screen(pilot))
        listed = [line for line in text_of(pilot, "#other-runs").splitlines() if line.strip()]
        assert "before" in listed[0] and "elsewhere" not in listed[0], "runs of this project come first"
        assert "theirs" in listed[1] and str(tmp_path / "elsewhere")[-20:] in listed[1]
        while "▸ before" not in screen(pilot):
            await pilot.press("down")
        await pilot.press("enter")
        await until(pilot, lambda: "beside before" in box(pilot) and "other run" in screen(pilot))
        await pilot.press("o")
        await until(pilot, lambda: "beside" not in box(pilot))


def test_startup_does_not_import_the_plot() -> None:
    code = "import sys, dstui.cli, dstui.headless, dstui.tui.app, dstui.tui.run.job_view, dstui.tui.commands\n"
    code += "print([name for name in sys.modules if name.startswith('dstui.tui.plot')])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"


async def test_custom_metrics_are_edited_in_the_form_and_a_bad_pattern_is_refused(open_app: Open) -> None:
    async with open_app() as pilot:
        pilot.app.plan_screen.jump(PathChosen("run.metrics"))
        await pilot.press("enter", *"reward: r[=: ]+([0-9]+), kl: kl (\\S+)", "enter")
        await until(pilot, lambda: value(pilot, "run.metrics") == {"reward": "r[=: ]+([0-9]+)", "kl": "kl (\\S+)"})
        await pilot.press("enter", "end", "backspace")  # the last group is no longer closed
        await until(pilot, lambda: "not a regular expression" in screen(pilot))
        assert value(pilot, "run.metrics.kl") != "kl (\\S+"


async def test_q_quits_from_the_plot(open_app: Open, tmp_path: Path) -> None:
    async with open_app() as pilot:
        await open_plot(pilot, job(tmp_path / "job", {0: steps(3)}))
        await pilot.press("q")
        await until(pilot, lambda: pilot.app.leaving)


async def test_plot_of_nothing_has_no_axes(open_app: Open, tmp_path: Path) -> None:
    async with open_app() as pilot:
        await attach(pilot, job(tmp_path / "job", {0: "no number\n"}))
        await until(pilot, lambda: log_is_shown(pilot))
        await pilot.press("m")
        await until(pilot, lambda: "No metrics yet." in screen(pilot))
        assert text_of(pilot, "#canvas") == ""
