"""Drafts: unsaved edits on disk, so that a crash, a kill or a lost connection loses none of them.

Every session has one file in the user's state folder, which is gone as soon as nothing is unsaved. The document itself is never touched.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

from textual.message_pump import MessagePump

from dstui.base.files import FileProblem, write_atomic
from dstui.base.regular_files import read_regular
from dstui.tui.kit.tools import Latest, in_thread
from dstui.tui.session.messages import DraftFailed
from dstui.tui.session.state import State

if TYPE_CHECKING:
    from dstui.plan import Plan


@dataclass(frozen=True, slots=True)
class Draft:
    """A document with unsaved edits, and the session that edits it."""

    document: str
    """What it is a draft of: see `document_of`."""
    began: str
    """The text that is on disk, from which the edits began."""
    text: str
    source: str
    base: str
    at: float = field(default_factory=time.time)
    """Seconds since the epoch."""
    host: str = field(default_factory=socket.gethostname)
    pid: int = field(default_factory=os.getpid)
    ticks: int = field(default_factory=lambda: _ticks(os.getpid()))
    """When that process started, in clock ticks since boot."""

    @property
    def file(self) -> Path:
        """Return the file of this session's draft."""
        return drafts_folder() / f"{self.host}-{self.pid}-{self.ticks}.json"

    @property
    def left_behind(self) -> bool:
        """Return whether its session has ended; on another host (a shared home) that is unknown and assumed."""
        return self.host != socket.gethostname() or _ticks(self.pid) != self.ticks

    def keep(self) -> None:
        """Write the draft; delete it if nothing is unsaved. Raises FileProblem or OSError."""
        import json

        if self.text == self.began:
            self.forget()
        else:
            self.file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_atomic(self.file, json.dumps(asdict(self)), replace=True, private=True)

    def forget(self) -> None:
        """Delete the draft."""
        with suppress(OSError):
            self.file.unlink(missing_ok=True)


def drafts_folder() -> Path:
    """Return the folder of all drafts of this user."""
    from platformdirs import user_state_path

    return user_state_path("dstui") / "drafts"


def document_of(plan: Plan, path: Path | None) -> str:
    """Return the identity of a document across sessions: its file or, if it has none yet, its origin and folder."""
    return str(path.absolute()) if path is not None else f"{Path(plan.source).absolute()} in {Path.cwd()}"


def unnamed_here(document: str) -> bool:
    """Return whether a document has no file yet and was started in this folder."""
    return document.endswith(f" in {Path.cwd()}")


def left_behind() -> list[Draft]:
    """Return the drafts of ended sessions, the newest first. Unreadable ones are skipped."""
    import json

    found = []
    with suppress(OSError):
        for file in drafts_folder().glob("*.json"):
            with suppress(OSError, ValueError, TypeError, RecursionError):
                found.append(Draft(**json.loads(read_regular(file))))
    return sorted((draft for draft in found if draft.left_behind), key=lambda draft: -draft.at)


def take_over(old: Draft, mine: Draft) -> None:
    """Continue the edits of an ended session in this one; at every moment they are on disk."""
    with suppress(FileProblem, OSError):
        mine.keep()
        old.forget()


def _ticks(pid: int) -> int:
    from dstui.jobs.store.processes import find

    process = find(pid)
    return process.ticks if process is not None else 0


KEEP_AFTER = 0.3
"""Seconds from an edit to its draft: what a kill may cost."""
LAST_WRITE = 2.0
"""Seconds that the end waits for a disk."""


class Autosave:
    """Write the newest draft a moment after each edit; delete it if nothing is unsaved."""

    def __init__(self, owner: MessagePump, draft: Callable[[], Draft]) -> None:
        """Create it. `draft` returns the open document as it is now."""
        self._owner, self._draft = owner, draft
        self._waiting: Latest[Draft] = Latest()
        self._writer: Thread | None = None
        self._failed = False
        """It was said already that a draft could not be written."""

    def start(self, state: State) -> None:  # noqa: ARG002  # what is open then is no edit
        """Keep a draft of unsaved edits from now on."""
        self._writer = in_thread(self._owner, self._work)

    def changed(self, before: State, now: State) -> None:
        """Schedule a write if the text or the file on disk has changed."""
        if self._writer is not None and (now.plan is not before.plan or now.saved != before.saved):
            self._waiting.put(self._draft())

    def _work(self) -> None:
        while (draft := self._waiting.take()) is not None:
            self._waiting.closed_within(KEEP_AFTER)
            self._write(self._waiting.newer(draft))

    def _write(self, draft: Draft) -> None:
        try:
            draft.keep()
        except (FileProblem, OSError) as error:
            if not self._failed:
                self._owner.post_message(DraftFailed(str(error)))
            self._failed = True

    def end(self, *, keep: bool) -> None:
        """End the session. `keep`: it ends by a signal or an error, so the user was not asked about unsaved edits."""
        if self._writer is not None:
            draft = self._draft()
            self._waiting.put(draft if keep else replace(draft, text=draft.began))
            self.close()
            self._writer.join(LAST_WRITE)

    def keep_now(self) -> None:
        """Write the draft now, since the process may be killed. Thread-safe."""
        if self._writer is not None:
            self._write(self._draft())

    def close(self) -> None:
        """Write what is scheduled, and nothing after it."""
        self._waiting.close()
