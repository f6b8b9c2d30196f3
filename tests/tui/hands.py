"""Send the inputs of tests/monkey.py to an app in this process, as the terminal's driver does: several at once, without waiting."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable

from textual import events
from textual.keys import REPLACED_KEYS, _character_to_key, _get_unicode_name_from_key
from textual.pilot import Pilot

from tests.monkey import Input, Keys, Mouse, Pasted, Resized


async def send(pilot: Pilot[int], write: Iterable[Input]) -> None:
    """Send all inputs of one write."""
    for each in write:
        if isinstance(each, Resized):
            await pilot.resize_terminal(each.columns, each.rows)
            continue
        driver = pilot.app._driver
        assert driver is not None
        for event in events_of(each, *pilot.app.size):
            driver.process_message(event)


def events_of(each: Input, columns: int, rows: int) -> list[events.Event]:
    """Return the events that Textual's parser makes of an input."""
    if isinstance(each, Keys):
        return [key_event(decoded(key)) for key in each.keys]
    if isinstance(each, Pasted):
        return [events.Paste(decoded(each.text))]
    assert isinstance(each, Mouse)
    start, end = ((int(x * columns), int(y * rows)) for x, y in ((each.x, each.y), (each.to_x, each.to_y)))
    kinds: dict[str, list[tuple[type[events.MouseEvent], tuple[int, int], int]]] = {
        "click": [(events.MouseDown, start, 1), (events.MouseUp, start, 1)],
        "drag": [(events.MouseDown, start, 1), (events.MouseMove, end, 1), (events.MouseUp, end, 1)],
        "move": [(events.MouseMove, start, 0)],
        "up": [(events.MouseScrollUp, start, 0)],
        "down": [(events.MouseScrollDown, start, 0)],
    }
    return [
        kind(None, x, y, 0, 0, button, shift=False, meta=False, ctrl=False, screen_x=x, screen_y=y)
        for kind, (x, y), button in kinds[each.kind]
    ]


def decoded(text: str) -> str:
    """Return a text as the driver decodes its bytes."""
    return text.encode(errors="surrogateescape").decode(errors="replace")


def key_event(key: str) -> events.Key:
    """Return the event of a key, given by its name or as a character."""
    name = _character_to_key(key) if len(key) == 1 and not key.isalnum() else key
    try:
        character = unicodedata.lookup(_get_unicode_name_from_key(REPLACED_KEYS.get(name, name)))
    except KeyError:
        character = name if len(name) == 1 else None
    return events.Key(name, character)
