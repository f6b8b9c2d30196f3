"""Standard output and standard error: what commands print goes through here, made safe to show, and its reader may go.

Standard output belongs to results, standard error to what dstui has to say about them.
"""

from __future__ import annotations

import errno
import os
import shutil
import signal
import sys
import termios
from io import TextIOWrapper
from typing import TextIO

from dstui.base.text import escaped


class Ink(str):
    """A colour of dstui's own, which goes to the terminal as it is."""

    __slots__ = ()


def tell(*texts: str, end: str = "\n") -> None:
    """Print a result to standard output; what is unsafe in a piece is made visible."""
    _write(sys.stdout, *texts, end)


def remark(*texts: str) -> None:
    """Print a line to standard error, made safe likewise."""
    _write(sys.stderr, *texts, "\n")


def say(sentence: str) -> None:
    """Write a sentence from dstui to standard error."""
    remark("dstui: ", sentence)


def refuse(sentence: str) -> int:
    """Say why nothing was done; the exit status for that."""
    say(sentence)
    return 2


def no_screen() -> str:
    """Return why no screen can be drawn here; "" where one can."""
    if not (os.isatty(0) and os.isatty(2)):
        return "no terminal here"
    return "this terminal (TERM=dumb) cannot draw screens" if os.environ.get("TERM", "dumb") == "dumb" else ""


def wants_lines() -> bool:
    """Return whether the user wants prompts in lines instead of a screen: by ACCESSIBLE, or by a terminal that draws none."""
    if os.environ.get("ACCESSIBLE", "0") not in ("", "0"):
        return True
    return os.isatty(0) and os.isatty(2) and bool(no_screen())


def put(text: str) -> None:
    """Write to standard output what is known to be safe: gigabytes of log lines, each of which was sanitised."""
    if sys.stdout is not None:
        sys.stdout.write(text)


def flush() -> None:
    """Let the reader of standard output have what was written."""
    if sys.stdout is not None:
        sys.stdout.flush()


def coloured() -> bool:
    """Return whether standard output is a terminal that supports colours."""
    return sys.stdout is not None and sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def draws_unicode() -> bool:
    """Return whether standard output takes more than ASCII."""
    try:
        "⠉│✖".encode(getattr(sys.stdout, "encoding", None) or "ascii")
    except (UnicodeError, LookupError):
        return False
    return True


def width() -> int | None:
    """Return the cells of a line of standard output where it is a terminal; None where a line may be as long as it is."""
    return shutil.get_terminal_size().columns if sys.stdout is not None and sys.stdout.isatty() else None


class Results:
    """Standard output as a file, for what writes to one; made safe likewise."""

    def write(self, text: str) -> None:
        """Write a piece."""
        tell(text, end="")


def begin() -> None:
    """Escape what the encoding of standard output lacks, and treat a closed standard input as empty."""
    if sys.stdin is None:
        sys.stdin = open(os.devnull)  # noqa: PTH123, SIM115 - for as long as the process lives
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def _write(stream: TextIO | None, *texts: str) -> None:
    if stream is not None:  # closed by who started us
        stream.write("".join(text if isinstance(text, Ink) else escaped(text) for text in texts))


def reader_gone(error: OSError) -> signal.Signals | None:
    """Return the signal that a failed write stands for where the reader is gone; None for other errors."""
    if error.errno == errno.EPIPE:
        return signal.SIGPIPE
    return signal.SIGHUP if error.errno == errno.EIO and (_hung_up(1) or _hung_up(2)) else None


def is_full(error: OSError) -> bool:
    """Return whether a write failed for lack of space: a full disk, a quota, a limit on the size of files."""
    return error.filename is None and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def write_no_more() -> None:
    """Send all further output to /dev/null, so that no later write can fail, not even Python's flush at exit."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for number in (1, 2):
        os.dup2(nowhere, number)


def _hung_up(fd: int) -> bool:
    """Return whether this descriptor was a terminal: a disk may give the same error."""
    try:
        termios.tcgetattr(fd)
    except termios.error as error:
        return bool(error.args[0] == errno.EIO)
    return False
