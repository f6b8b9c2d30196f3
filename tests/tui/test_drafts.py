"""Drafts of unsaved edits: written while editing, offered after a session that ended without an answer, removed when not needed."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from dstui.base.files import write_atomic
from dstui.tui.session.drafts import Draft, drafts_folder, left_behind
from tests.tui.conftest import PLAN, Open, letters, screen, store, text_of, until, value
from tests.waiting import wait_for

EDITED = PLAN.replace("stage: 2", "stage: 3")


@pytest.fixture(autouse=True)
def state_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Use a separate state folder for each test."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state"


def write_draft(folder: Path, **more: object) -> Draft:
    """Write a draft of the test's Plan by a process that has ended."""
    draft = Draft(str(folder / "plan.yaml"), PLAN, EDITED, "plan.yaml", str(folder), ticks=1)
    draft = replace(draft, **more)
    draft.keep()
    return draft


def drafts() -> list[dict[str, object]]:
    """Return the drafts on disk."""
    found = []
    for file in drafts_folder().glob("*.json"):
        with suppress(FileNotFoundError):  # deleted meanwhile
            found.append(json.loads(file.read_text()))
    return found


async def test_edit_is_soon_on_disk_and_the_plan_file_is_unchanged(open_app: Open, tmp_path: Path) -> None:
    async with open_app() as pilot:
        await pilot.press("3", "down", "enter")
        await until(pilot, lambda: [d["text"] for d in drafts()] == [EDITED])
        assert (tmp_path / "plan.yaml").read_text() == PLAN
        assert left_behind() == []  # its session still runs


@pytest.mark.parametrize("keys", [["f2"], ["z"]])
async def test_no_draft_remains_without_unsaved_edits(open_app: Open, keys: list[str]) -> None:
    async with open_app() as pilot:
        await pilot.press("3", "down", "enter")
        await until(pilot, drafts)
        await pilot.press(*keys)
        await until(pilot, lambda: not drafts())


async def test_discarding_on_quit_is_final(open_app: Open) -> None:
    async with open_app() as pilot:
        await pilot.press("3", "down", "enter")
        await until(pilot, drafts)
        await pilot.press("q", "d")
    wait_for(lambda: not drafts())  # a thread deletes it


async def test_draft_is_offered_with_its_lines_and_undo_reverts_it(open_app: Open, tmp_path: Path) -> None:
    old = write_draft(tmp_path)
    async with open_app() as pilot:
        await until(pilot, lambda: letters(pilot) == "tdl")
        assert "-    stage: 2" in text_of(pilot, "#answers")
        assert "+    stage: 3" in text_of(pilot, "#answers")
        await pilot.press("t")
        await until(pilot, lambda: value(pilot, "deepspeed.zero_optimization.stage") == 3)
        assert not store(pilot).state.saved
        await until(pilot, lambda: not old.file.exists() and [d["text"] for d in drafts()] == [EDITED])
        await pilot.press("z")
        assert store(pilot).state.plan.text == PLAN


@pytest.mark.parametrize(("key", "left"), [("d", 0), ("escape", 1), ("l", 1)])
async def test_draft_is_only_discarded_on_request(open_app: Open, tmp_path: Path, key: str, left: int) -> None:
    write_draft(tmp_path)
    async with open_app() as pilot:
        await until(pilot, lambda: letters(pilot) == "tdl")
        await pilot.press(key)
        await until(pilot, lambda: len(drafts()) == left)
        assert store(pilot).state.plan.text == PLAN


async def test_plan_file_changed_since_the_draft_is_reported(open_app: Open, tmp_path: Path) -> None:
    write_draft(tmp_path, began="version: 1\n")
    async with open_app() as pilot:
        await until(pilot, lambda: "changed by another program since" in " ".join(text_of(pilot, "#answers").split()))


async def test_newest_draft_of_this_plan_is_offered(open_app: Open, tmp_path: Path) -> None:
    write_draft(tmp_path, pid=1_000_001, at=1.0)
    write_draft(tmp_path, pid=1_000_002, text=PLAN.replace("stage: 2", "stage: 1"))
    write_draft(tmp_path, pid=1_000_003, document="/elsewhere/plan.yaml", at=9e9)
    async with open_app() as pilot:
        await until(pilot, lambda: letters(pilot) == "tdl")
        assert "+    stage: 1" in text_of(pilot, "#answers")


async def test_garbage_among_drafts_is_ignored(open_app: Open, tmp_path: Path) -> None:
    write_draft(tmp_path)
    for name, text in {"a": "", "b": "[1]", "c": '{"document": 1}', "d": "\0\xff"}.items():
        write_atomic(drafts_folder() / f"{name}.json", text)
    async with open_app() as pilot:
        await until(pilot, lambda: letters(pilot) == "tdl")


async def test_draft_that_is_no_plan_is_not_lost(open_app: Open, tmp_path: Path) -> None:
    write_draft(tmp_path, text="version: [")
    async with open_app() as pilot:
        await until(pilot, lambda: letters(pilot) == "tdl")
        await pilot.press("t")
        await until(pilot, lambda: "not a valid Plan" in screen(pilot))
        assert len(drafts()) == 1


async def test_unwritable_folder_is_reported_once(open_app: Open, state_folder: Path) -> None:
    (state_folder / "dstui").mkdir(parents=True)
    (state_folder / "dstui" / "drafts").write_text("")
    async with open_app() as pilot:
        await pilot.press("3", "down", "enter")
        await until(pilot, lambda: "would not survive a crash" in screen(pilot))
