"""Shared by the TUI's tests: an app with a Plan in its own folder, on a recorded machine, driven by keys."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest
from textual.pilot import Pilot

from dstui.documents.plan_files import read_plan
from dstui.jobs.store.folder import JobFolder
from dstui.machine.snapshot import Machine
from dstui.tui.app import DstuiApp
from dstui.tui.kit.row_list import RowList
from dstui.tui.run.job_view import JobView
from tests import machines
from tests.machines import A100, NO_GPU, gpus, joined
from tests.tui.sparing import cache_style_sheets, paint_only_what_is_seen, skip_idle_widgets

PLAN = """\
version: 1
name: small            # a comment that stays
job:
  script: train.py
  args: [--deepspeed_config, "{ds_config}"]
deepspeed:
  train_micro_batch_size_per_gpu: 4
  gradient_accumulation_steps: 2
  bf16:
    enabled: true
  zero_optimization:
    stage: 2
  optimizer:
    type: AdamW
    params: {lr: 1e-4}
"""
SCRIPT = "import deepspeed, argparse\nparser = deepspeed.add_config_arguments(argparse.ArgumentParser())\n"

Open = Callable[..., AbstractAsyncContextManager[Pilot[int]]]


def machine(count: int = 0) -> Machine:
    """Return a recorded machine with `count` A100s, or without GPUs."""
    return machines.machine(*gpus(count, **A100), links=joined(count), host=NO_GPU.host)


@pytest.fixture(autouse=True)
def _skip_unseen_work(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    cache_style_sheets(monkeypatch)
    skip_idle_widgets(monkeypatch)
    if not request.node.get_closest_marker("every_frame"):
        paint_only_what_is_seen(monkeypatch)


@pytest.fixture
def open_app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Open:
    """Return `open_app`: `async with open_app(text, gpus=2, size=(120, 40)) as pilot` starts the app and waits for its first checks."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))  # not the theme of another test
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))  # nor its runs

    @asynccontextmanager
    async def opened(
        text: str = PLAN, *, gpus: int = 0, size: tuple[int, int] = (120, 40), reference: bool = False
    ) -> AsyncIterator[Pilot[int]]:
        path = tmp_path / "plan.yaml"
        path.write_text(text)
        (tmp_path / "train.py").write_text(SCRIPT)
        app = DstuiApp(read_plan(path), path, machine(gpus), reference=reference)
        async with app.run_test(size=size, notifications=True) as pilot:
            await until(pilot, lambda: app.session.state.checked and app.session.state.lookups)
            yield pilot

    return opened


async def until(pilot: Pilot[int], true: Callable[[], object], seconds: float = 60.0) -> None:
    """Wait until a condition is true."""
    for _ in range(int(seconds / 0.02)):
        await pilot.pause()  # at least 0.02 s
        if true():
            return
    raise AssertionError(f"not within {seconds} s; the screen shows:\n{screen(pilot)}")


def store(pilot: Pilot[int]):
    """Return the session of the app under test."""
    assert isinstance(pilot.app, DstuiApp)
    return pilot.app.session


def job_view(pilot: Pilot[int]) -> JobView:
    """Return the view of jobs."""
    assert isinstance(pilot.app, DstuiApp)
    return pilot.app.run_screen.view


async def attach(pilot: Pilot[int], folder: JobFolder) -> JobView:
    """Go to the Run screen and attach to a job."""
    assert isinstance(pilot.app, DstuiApp)
    await pilot.press("9")
    await until(pilot, lambda: pilot.app.run_screen.is_mounted)
    pilot.app.run_screen.attach(folder)
    return job_view(pilot)


def value(pilot: Pilot[int], path: str) -> object:
    """Return a value of the Plan."""
    return store(pilot).state.plan.get(path)


def letters(pilot: Pilot[int]) -> str:
    """Return the letters of the answers that the open question offers, in their order; "" if none is open."""
    return "".join(answer.key for answer in getattr(pilot.app.screen, "answers", ()))


def log_is_shown(pilot: Pilot[int]) -> bool:
    """Return whether the log of a job is on the screen."""
    view = job_view(pilot)
    return view.job is not None and view.log_view.is_on_screen and len(pilot.app.screen_stack) == 1


def codes(pilot: Pilot[int]) -> set[str]:
    """Return the codes of the findings that the session shows."""
    return {finding.code for finding in store(pilot).state.findings}


def keys(pilot: Pilot[int], selector: str) -> set[object]:
    """Return the keys of the rows of a list; for the fields of a form, their paths."""
    return {getattr(row.key, "path", row.key) for row in pilot.app.screen.query_one(selector, RowList).rows} - {None}


def notices(pilot: Pilot[int], severity: str = "") -> list[str]:
    """Return the notifications of the app, or those of one severity."""
    return [note.message for note in pilot.app._notifications if severity in ("", note.severity)]


def screen(pilot: Pilot[int]) -> str:
    """Return the whole screen as text."""
    lines = pilot.app.screen._compositor.render_strips()
    return "\n".join(strip.text for strip in lines)


def hidden_by_the_scrollbar(pilot: Pilot[int]) -> list[str]:
    """Return the lines of the dialog in front that are longer than what is visible of its rows."""
    rows = pilot.app.screen.query_one(RowList)
    return [one.text for one in rows.rows if rows.MARGIN + len(one.text) > rows.scrollable_content_region.width]


def text_of(pilot: Pilot[int], selector: str) -> str:
    """Return the rows of a list as text."""
    return "\n".join(row.text for row in pilot.app.screen.query_one(selector, RowList).rows)
