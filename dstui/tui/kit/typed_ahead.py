"""Input that arrives faster than it takes effect: it waits until the key before has had its effect.

Textual gives each key to the widget that has the focus when the key is read. Of a key that opens an input, and the text that is typed into
it, in one read (a slow connection, a busy machine), the text would reach the list instead, in which its letters are keys. What was typed
while a dialog was open is dropped when the dialog closes: a second Enter must not answer what lies below.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

from textual import events
from textual.app import App
from textual.message_pump import MessagePump
from textual.screen import Screen
from textual.widgets import Input

LONGEST = 1.0
"""Seconds after which the next key is delivered in any case: a handler may wait for something slow."""
STEADY = 3
"""Rounds through the message queues without a new focus. In the first the key arrives, in the second what it has caused."""


class TypedAhead:
    """Delivers the input of an app in order: keys, pastes and the mouse."""

    def __init__(self, app: App[int], deliver: Callable[[events.Event], Awaitable[None]]) -> None:
        self._app, self._deliver = app, deliver
        self._waiting: deque[tuple[events.Event, Screen[Any] | None]] = deque()
        """Each with the dialog that was open when it arrived."""
        self._settling: asyncio.Task[None] | None = None

    async def take(self, event: events.Event) -> None:
        """Deliver an event, now or when those before it have had their effect."""
        if self._settling is None:
            await self._give(event)
        else:
            self._waiting.append((event, self._app.screen if len(self._app.screen_stack) > 1 else None))

    async def _give(self, event: events.Event) -> None:
        is_text = isinstance(event, events.Key) and event.is_printable and isinstance(self._app.focused, Input)
        await self._deliver(event)
        if not is_text and not isinstance(event, (events.MouseMove, events.MouseScrollDown, events.MouseScrollUp)):
            self._settling = asyncio.create_task(self._settle())

    async def _settle(self) -> None:
        try:
            await asyncio.wait_for(self._settled(), LONGEST)
        except asyncio.TimeoutError:  # the same as TimeoutError only from Python 3.11 on
            pass
        finally:
            self._app.call_later(self._go_on)

    async def _settled(self) -> None:
        steady = 0
        while steady < STEADY:
            before = self._app.screen, self._app.focused
            for node in self._path():
                await _handled(node)
            steady = steady + 1 if before == (self._app.screen, self._app.focused) else 0

    def _path(self) -> list[MessagePump]:
        """Return what a key passes: the widget with the focus and those around it, up to the app."""
        return [*(self._app.focused or self._app.screen).ancestors_with_self]

    async def _go_on(self) -> None:
        self._settling = None
        while self._waiting and self._settling is None:
            event, dialog = self._waiting.popleft()
            if dialog is None or dialog in self._app.screen_stack:
                await self._give(event)


async def _handled(node: MessagePump) -> None:
    """Wait until a node has handled the messages that wait for it now."""
    done = asyncio.Event()
    if node.call_later(done.set):  # False if it is being removed
        await done.wait()
