"""Skip work of Textual that no test sees; dstui's own code runs unchanged.

A third of these tests' CPU time was spent on frames that a driver without a terminal discards, and a tenth on parsing the same style
sheets for hundreds of apps.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from textual.app import App
from textual.css.stylesheet import Stylesheet
from textual.message_pump import MessagePump
from textual.pilot import Pilot
from textual.screen import Screen

_PARSED: dict[frozenset[tuple[str, str]], dict[Any, Any]] = {}
"""Theme colours -> parsed style sheet. Rules never change: an app shares them among all its widgets."""


def cache_style_sheets(patch: pytest.MonkeyPatch) -> None:
    """Cache the parsed style sheet of each theme across apps."""
    made, set_variables = Stylesheet.__init__, Stylesheet.set_variables

    def remember(sheet: Stylesheet) -> None:
        sheet._parse_cache = _PARSED.setdefault(frozenset(sheet._variables.items()), {})

    def init(sheet: Stylesheet, *, variables: dict[str, str] | None = None) -> None:
        made(sheet, variables=variables)
        remember(sheet)

    def with_variables(sheet: Stylesheet, variables: dict[str, str]) -> None:
        sheet._parse_cache = {}  # Textual would clear the existing dictionary
        set_variables(sheet, variables)
        remember(sheet)

    patch.setattr(Stylesheet, "__init__", init)
    patch.setattr(Stylesheet, "set_variables", with_variables)


def paint_only_what_is_seen(patch: pytest.MonkeyPatch) -> None:
    """Lay out frames when Textual does, but paint only after the keys of a `press` and at the end, when a test looks at the screen.

    The result of each press is painted, so a line that cannot be drawn fails the test. All frames are painted if a test is marked
    `every_frame`, or runs in a terminal.
    """
    paint, press, run = Screen._compositor_refresh, Pilot.press, App.run_test

    def later(screen: Screen[Any]) -> None:
        if screen is screen.app.screen:
            screen._dirty_widgets.clear()  # their regions stay marked as dirty
        else:
            paint(screen)

    def painted(pilot: Pilot[Any]) -> None:
        if pilot.app.is_running and pilot.app.screen_stack and pilot.app.screen.is_attached:
            paint(pilot.app.screen)

    async def pressed(pilot: Pilot[Any], *keys: str) -> None:
        await press(pilot, *keys)
        painted(pilot)

    @asynccontextmanager
    async def run_test(app: App[Any], **how: Any) -> AsyncIterator[Pilot[Any]]:
        async with run(app, **how) as pilot:
            yield pilot
            painted(pilot)

    patch.setattr(Screen, "_compositor_refresh", later)
    patch.setattr(Pilot, "press", pressed)
    patch.setattr(App, "run_test", run_test)


def skip_idle_widgets(patch: pytest.MonkeyPatch) -> None:
    """Skip the message that the pilot sends to each widget to find out whether it is idle, if all widgets wait for a message already."""
    wait = Pilot._wait_for_screen

    async def settled(pilot: Pilot[Any], timeout: float = 30.0) -> bool:
        app = pilot.app
        if app.screen_stack and all(map(_waits, (app, *app.screen.walk_children(with_self=True)))):
            return True
        return await wait(pilot, timeout)

    patch.setattr(Pilot, "_wait_for_screen", settled)


def _waits(pump: MessagePump) -> bool:
    return pump._message_queue.empty() and bool(pump._message_queue.ready_event._waiters)
