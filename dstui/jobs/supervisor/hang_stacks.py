"""Read the stacks of a job whose ranks are silent, and write one event: which ranks wait for which, and in which line.

    python -m dstui.jobs.supervisor.hang_stacks FOLDER
The supervisor starts it once per silence, as a separate process: it has a minute, and its failures do not affect the supervision.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from contextlib import suppress

from dstui.jobs.store.folder import JobFolder
from dstui.jobs.store.processes import HANG_STACKS

DEADLINE = 60
"""Seconds for all ranks."""
RANK_DEADLINE = 8.0
"""Seconds for each rank."""
MAX_RANKS = 64
"""Ranks that are read, four in parallel."""
MAX_LINES, LONGEST = 24, 400
"""Sentences that are kept, and characters of each."""
MAX_TIMES = 3
"""Silences of one attempt for which stacks are read."""


class HangStacks:
    """Starts the reader for a silence, and ends it with the attempt."""

    def __init__(self, folder: JobFolder) -> None:
        self.folder = folder
        self._times = 0
        self._reader: subprocess.Popen[bytes] | None = None

    def take(self) -> None:
        """Start the reader, unless it ran often enough. The reader writes the event."""
        if self._times >= MAX_TIMES:
            return
        self.close()
        self._times += 1
        command = [sys.executable, "-m", HANG_STACKS, str(self.folder.path)]
        nothing = subprocess.DEVNULL
        with suppress(OSError):
            self._reader = subprocess.Popen(command, stdin=nothing, stdout=nothing, stderr=nothing)

    def close(self) -> None:
        """End a running reader."""
        if self._reader is not None:
            if self._reader.poll() is None:
                self._reader.kill()
            self._reader = None


def main(argv: list[str]) -> int:
    """Read the stacks and append the event; nothing if no stack could be read, or the job has continued meanwhile."""
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    signal.alarm(DEADLINE)
    from dstui.jobs.store.status import ranks_of
    from dstui.jobs.watch.hang_analysis import analyse
    from dstui.jobs.watch.stacks import stacks

    folder = JobFolder(argv[0])
    status = folder.read_status()
    living = ranks_of(folder, status).living
    found = stacks(folder, living[:MAX_RANKS], deadline=RANK_DEADLINE, hook_first=True) if status and living else []
    if status is None or not any(stack.threads for stack in found):
        return 1
    together = analyse(found)
    lines = [line[:LONGEST] for line in together.lines[:MAX_LINES]]
    folder.append_event(time.time(), "stacks", attempt=status.attempt, late=list(together.late), at=together.at[:LONGEST], lines=lines)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
