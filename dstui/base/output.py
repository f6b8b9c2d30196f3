"""Print to standard output and standard error.

Everything that a command prints goes through here: it is made safe to show, and a closed pipe is handled. Results go to standard output,
dstui's own remarks to standard error.
"""

from __future__ import annotations

import codecs
import errno
import json
import os
import shutil
import signal
import sys
import termios
from io import TextIOWrapper
from typing import Any, TextIO

from dstui.base.glyphs import replace_glyphs, wants_ascii
from dstui.base.text import escaped


class Ink(str):
    """A colour that dstui itself prints: the escape sequence is not sanitised."""

    __slots__ = ()


def tell(*texts: str, end: str = "\n") -> None:
    """Print a result to standard output with unsafe characters made visible."""
    _write(sys.stdout, *texts, end)


def remark(*texts: str) -> None:
    """Print a line to standard error with unsafe characters made visible."""
    _write(sys.stderr, *texts, "\n")


def say(sentence: str) -> None:
    """Write a sentence from dstui to standard error."""
    remark("dstui: ", sentence)


def refuse(sentence: str) -> int:
    """Print why nothing was done, and return the exit status for it."""
    say(sentence)
    return 2


def no_screen() -> str:
    """Return why the TUI cannot draw here; "" if it can."""
    if not (os.isatty(0) and os.isatty(2)):
        return "not a terminal"
    return "this terminal (TERM=dumb) cannot draw screens" if os.environ.get("TERM", "dumb") == "dumb" else ""


def wants_lines() -> bool:
    """Return whether the user wants prompts in lines instead of a screen: by ACCESSIBLE, or by a terminal that draws none."""
    if os.environ.get("ACCESSIBLE", "0") not in ("", "0"):
        return True
    return os.isatty(0) and os.isatty(2) and bool(no_screen())


def json_text(value: Any, indent: int | None = None) -> str:
    """Return a value as JSON, with escapes instead of the characters that standard output lacks."""
    return json.dumps(value, indent=indent, ensure_ascii=not draws_unicode())


def put(text: str) -> None:
    """Write text to standard output that is sanitised already (gigabytes of log lines)."""
    if sys.stdout is not None:
        sys.stdout.write(text)


def flush() -> None:
    """Flush standard output."""
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
    """Return the width of standard output in cells if it is a terminal, else None: lines may then have any length."""
    return shutil.get_terminal_size().columns if sys.stdout is not None and sys.stdout.isatty() else None


class Results:
    """Standard output as a file object, for code that writes to one. Unsafe characters are made visible."""

    def write(self, text: str) -> None:
        """Write a piece."""
        tell(text, end="")


def begin() -> None:
    """Replace glyphs that the reader of an output cannot show, escape other characters, and treat a closed standard input as empty."""
    if sys.stdin is None:
        sys.stdin = open(os.devnull)  # noqa: PTH123, SIM115 - for as long as the process lives
    codecs.register_error("dstui.shown", _replaced)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            plain = stream.isatty() and wants_ascii(os.environ)
            stream.reconfigure(encoding="ascii" if plain else None, errors="dstui.shown")


def _replaced(error: UnicodeError) -> tuple[str, int]:
    return replace_glyphs(error, lambda char: char.encode("ascii", "backslashreplace").decode())


def _write(stream: TextIO | None, *texts: str) -> None:
    if stream is not None:  # the program that started dstui closed it
        stream.write("".join(text if isinstance(text, Ink) else escaped(text) for text in texts))


def reader_gone(error: OSError) -> signal.Signals | None:
    """Return the signal to end with if a write failed because the reader is gone (SIGPIPE, SIGHUP); None for other errors."""
    if error.errno == errno.EPIPE:
        return signal.SIGPIPE
    return signal.SIGHUP if error.errno == errno.EIO and (_hung_up(1) or _hung_up(2)) else None


def is_full(error: OSError) -> bool:
    """Return whether a write failed for lack of space: a full disk, a quota, a file size limit."""
    return error.filename is None and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def write_no_more() -> None:
    """Redirect all further output to /dev/null, so that no later write fails, not even Python's flush at exit."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for number in (1, 2):
        os.dup2(nowhere, number)


def _hung_up(fd: int) -> bool:
    """Return whether this descriptor was a terminal that hung up: a disk may report the same error."""
    try:
        termios.tcgetattr(fd)
    except termios.error as error:
        return bool(error.args[0] == errno.EIO)
    return False
