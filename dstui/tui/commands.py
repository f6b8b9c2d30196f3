"""The palette's entries: everything that a key does here, and every step by its name."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from textual.app import SystemCommand

from dstui.tui.keys import KEYS
from dstui.tui.steps import STEPS

if TYPE_CHECKING:
    from dstui.tui.app import DstuiApp

LEFT_OUT = ("digit", "command_palette", "escape", "next_pane", "pane_before")


def commands(app: DstuiApp) -> Iterator[SystemCommand]:
    """What can be done now."""
    for number, step in enumerate(STEPS, 1):
        yield SystemCommand(f"Go to {number}: {step.title}", step.question, partial(app.show_step, step))
    seen: set[str] = set()
    for key in KEYS:
        name = key.action.partition("(")[0]
        if name and name not in LEFT_OUT and key.action not in seen and app.check_action(name, ()):
            seen.add(key.action)
            yield SystemCommand(f"{key.label.capitalize()} ({key.shown})", key.help, partial(app.run_action, key.action))
