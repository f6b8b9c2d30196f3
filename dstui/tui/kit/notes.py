"""What is said in passing, and what is copied: notes at the corner, the terminal's clipboard."""

from __future__ import annotations

from typing import Any

from textual.app import App
from textual.notifications import SeverityLevel

from dstui.base.files import FileProblem, write_atomic


def say(app: App[Any], text: str, severity: SeverityLevel = "information") -> None:
    """A note at the corner for a few seconds. It is text: nothing in it is markup."""
    app.notify(text, severity=severity, markup=False)


def copy(app: App[Any], text: str, what: str) -> None:
    """To the terminal's clipboard, and to a file, since a terminal may drop it without a word."""
    from platformdirs import user_state_path

    app.copy_to_clipboard(text)
    try:
        place = user_state_path("dstui", ensure_exists=True) / "clipboard.txt"
        write_atomic(place, text, replace=True)
    except (FileProblem, OSError):
        say(app, f"Copied {what}. If nothing arrives: tmux needs `set -g set-clipboard on`.")
    else:
        say(app, f"Copied {what}; it is also in {place}")
