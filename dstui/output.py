"""Standard output whose reader has gone: `| head` has seen enough, a terminal was closed."""

from __future__ import annotations

import errno
import os
import signal
import sys
import termios


def reader_gone(error: OSError) -> signal.Signals | None:
    """What such an error of a write amounts to: the signal that ends who does not look; None where it is something else."""
    if error.errno == errno.EPIPE:
        return signal.SIGPIPE
    return signal.SIGHUP if error.errno == errno.EIO and (_hung_up(1) or _hung_up(2)) else None


def write_no_more() -> None:
    """From now on nothing that is written to standard output or standard error can fail, also what Python flushes at its end."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        os.dup2(nowhere, stream.fileno())


def _hung_up(fd: int) -> bool:
    """Whether this was a terminal: a disk may give the same error, and a file is none."""
    try:
        termios.tcgetattr(fd)
    except termios.error as error:
        return bool(error.args[0] == errno.EIO)
    return False
