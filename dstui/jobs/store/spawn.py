"""Starting what outlives the terminal, in a session of its own: a supervisor, with the job's lock already in its hands; a notification."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

import dstui
from dstui.base.regular_files import open_regular
from dstui.jobs.store.folder import JobFolder
from dstui.jobs.store.processes import NOTIFY, SUPERVISES, SUPERVISOR


def spawn_supervisor(folder: JobFolder, lock: int, tag: str) -> subprocess.Popen[bytes]:
    """Start a supervisor for a job of one's own; OSError where that is not possible.

    The lock is handed on, so that at no moment the job seems to be nobody's.
    """
    output = open_regular(folder.supervisor_log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        process = subprocess.Popen(
            [sys.executable, "-m", SUPERVISOR, str(folder.path), str(lock)],
            env={**os.environ, SUPERVISES: tag},
            cwd=Path(dstui.__file__).parent.parent,  # from there it is found, installed or not
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            pass_fds=(lock,),
        )
    finally:
        os.close(output)
    threading.Thread(target=process.wait, daemon=True).start()  # else it stays a zombie of ours when it ends
    return process


def spawn_notification(folder: JobFolder) -> None:
    """Notify of the end of a job of one's own that has no supervisor; nobody waits for it, and it writes down what went wrong."""
    launch = folder.read_launch()
    if launch is None or not launch.on_end or not folder.has_ended:
        return  # an end that could not be written would be told again at every look
    with suppress(OSError):
        subprocess.Popen(
            [sys.executable, "-m", NOTIFY, str(folder.path)],
            cwd=Path(dstui.__file__).parent.parent,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
