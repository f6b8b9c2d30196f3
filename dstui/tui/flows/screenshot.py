"""What is on the screen as a picture. Textual's own way writes it under Downloads, and fails where there is no such folder."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from textual.app import App

from dstui.tui.flows.reporting import free_name
from dstui.tui.kit.notes import say
from dstui.tui.kit.threads import in_thread
from dstui.tui.session.session import Session

NAME = "dstui-screenshot.svg"


def take_screenshot(app: App[Any], session: Session) -> None:
    """Write it into the current folder, beside earlier ones, and say where."""
    in_thread(app, partial(_write, app, session, app.export_screenshot()))


def _write(app: App[Any], session: Session, picture: str) -> None:
    from dstui.base.files import FileProblem, write_atomic

    path = free_name(Path.cwd() / NAME)
    try:
        write_atomic(path, picture)
    except FileProblem as problem:
        app.call_later(say, app, str(problem), "error")
    else:
        app.call_later(session.note, f"written  {path}")
        app.call_later(say, app, f"The screen is in {path}.")
