"""What Textual need not do again and again, or for nobody, while the tests press keys; what dstui itself does stays as it is.

A third of the processor time of these tests went into frames that a driver without a terminal throws away, and a tenth into parsing the
same style sheets for hundreds of apps.
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
"""Colours of a theme -> what a style sheet gave with them. Rules do not change: one app shares them among all its widgets."""


def parse_each_style_sheet_once(patch: pytest.MonkeyPatch) -> None:
    """For each theme, whichever app asks."""
    made, set_variables = Stylesheet.__init__, Stylesheet.set_variables

    def remember(sheet: Stylesheet) -> None:
        sheet._parse_cache = _PARSED.setdefault(frozenset(sheet._variables.items()), {})

    def init(sheet: Stylesheet, *, variables: dict[str, str] | None = None) -> None:
        made(sheet, variables=variables)
        remember(sheet)

    def with_variables(sheet: Stylesheet, variables: dict[str, str]) -> None:
        sheet._parse_cache = {}  # Textual empties what is there
        set_variables(sheet, variables)
        remember(sheet)

    patch.setattr(Stylesheet, "__init__", init)
    patch.setattr(Stylesheet, "set_variables", with_variables)


def paint_where_the_test_stops(patch: pytest.MonkeyPatch) -> None:
    """A frame is laid out when Textual wants it, and painted once the keys of a `press` are done, and at the end: what a test looks at.

    So what keys have led to is drawn, and a line that cannot be drawn fails the test. The frames in between are painted too where a test is
    marked `every_frame`, and wherever it has a terminal.
    """
    paint, press, run = Screen._compositor_refresh, Pilot.press, App.run_test

    def later(screen: Screen[Any]) -> None:
        if screen is screen.app.screen:
            screen._dirty_widgets.clear()  # their regions stay marked
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


def ask_no_widget_that_waits(patch: pytest.MonkeyPatch) -> None:
    """To know that nothing is on its way, the pilot sends each of forty widgets a message: needless where all wait for one already."""
    wait = Pilot._wait_for_screen

    async def settled(pilot: Pilot[Any], timeout: float = 30.0) -> bool:
        app = pilot.app
        if app.screen_stack and all(map(_waits, (app, *app.screen.walk_children(with_self=True)))):
            return True
        return await wait(pilot, timeout)

    patch.setattr(Pilot, "_wait_for_screen", settled)


def _waits(pump: MessagePump) -> bool:
    return pump._message_queue.empty() and bool(pump._message_queue.ready_event._waiters)
