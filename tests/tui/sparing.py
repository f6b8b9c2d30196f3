"""What Textual need not do again and again, or for nobody, while the tests press keys; what dstui itself does stays as it is.

A third of the processor time of these tests went into frames that a driver without a terminal throws away, and a tenth into parsing the
same style sheets for hundreds of apps.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Any

import pytest
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
    """A frame is laid out when Textual wants it, and painted once the keys of a `press` are done, or a pause is: what a test can look at.

    So every state that a test stops in is drawn, and a line that cannot be drawn fails it. The frames in between are painted too where a
    test is marked `every_frame`, and wherever a test has a terminal.
    """
    paint = Screen._compositor_refresh

    def later(screen: Screen[Any]) -> None:
        if screen is screen.app.screen:
            screen._dirty_widgets.clear()  # their regions stay marked
        else:
            paint(screen)

    def painting(stop: Callable[..., Awaitable[None]]) -> Callable[..., Awaitable[None]]:
        @wraps(stop)
        async def stopped(pilot: Pilot[Any], *args: Any, **kwargs: Any) -> None:
            await stop(pilot, *args, **kwargs)
            if pilot.app.screen_stack and pilot.app.screen.is_attached:
                paint(pilot.app.screen)

        return stopped

    patch.setattr(Screen, "_compositor_refresh", later)
    for name in ("press", "pause"):
        patch.setattr(Pilot, name, painting(getattr(Pilot, name)))


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
