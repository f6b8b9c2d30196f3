"""A job folder of somebody else in the TUI: no key starts a program that it names; only a yes to the question does."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from textual.pilot import Pilot

from dstui.jobs.store.folder import JobFolder
from dstui.jobs.store.index import folders
from dstui.jobs.store.plan_diff import plan_of
from dstui.tui.app import DstuiApp
from dstui.tui.kit.keys import ANYWHERE, KEYS, PLOT
from dstui.tui.plot.plot_screen import Plot
from dstui.tui.session.session import HERE
from tests.owned import add_to_index
from tests.tui.conftest import letters, log_is_shown, machine, notices, text_of, until
from tests.tui.test_reason import job

HARM = "harm"
"""The folder in which each program named by the foreign folder leaves a file when it runs."""
PANES = {"run": ("9",), "review": ("8",), "form": ("3",), PLOT: ("9", "m")}
"""The keys that lead to each pane in the table of keys."""


def canary(path: Path, harm: Path) -> None:
    path.write_text(f'#!/bin/sh\ntouch "{harm}/{path.name}"\n')
    path.chmod(0o755)


@pytest.fixture
def foreign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> JobFolder:
    """Write a job folder as a repository may bring it: its interpreter, script, on_end and ssh are canaries."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    cloned, harm = tmp_path / "cloned", tmp_path / HARM
    for folder in (cloned, harm):
        folder.mkdir()
    for name in ("python", "on_end", "ssh"):
        canary(cloned / name, harm)
    (cloned / "train.py").write_text(f"open('{harm}/train.py', 'w')\n")
    text = "version: 1\nname: cloned\njob: {script: train.py, args: [--deepspeed_config, '{ds_config}'], python: ./python}\n"
    text += f"cluster: {{cpu_ranks: 1}}\nrun: {{on_end: {cloned}/on_end}}\ndeepspeed: {{train_micro_batch_size_per_gpu: 1}}\n"
    return job(cloned / "run", plan=text, base=cloned)


def executed_canaries() -> list[str]:
    return sorted(path.name for path in Path(HARM).iterdir())


def app_on(folder: JobFolder) -> DstuiApp:
    """Return the app of `dstui attach FOLDER`, on this machine without GPUs."""
    return DstuiApp(plan_of(folder), None, replace(machine(0), source=HERE, recorded=False), folder, reference=False)


def keys_of(pane: str) -> Iterator[str]:
    """Yield the keys of a pane, except those that quit; keys that act alike in all panes only for the run."""
    hints = (hint for hint in KEYS if pane in hint.where and hint.name != "leave" and (pane == "run" or not hint.where >= ANYWHERE))
    return (name for hint in hints for name in hint.keys.split(",") if name)


async def back_to(pilot: Pilot[int], pane: str) -> None:
    """Close dialogs and return to the pane if a key left it."""
    assert isinstance(pilot.app, DstuiApp)
    plotted = pane == PLOT and isinstance(pilot.app.screen, Plot)
    while len(pilot.app.screen_stack) > 1 and not plotted:
        await pilot.press("escape")
    if not plotted and (pane == PLOT or pilot.app.step.pane != pane):
        await pilot.press(*PANES[pane])


@pytest.mark.heavy
@pytest.mark.parametrize("pane", PANES)
async def test_no_key_starts_a_program_of_a_foreign_folder(pane: str, foreign: JobFolder) -> None:
    app = app_on(foreign)
    async with app.run_test(size=(120, 40), notifications=True) as pilot:
        await until(pilot, lambda: log_is_shown(pilot))
        for key in keys_of(pane):
            await back_to(pilot, pane)
            await pilot.press(key)
            if len(app.screen_stack) > 1 and not isinstance(app.screen, Plot):
                await pilot.press("enter")  # the default answer of a dialog
            elif key == "l":
                await until(pilot, lambda: len(app.screen_stack) > 1 or app.step.pane == "review")
                await pilot.press("l", "enter")
        assert executed_canaries() == []
        assert not [folder for folder in folders() if folder != foreign], "no job was started"


async def test_launch_again_opens_review_and_asks_before_starting_a_foreign_program(foreign: JobFolder) -> None:
    app = app_on(foreign)
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await until(pilot, lambda: log_is_shown(pilot))
        await pilot.press("l")
        await until(pilot, lambda: letters(pilot) == "ny")
        assert app.step.pane == "review"
        shown = "".join(text_of(pilot, "#answers").split())
        for words in ("not yours: run is not in your index of runs", "/cloned/python", "train.py", "hosts localhost", "/cloned/on_end"):
            assert words.replace(" ", "") in shown
        await pilot.press("enter")
        await until(pilot, lambda: not letters(pilot) and notices(pilot))
        assert executed_canaries() == []
        await pilot.press("l")
        await until(pilot, lambda: letters(pilot) == "ny")
        await pilot.press("y")
        await until(pilot, lambda: "python" in executed_canaries())
    told = json.loads((Path("state") / "dstui" / "interpreters.json").read_text())
    assert [entry["yes"] for entry in told] == [True], "the interpreter is not asked about again"


async def test_launch_again_of_an_own_job_asks_about_an_interpreter_without_consent(foreign: JobFolder) -> None:
    add_to_index(foreign)
    status = json.loads(foreign.status_file.read_text()) | {"tag": "a-tag"}
    foreign.status_file.write_text(json.dumps(status))
    app = app_on(foreign)
    async with app.run_test(size=(120, 40), notifications=True) as pilot:
        await until(pilot, lambda: log_is_shown(pilot))
        await pilot.press("l")
        await until(pilot, lambda: letters(pilot) == "ny")
        assert executed_canaries() == []
