"""Take over the supervision of a job. Only this module starts supervisors and notifications.

Both run in sessions of their own and survive the terminal. A supervisor inherits the lock of the job.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import dstui
from dstui.base.regular_files import open_regular
from dstui.jobs.queue.scheduler import look
from dstui.jobs.store.folder import JobFolder
from dstui.jobs.store.ownership import own_tag
from dstui.jobs.store.processes import NOTIFY, SUPERVISES, SUPERVISOR, tagged
from dstui.jobs.store.records import JobStatus
from dstui.jobs.store.status import current_status, finish, ranks_of, requested_exit_code, write_end

IMPORTED_FROM = Path(dstui.__file__).parent.parent
"""The folder from which `python -m` imports dstui, installed or not."""


def take_over(folder: JobFolder) -> JobStatus | None:
    """Continue the supervision of the user's own job if its supervisor was killed, and return its status; None if the folder has none.

    If a process of the job lives, another supervisor is started; if none does, the end is written and announced. For all other jobs
    (somebody else's, another host's, supervised ones) this equals `current_status`.
    """
    status = current_status(folder)
    if status is None or not status.orphaned:
        return status
    tag = own_tag(folder, status)
    lock = folder.lock()
    if lock is None and status.slurm_job:
        return status  # its supervisor is on a node that SLURM has lost
    if lock is None:
        return folder.read_status() or status
    try:
        return _supervise(folder, status, tag, lock)
    finally:
        os.close(lock)


def _supervise(folder: JobFolder, status: JobStatus, tag: str, lock: int) -> JobStatus:
    """Do the same as the holder of the lock."""
    if status.slurm_job:
        return _write_slurms_end(folder, status)
    found = folder.read_status()
    if found is None:
        with suppress(OSError):  # another version may be able to read it
            folder.status_file.replace(folder.status_file.with_suffix(".unreadable"))
    if found is not None and found.final:
        return found  # it has ended meanwhile
    if tagged(tag) or status.hosts:
        with suppress(OSError):  # on a read-only disk nobody can supervise it
            if found is None:
                folder.write_status(status)
            spawn_supervisor(folder, lock, tag)
        return status
    status = found or status
    status = finish(folder, status, ranks_of(folder, status), requested_exit_code(folder), watched=False)
    spawn_notification(folder)
    return status


def _write_slurms_end(folder: JobFolder, status: JobStatus) -> JobStatus:
    """Write the end of a job that SLURM ended and whose supervisor could not write it."""
    if (found := folder.read_status()) and found.final:
        return found
    job = look(status.slurm_job or "")
    if job and job.words and requested_exit_code(folder) is None:
        with suppress(OSError):
            folder.append_event(time.time(), "notice", text=f"SLURM job {status.slurm_job}: {job.words}")
    status = write_end(folder, replace(status, waits=""), ranks_of(folder, status))
    spawn_notification(folder)
    return status


def spawn_supervisor(folder: JobFolder, lock: int, tag: str) -> subprocess.Popen[bytes]:
    """Start a supervisor for a job of the user's own. Raises OSError.

    It inherits the lock, so that the job is locked at every moment.
    """
    output = open_regular(folder.supervisor_log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        process = subprocess.Popen(
            [sys.executable, "-m", SUPERVISOR, str(folder.path), str(lock)],
            env={**os.environ, SUPERVISES: tag},
            cwd=IMPORTED_FROM,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            pass_fds=(lock,),
        )
    finally:
        os.close(output)
    threading.Thread(target=process.wait, daemon=True).start()  # reaps it when it ends
    return process


def spawn_notification(folder: JobFolder) -> None:
    """Announce the end of a job of the user's own without a supervisor. Nothing waits for the process, which records its own failure."""
    launch = folder.read_launch()
    if launch is None or not launch.on_end or not folder.has_ended:
        return  # an end that cannot be written would be announced again at every look
    with suppress(OSError):
        subprocess.Popen(
            [sys.executable, "-m", NOTIFY, str(folder.path)],
            cwd=IMPORTED_FROM,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
