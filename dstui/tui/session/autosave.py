"""The draft of a session, written while edits are made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from threading import Thread

from textual.message_pump import MessagePump

from dstui.base.files import FileProblem
from dstui.tui.kit.tools import Latest, in_thread
from dstui.tui.session.drafts import Draft
from dstui.tui.session.messages import DraftFailed
from dstui.tui.session.state import State

KEEP_AFTER = 0.3
"""Seconds from an edit to its draft, which a kill may lose."""
LAST_WRITE = 2.0
"""Seconds that the exit waits for a disk."""


class Autosave:
    """Writes the newest draft shortly after each edit. If nothing is unsaved, there is no draft."""

    def __init__(self, owner: MessagePump, draft: Callable[[], Draft]) -> None:
        """Create it. `draft`: the open document as it is now."""
        self._owner, self._draft = owner, draft
        self._waiting: Latest[Draft] = Latest()
        self._writer: Thread | None = None
        self._failed = False
        """Whether a failed write of the draft was reported already."""

    def start(self, state: State) -> None:  # noqa: ARG002  # what is open then is no edit
        """Start to keep a draft of unsaved edits."""
        self._writer = in_thread(self._owner, self._work)

    def changed(self, before: State, now: State) -> None:
        """Update the draft after a change of the text or of the file on disk."""
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
        """Write the draft now, since the app may not exit normally. Thread-safe."""
        if self._writer is not None:
            self._write(self._draft())

    def close(self) -> None:
        """Write a pending draft, and stop."""
        self._waiting.close()
