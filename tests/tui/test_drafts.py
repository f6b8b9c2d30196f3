"""Unsaved edits: kept on disk while they are made, offered when the session ended without an answer, gone when they are not needed."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from dstui.base.files import write_atomic
from dstui.tui.session.drafts import Draft, drafts_folder, left_behind
from tests.tui.conftest import PLAN, Open, screen, store, text_of, until, value
from tests.waiting import wait_for

EDITED = PLAN.replace("stage: 2", "stage: 3")


@pytest.fixture(autouse=True)
def state_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A state folder of its own for each test."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state"


def leave_behind(folder: Path, **more: object) -> Draft:
    """A draft of the test's Plan, of a process that is no more."""
    draft = Draft(str(folder / "plan.yaml"), PLAN, EDITED, "plan.yaml", str(folder), ticks=1)
    draft = replace(draft, **more)
    draft.keep()
    return draft


def drafts() -> list[dict[str, object]]:
    """What is in the folder of drafts."""
    found = []
    for file in drafts_folder().glob("*.json"):
        with suppress(FileNotFoundError):  # taken away since
            found.append(json.loads(file.read_text()))
    return found


async def test_an_edit_is_soon_on_disk_and_the_file_of_the_plan_is_not_touched(open_app: Open, tmp_path: Path) -> None:
    async with open_app() as pilot:
        await pilot.press("3", "down", "enter")
        await until(pilot, lambda: [d["text"] for d in drafts()] == [EDITED])
        assert (tmp_path / "plan.yaml").read_text() == PLAN
        assert left_behind() == []  # whose session lives


@pytest.mark.parametrize("keys", [["f2"], ["z"]])
async def test_no_draft_is_left_where_nothing_is_unsaved(open_app: Open, keys: list[str]) -> None:
    async with open_app() as pilot:
        await pilot.press("3", "down", "enter")
        await until(pilot, drafts)
        await pilot.press(*keys)
        await until(pilot, lambda: not drafts())


async def test_who_leaves_and_discards_is_not_asked_again(open_app: Open) -> None:
    async with open_app() as pilot:
        await pilot.press("3", "down", "enter")
        await until(pilot, drafts)
        await pilot.press("q", "d")
    wait_for(lambda: not drafts())  # a thread takes it away


async def test_what_was_left_behind_is_offered_with_its_lines_and_undo_takes_it_back(open_app: Open, tmp_path: Path) -> None:
    old = leave_behind(tmp_path)
    async with open_app() as pilot:
        await until(pilot, lambda: "Unsaved edits" in screen(pilot))
        assert "-    stage: 2" in text_of(pilot, "#answers")
        assert "+    stage: 3" in text_of(pilot, "#answers")
        await pilot.press("t")
        await until(pilot, lambda: value(pilot, "deepspeed.zero_optimization.stage") == 3)
        assert not store(pilot).state.saved
        await until(pilot, lambda: not old.file.exists() and [d["text"] for d in drafts()] == [EDITED])
        await pilot.press("z")
        assert store(pilot).state.plan.text == PLAN


@pytest.mark.parametrize(("key", "left"), [("d", 0), ("escape", 1), ("l", 1)])
async def test_a_draft_is_discarded_only_when_asked(open_app: Open, tmp_path: Path, key: str, left: int) -> None:
    leave_behind(tmp_path)
    async with open_app() as pilot:
        await until(pilot, lambda: "Unsaved edits" in screen(pilot))
        await pilot.press(key)
        await until(pilot, lambda: len(drafts()) == left)
        assert store(pilot).state.plan.text == PLAN


async def test_a_file_that_changed_since_is_said(open_app: Open, tmp_path: Path) -> None:
    leave_behind(tmp_path, began="version: 1\n")
    async with open_app() as pilot:
        await until(pilot, lambda: "changed by another program since" in " ".join(text_of(pilot, "#answers").split()))


async def test_the_newest_of_several_is_offered_and_those_of_other_plans_are_not(open_app: Open, tmp_path: Path) -> None:
    leave_behind(tmp_path, pid=1_000_001, at=1.0)
    leave_behind(tmp_path, pid=1_000_002, text=PLAN.replace("stage: 2", "stage: 1"))
    leave_behind(tmp_path, pid=1_000_003, document="/elsewhere/plan.yaml", at=9e9)
    async with open_app() as pilot:
        await until(pilot, lambda: "Unsaved edits" in screen(pilot))
        assert "+    stage: 1" in text_of(pilot, "#answers")


async def test_rubbish_among_the_drafts_is_passed_over(open_app: Open, tmp_path: Path) -> None:
    leave_behind(tmp_path)
    for name, text in {"a": "", "b": "[1]", "c": '{"document": 1}', "d": "\0\xff"}.items():
        write_atomic(drafts_folder() / f"{name}.json", text)
    async with open_app() as pilot:
        await until(pilot, lambda: "Unsaved edits" in screen(pilot))


async def test_a_draft_that_is_no_plan_is_not_lost(open_app: Open, tmp_path: Path) -> None:
    leave_behind(tmp_path, text="version: [")
    async with open_app() as pilot:
        await until(pilot, lambda: "Unsaved edits" in screen(pilot))
        await pilot.press("t")
        await until(pilot, lambda: "not a valid Plan" in screen(pilot))
        assert len(drafts()) == 1


async def test_a_folder_that_cannot_be_written_is_said_once(open_app: Open, state_folder: Path) -> None:
    (state_folder / "dstui").mkdir(parents=True)
    (state_folder / "dstui" / "drafts").write_text("")
    async with open_app() as pilot:
        await pilot.press("3", "down", "enter")
        await until(pilot, lambda: "would not survive a crash" in screen(pilot))
