"""The guided tour: names a key, waits until it has had its effect, and resumes. tests/long/test_tour.py runs all of it, with jobs."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from dstui.base.files import FileProblem
from dstui.documents.plan_files import read_plan
from dstui.tui.app import DstuiApp
from dstui.tui.kit.keys import KEYS
from dstui.tui.tour.folder import TourFolder
from dstui.tui.tour.guide import Guide, TourPanel, text_rows
from dstui.tui.tour.steps import NAMES, TOUR
from tests.command import dstui
from tests.tui.conftest import machine, screen, until


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TourFolder:
    """Start a tour in a folder that also holds the user's state."""
    for name in ("XDG_STATE_HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "DSTUI_SITE"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.chdir(tmp_path)
    made = TourFolder(tmp_path / "tour")
    made.prepare()
    made.enter()
    return made


@pytest.mark.parametrize("step", TOUR, ids=NAMES)
def test_step_fits_the_panel_and_names_existing_keys(step) -> None:
    assert len(text_rows(step, 77)) <= TourPanel.LINES
    keys = {key for hint in KEYS for key in (hint.shown, *hint.shown.split())} | {
        ":",
        "doctor",
        "↓",
        "Enter",
        "Esc",
        "1",
        "3",
        "6",
        "l",
        "]",
    }
    assert set(step.key.split()) <= keys, step.key


async def test_tour_waits_for_the_key_and_resumes(folder: TourFolder) -> None:
    def app() -> tuple[DstuiApp, Guide]:
        made = DstuiApp(read_plan(folder.plan), folder.plan, machine(), reference=False)
        guide = Guide(made, folder)
        guide.begin()
        return made, guide

    first, guide = app()
    async with first.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: "press : doctor Enter" in screen(pilot))
        await pilot.press("3", "4")  # other keys work, and the tour waits
        await until(pilot, lambda: "4 · Offload" in screen(pilot))
        assert guide.step.name == "doctor"
        await pilot.press("colon")
        await until(pilot, lambda: "Search for commands" in screen(pilot))
        await pilot.press(*"tour: the next")
        await until(pilot, lambda: "Skip this step" in screen(pilot) and "Theme" not in screen(pilot))
        await pilot.press("enter")
        await until(pilot, lambda: guide.step.name == "zero")  # a step of a Plan that is open already is recognised
        await pilot.press("3")
        await until(pilot, lambda: "press F1" in screen(pilot))
        await pilot.press("f1")
        await until(pilot, lambda: "first Esc, then l" in screen(pilot))
    again, guide = app()
    async with again.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: "Before a launch" in screen(pilot))
        await pilot.press("l")
        await until(pilot, lambda: "The launch" in screen(pilot) and "press l" in screen(pilot))
        guide.go(NAMES.index("fail") - guide.number)  # this step needs another Plan: return to the step that makes it
        await until(pilot, lambda: guide.step.name == "micro" and "first 6, then Enter" in screen(pilot))


def test_foreign_folder_is_no_tour(folder: TourFolder, tmp_path: Path) -> None:
    shutil.copytree(folder.path, tmp_path / "cloned")
    with pytest.raises(FileProblem, match="not a tour that was begun here"):
        TourFolder(tmp_path / "cloned").prepare()
    folder.note("fix")
    folder.prepare()
    assert folder.step == "fix" and json.loads((folder.path / "tour.json").read_text())["version"] == 1
    folder.prepare(again=True)
    assert folder.step == ""
    done = dstui("tour", str(tmp_path / "cloned"), cwd=tmp_path)
    assert done.returncode == 2 and "needs a terminal" in done.stderr
