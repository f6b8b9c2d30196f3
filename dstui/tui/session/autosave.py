"""The draft of a session, written while its edits are made."""

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
"""Seconds from an edit to its draft: what a kill may cost."""
LAST_WRITE = 2.0
"""Seconds that the end waits for a disk."""


class Autosave:
    """Writes the newest draft, a moment after each edit; where nothing is unsaved there is none."""

    def __init__(self, owner: MessagePump, draft: Callable[[], Draft]) -> None:
        """`draft`: what is open, as it is now."""
        self._owner, self._draft = owner, draft
        self._waiting: Latest[Draft] = Latest()
        self._writer: Thread | None = None
        self._failed = False
        """It was said already that a draft could not be written."""

    def start(self, state: State) -> None:  # noqa: ARG002  # what is open then is no edit
        """From now on there is a draft of what is not saved."""
        self._writer = in_thread(self._owner, self._work)

    def changed(self, before: State, now: State) -> None:
        """Another text, or another one on disk."""
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
        """Write what is open, since the app may not come to its end. Any thread may call it."""
        if self._writer is not None:
            self._write(self._draft())

    def close(self) -> None:
        """Write what is waiting, and nothing after it."""
        self._waiting.close()
