"""What is written and read about a job for somebody else's eyes: a report to send, and where each rank is in its code."""

from __future__ import annotations

from functools import partial
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING

from textual.screen import Screen

from dstui.tui.kit.notes import say
from dstui.tui.kit.threads import in_thread
from dstui.tui.run.watched_job import WatchedJob
from dstui.tui.session.messages import StacksRead
from dstui.tui.session.session import Session

if TYPE_CHECKING:
    from dstui.jobs.store.folder import JobFolder


class Reporting:
    """Works in threads for the screen of the run. Posts StacksRead to it."""

    def __init__(self, screen: Screen[None], session: Session) -> None:
        self._screen, self._session = screen, session

    def read_stacks(self, job: WatchedJob) -> None:
        """Ask py-spy where each rank is; the ranks are stopped for milliseconds."""
        say(self._screen.app, "Looking where the ranks are…")
        in_thread(self._screen, partial(self._read_stacks, job.folder))

    def _read_stacks(self, folder: JobFolder) -> None:
        from dstui.jobs.watch.stacks import stacks

        self._screen.post_message(StacksRead(folder, stacks(folder)))

    def write_bundle(self, job: WatchedJob) -> None:
        """Write a zip for a bug report into the current folder."""
        in_thread(self._screen, partial(self._write_bundle, job.folder))

    def _write_bundle(self, folder: JobFolder) -> None:
        from dstui.base.files import FileProblem
        from dstui.bundle.bundle import bundle

        try:
            written = bundle(folder, free_name(Path.cwd() / f"{folder.name}-bundle.zip"))
        except FileProblem as problem:
            self._screen.call_later(say, self._screen.app, str(problem), "error")
        else:
            self._screen.call_later(self._written, written)

    def _written(self, written: Path) -> None:
        self._session.note(f"written  {written}")
        say(self._screen.app, f"{written}: what looked like a secret is masked; look through it before you hand it on.")


def free_name(path: Path) -> Path:
    """The path, with -2, -3 and so on where it is taken."""
    names = (path.with_stem(f"{path.stem}-{number}") for number in count(2))
    return next(name for name in chain((path,), names) if not name.exists())
