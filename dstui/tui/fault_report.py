"""An end that nobody asked for: what failed, told in a sentence, with the traceback in a file of the user's state folder."""

from __future__ import annotations

import os
import platform
import time
import traceback
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path

from dstui.base.output import say
from dstui.base.regular_files import append_regular
from dstui.tui.terminal_app import TerminalApp

KEPT = 20
"""Reports that are kept; the oldest go."""


def run_reported(app: TerminalApp) -> int:
    """Run the app to its end; the exit status. Where a fault has ended it, say what failed and where its traceback is."""
    try:
        app.run()
    except (Exception, SystemExit):  # past Textual, which has restored the terminal all the same
        app.tracebacks.append(traceback.format_exc())
    if app.tracebacks:
        _report(app.tracebacks)
    return app.return_code or int(app.return_code is None or bool(app.tracebacks))


def _report(tracebacks: list[str]) -> None:
    what = tracebacks[0].rstrip().rpartition("\n")[2]
    text = "\n".join((_about(), *tracebacks))
    try:
        say(f"a fault of dstui has ended the session: {what}. The traceback is in {_write(text)}")
    except OSError as error:
        say(f"a fault of dstui has ended the session, and its report could not be written ({error.strerror}):\n{text}")


def _write(text: str) -> Path:
    """A file for the owner alone: a message of an exception may hold anything. Raises OSError."""
    from platformdirs import user_state_path

    folder = user_state_path("dstui") / "faults"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    file = folder / time.strftime(f"%Y%m%d-%H%M%S-{os.getpid()}.txt")
    append_regular(file, text.encode(errors="backslashreplace"))
    for old in sorted(folder.glob("*.txt"))[:-KEPT]:
        with suppress(OSError):
            old.unlink()
    return file


def _about() -> str:
    """What a bug report needs beside the traceback."""
    versions = ", ".join(f"{name} {version(name)}" for name in ("dstui", "textual"))
    terminal = " ".join(f"{name}={os.environ.get(name, '')}" for name in ("TERM", "LANG", "LC_ALL", "TMUX", "SSH_TTY"))
    return f"{versions}, Python {platform.python_version()}, {platform.platform()}\n{terminal}\n"
