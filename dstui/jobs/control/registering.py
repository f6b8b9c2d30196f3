"""Register a job at its start or when it is queued: write its first status and add it to the user's index of runs."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

from dstui.jobs.control.launch_record import LaunchError
from dstui.jobs.store.folder import JobFolder
from dstui.jobs.store.ownership import NotOwn, own_tag, remember
from dstui.jobs.store.records import JobStatus


@contextmanager
def registered(folder: JobFolder, status: JobStatus, name: str, tag: str) -> Iterator[tuple[int, str]]:
    """Write the first status of a job and add it to the index of runs. Raises LaunchError.

    Yields the lock on the job, which is held during the block, and why the index could not be written ("" if it was written).
    """
    lock = folder.lock()
    if lock is None:
        raise LaunchError(f"Cannot lock {folder.lock_file}: does this file system support locks? (--run-dir names another place)")
    try:
        folder.write_status(status)
        folder.append_event(time.time(), "start", folder=str(folder.path))
        problem = remember(folder, name, status.started, tag)
        own_tag(folder, status)
        yield lock, f"the index of runs cannot be written ({problem}; XDG_STATE_HOME names another place for it)" if problem else ""
    except NotOwn as why:
        raise LaunchError(
            f"The job folder {folder.path} {why}: --run-dir names another place, on a file system that keeps permissions"
        ) from None
    finally:
        os.close(lock)
