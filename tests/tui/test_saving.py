"""Saving while the disk is slow, refuses, or has another content: a request that waits is neither lost nor carried out later unasked."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot

from dstui.base.files import FileProblem
from dstui.tui.dialogs.dialog import Prompt
from dstui.tui.flows import saving
from tests.tui.conftest import PLAN, Open, letters, notices, store, until

Disk = Callable[[], None]


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    """Return a function that lets the disk answer the oldest request; it answers none by itself."""
    waiting: list[Callable[[], Any]] = []
    monkeypatch.setattr(saving, "afterwards", lambda _app, work, then: waiting.append(lambda: then(work())))

    def answer() -> None:
        waiting.pop(0)()

    return answer


async def edited(pilot: Pilot[int]) -> None:
    await pilot.press("3", "down", "enter")
    assert not store(pilot).state.saved


@pytest.mark.parametrize(("answer", "leaves"), [("r", True), ("escape", False)])
async def test_leaving_asked_for_before_a_conflict_goes_with_its_answer(
    open_app: Open, tmp_path: Path, disk: Disk, answer: str, leaves: bool
) -> None:
    async with open_app() as pilot:
        await edited(pilot)
        (tmp_path / "plan.yaml").write_text("version: 1\n")
        await pilot.press("f2", "q")
        disk()
        await until(pilot, lambda: letters(pilot) == "or")
        await pilot.press(answer)
        if not leaves:
            (tmp_path / "plan.yaml").write_text(PLAN)
            await pilot.press("f2")
            disk()
        disk()
        assert pilot.app.leaving == leaves and store(pilot).state.saved


async def test_leaving_while_a_save_is_refused_asks(open_app: Open, monkeypatch: pytest.MonkeyPatch, disk: Disk) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise FileProblem("the disk is full")

    async with open_app() as pilot:
        await edited(pilot)
        monkeypatch.setattr(saving, "write_atomic", refuse)
        await pilot.press("f2", "q")
        disk()
        disk()
        await until(pilot, lambda: letters(pilot) == "sdc")
        assert notices(pilot, "error") == ["the disk is full"]


async def test_second_request_to_leave_does_not_wait_for_a_disk_that_never_answers(open_app: Open, disk: Disk) -> None:
    async with open_app() as pilot:
        await edited(pilot)
        await pilot.press("f2", "q")
        assert not pilot.app.leaving
        await pilot.press("q")
        assert pilot.app.leaving and "unsaved" in "".join(pilot.app.receipt())


async def test_a_second_enter_replaces_no_file(open_app: Open, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine\n")
    async with open_app() as pilot:
        pilot.app.saving.save_as()
        await until(pilot, lambda: isinstance(pilot.app.screen, Prompt))
        await pilot.press("ctrl+u", *"notes.txt", "enter")
        await until(pilot, lambda: letters(pilot) == "nr")
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(pilot.app.screen, Prompt))
    assert (tmp_path / "notes.txt").read_text() == "mine\n"
