"""The run as a dashboard: plots and GPUs beside the log on a wide screen, sparklines on a narrower one, only the log on a small one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from textual.pilot import Pilot

from dstui.jobs.metrics.buckets import Buckets
from dstui.jobs.store.events import Metric
from dstui.jobs.store.folder import JobFolder
from dstui.jobs.watch.usage_history import USAGE_HISTORY, History, Sample
from dstui.tui.plot.plot_screen import Plot
from dstui.tui.run.braille import braille
from dstui.tui.run.charts import LOWEST, grid, pinned_first, sparks
from dstui.tui.run.run_series import RunSeries, usage_series
from dstui.tui.run.usage_pane import load_line, usage_rows
from dstui.tui.session.settings import setting
from tests.tui.conftest import Open, attach, job_view, screen, text_of, until
from tests.tui.test_plot import job

GIB = 1 << 30
LINES = "".join(f"step {n} loss {4 - n / 50:.3f} lr {n / 1e6:.6f} grad_norm 1.{n % 10}\n" for n in range(1, 101))


def series(**values: list[float]) -> RunSeries:
    found = RunSeries()
    for name, numbers in values.items():
        for step, value in enumerate(numbers, 1):
            found.add(Metric(0, step, name, value))
    return found


@pytest.fixture
def run(tmp_path: Path) -> JobFolder:
    """Return an ended job of two ranks with the use of its GPUs."""
    folder = job(tmp_path / "job", {0: LINES, 1: LINES})
    packed = ["GPU", 97, 71 * GIB, 80 * GIB, 88, 612.0, 4, ["power cap"]]
    looks = [{"t": 1000.0 + 5 * n, "ranks": {"0": packed, "1": ["GPU", n, None, None, None, None, 5, []]}} for n in range(60)]
    (folder.path / USAGE_HISTORY).write_text("".join(json.dumps(look) + "\n" for look in looks))
    return folder


async def shown(pilot: Pilot[int], folder: JobFolder) -> None:
    await attach(pilot, folder)
    await until(pilot, lambda: job_view(pilot).series.count >= 300)
    job_view(pilot).draw()


def test_rising_line_goes_from_lower_left_to_upper_right() -> None:
    assert braille([(0, 0), (1, 1)], (2, 1), 0, 1) == ["⡠⠊"]
    assert braille([(0, 1), (1, 1)], (2, 1), 1, 1) == ["⠒⠒"]
    assert braille([], (2, 2), 0, 1) == ["  ", "  "]


def test_most_useful_metrics_come_first_and_plan_metrics_follow_the_loss() -> None:
    found = series(epoch=[1], odd=[1], grad_norm=[1], lr=[1], loss=[1], mine=[1])
    assert list(found.ordered(["mine"])) == ["loss", "mine", "lr", "grad_norm", "odd", "epoch"]


def test_series_is_that_of_the_lowest_rank() -> None:
    found = RunSeries()
    for rank, value in ((3, 3.0), (1, 1.0), (3, 4.0)):
        found.add(Metric(rank, 1, "loss", value))
    assert found.ordered()["loss"].last == 1.0


@pytest.mark.parametrize(
    ("width", "height", "lines"),
    [(80, 30, [["a", "b"], ["c"]]), (80, 60, [["a"], ["b"], ["c"]]), (40, 14, [["a"], ["b"]]), (40, LOWEST - 1, []), (0, 0, [])],
)
def test_number_of_plots_follows_the_room(width: int, height: int, lines: list[list[str]]) -> None:
    rows, names = grid(series(a=[1, 2], b=[3, 1], c=[1, 1], d=[1]).ordered(), width, height)
    assert names == lines
    assert not lines or {len(row.text) for row in rows} == {width}


def test_plots_of_a_high_screen_leave_no_empty_lines() -> None:
    assert len(grid(series(a=[1, 2], b=[3, 1], c=[1, 1], d=[1, 2]).ordered(), 90, 52)[0]) == 52


def test_plot_of_nan_values_says_so() -> None:
    rows, _ = grid(series(loss=[1.0, float("nan"), 2.0]).ordered(), 40, 10)
    assert "✖ 1 no number" in rows[0].text


def test_two_lines_of_sparklines_hold_what_fits() -> None:
    many = {f"metric{n}": Buckets() for n in range(9)}
    for each in many.values():
        each.add(1, 1.0)
        each.add(2, 2.0)
    rows = sparks(many, 80).rows
    assert [row.text.split()[0] for row in rows] == ["metric0", "metric5"]


def test_gpu_shows_five_minutes_and_its_throttling() -> None:
    samples = [Sample(1000.0 + 5 * n, "GPU", 97, 71 * GIB, 80 * GIB, 88, 612.0, 4, ("power cap",)) for n in range(60)]
    text = usage_rows(History({4: samples}), 120)[0].text
    assert "r4 GPU 4" in text and "97 %  71.0/80 GB  88 °C  612 W  ▲ slowed: power cap" in text
    assert load_line([Sample(0.0, "GPU", 0), Sample(299.0, "GPU", 100)], 0.0, 4) == "▁  ▇"
    assert usage_rows(History(note="GPU unknown: NVML is not there"), 80)[0].text == "n/a: GPU unknown: NVML is not there"


def test_gpu_use_is_plotted_and_pinned_plots_come_first() -> None:
    samples = [Sample(1000.0 + 5 * n, "GPU", 90 + n % 10, 71 * GIB, 80 * GIB) for n in range(20)]
    used = usage_series(History({4: samples, 0: samples}))
    assert list(used) == ["gpu util r4", "gpu util r0", "gpu memory r4", "gpu memory r0"]
    shown = pinned_first(series(loss=[1, 2, 3]).ordered(), used, ["gpu util", "gone"])
    assert list(shown) == ["gpu util r4", "gpu util r0", "loss"]
    text = "\n".join(row.text for row in grid(shown, 40, LOWEST)[0])
    assert "gpu util r4 99 %" in text and "seconds 0 to 95" in text


async def test_wide_screen_has_plots_and_gpus_and_d_hides_them_permanently(open_app: Open, run: JobFolder) -> None:
    async with open_app(size=(200, 60)) as pilot:
        await shown(pilot, run)
        await until(pilot, lambda: "loss 2" in text_of(pilot, "#charts") and "GPU 4" in text_of(pilot, "#usage"))
        assert "step 1 to 100" in text_of(pilot, "#charts")
        await pilot.press("D")
        await until(pilot, lambda: setting("dashboard") is False and "GPUs, last 5 min" not in screen(pilot))
    async with open_app(size=(200, 60)) as pilot:
        await shown(pilot, run)
        assert not job_view(pilot).charts.display


async def test_click_on_a_plot_enlarges_it(open_app: Open, run: JobFolder) -> None:
    async with open_app(size=(200, 60)) as pilot:
        await shown(pilot, run)
        await until(pilot, lambda: "╭─ lr" in text_of(pilot, "#charts"))
        await pilot.click("#charts", offset=(60, 3))
        await until(pilot, lambda: isinstance(pilot.app.screen, Plot) and pilot.app.screen.view.name == "lr")


@pytest.mark.parametrize(("size", "lines"), [((120, 40), True), ((80, 24), False)])
async def test_narrower_screen_has_sparklines_and_a_small_one_only_the_log(
    open_app: Open, run: JobFolder, size: tuple[int, int], lines: bool
) -> None:
    async with open_app(size=size) as pilot:
        await shown(pilot, run)
        assert [row.text.split()[0] for row in (job_view(pilot).head.sparks or ((),))[0]] == (["loss"] if lines else [])
        await until(pilot, lambda: ("lr ▁" in text_of(pilot, "#run-head")) == lines)
        assert not job_view(pilot).charts.display


async def test_plot_goes_to_the_loss_that_is_read_after_the_gpu_use(
    open_app: Open, run: JobFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dstui.tui.plot.plot_screen.REST", 0.1)
    for rank in (0, 1):
        run.log(rank).write_text("starting\n")
    async with open_app() as pilot:
        await attach(pilot, run)
        await until(pilot, lambda: "starting" in screen(pilot), 20)
        await pilot.press("m")
        await until(pilot, lambda: isinstance(pilot.app.screen, Plot) and "gpu" in pilot.app.screen.view.name, 20)
        with run.log(0).open("a") as log:
            log.write(LINES)
        await until(pilot, lambda: pilot.app.screen.view.name == "loss", 20)


async def test_gpu_use_is_in_the_plot_and_asterisk_pins_it_to_the_dashboard(open_app: Open, run: JobFolder) -> None:
    async with open_app(size=(200, 60)) as pilot:
        await shown(pilot, run)
        await pilot.press("m")
        await until(pilot, lambda: isinstance(pilot.app.screen, Plot) and "gpu util" in pilot.app.screen.history.names())
        plot = pilot.app.screen
        plot.metrics.cursor = "gpu util"
        await until(pilot, lambda: "over seconds" in screen(pilot) and "percent of the time" in screen(pilot))
        await pilot.press("asterisk")
        await until(pilot, lambda: list(setting("pinned")) == ["gpu util"])
        await pilot.press("escape")
        await until(pilot, lambda: "gpu util r0 97 %" in text_of(pilot, "#charts"))
