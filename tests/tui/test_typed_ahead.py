"""Keys that arrive in one read act one after another: what is typed reaches the input that the key before has opened."""

from __future__ import annotations

import asyncio
import time

import pytest
from textual.app import ComposeResult
from textual.containers import Container
from textual.widgets import Input

from dstui.tui.kit import typed_ahead
from dstui.tui.kit.row_list import RowList
from dstui.tui.terminal_app import TerminalApp
from tests.monkey import Keys, Pasted
from tests.tui.conftest import Open, screen, store, until
from tests.tui.hands import send
from tests.waiting import PATIENCE


@pytest.mark.parametrize("typed", [(Keys((*"16", "enter")),), (Pasted("16"), Keys(("enter",)))])
async def test_value_reaches_the_field_that_enter_opens(open_app: Open, typed: tuple[Keys | Pasted, ...]) -> None:
    async with open_app() as pilot:
        await send(pilot, [Keys(("6", "enter", "ctrl+u")), *typed])
        await until(pilot, lambda: store(pilot).state.plan.get("deepspeed.train_micro_batch_size_per_gpu") == 16)
        await until(pilot, lambda: pilot.app.plan_screen.form.editor is None)
        assert "6 · Batch & optimizer" in screen(pilot)


async def test_name_reaches_the_dialog_that_a_key_opens(open_app: Open) -> None:
    async with open_app() as pilot:
        await send(pilot, [Keys(("8", "slash", *"params.lr", "enter"))])
        await until(pilot, lambda: "▸ Learning rate" in screen(pilot))


class Waits(Container):
    """Passes the focus on with the first key, and then handles nothing until it is released."""

    released = asyncio.Event()

    async def on_key(self) -> None:
        """Wait."""
        self.query_one(Input).focus()
        await self.released.wait()


class WaitsInside(TerminalApp):
    """An app with an input in something that does not answer."""

    def compose(self) -> ComposeResult:
        """Compose a list that has the focus, and the input."""
        with Waits():
            yield RowList()
            yield Input()


async def test_handler_that_waits_holds_the_next_key_back_only_for_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(typed_ahead, "LONGEST", 0.1)
    monkeypatch.setattr(Waits, "released", asyncio.Event())
    app = WaitsInside()
    async with app.run_test() as pilot:
        app.query_one(RowList).focus()
        await pilot.pause()
        await send(pilot, [Keys(("f9", "x"))])
        deadline = time.monotonic() + PATIENCE
        while app.query_one(Input).value != "x" and time.monotonic() < deadline:
            await asyncio.sleep(0.01)  # the pilot would wait for the handler
        Waits.released.set()
        assert app.query_one(Input).value == "x"
