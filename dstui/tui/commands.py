"""The palette's entries: everything that a key does here, and every step by its name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from textual.app import SystemCommand

from dstui.tui.keys import KEYS
from dstui.tui.steps import STEPS, Step

LEFT_OUT = ("digit", "command_palette", "escape", "next_pane", "pane_before")


def commands(possible: Callable[[str], object], show_step: Callable[[Step], None], act: Callable[[str], Any]) -> Iterator[SystemCommand]:
    """What can be done now: the actions that are possible, by `act`, and every step, by `show_step`."""
    for number, step in enumerate(STEPS, 1):
        yield SystemCommand(f"Go to {number}: {step.title}", step.question, partial(show_step, step))
    seen: set[str] = set()
    for key in KEYS:
        name = key.action.partition("(")[0]
        if name and name not in LEFT_OUT and key.action not in seen and possible(name):
            seen.add(key.action)
            yield SystemCommand(f"{key.label.capitalize()} ({key.shown})", key.help, partial(act, key.action))
