"""What becomes of edits that are not saved: a draft on disk while they are made."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from threading import Thread

from textual import on
from textual.message import Message

from dstui.files import FileProblem
from dstui.tui.kit.threads import in_thread
from dstui.tui.session.drafts import Draft, document_of
from dstui.tui.session.latest_value import Latest
from dstui.tui.verdicts import Verdicts

KEEP_AFTER = 0.3
"""Seconds from an edit to its draft: what a kill may cost."""
LAST_WRITE = 2.0
"""Seconds that the end waits for a disk."""


class DraftFailed(Message):
    """A draft could not be written: a sentence."""

    def __init__(self, why: str) -> None:
        super().__init__()
        self.why = why


class Unsaved(Verdicts):
    """The part of the app that loses nothing. A thread writes; the screen never waits for a disk."""

    to_keep: Latest[Draft] | None = None
    _kept = ("", "")
    """The text of the last draft, and what was on disk then."""
    _keeps_soon = False
    _writer: Thread | None = None
    _warned = False

    def start_keeping(self) -> None:
        """From now on there is a draft of what is not saved."""
        self.to_keep, self._kept = Latest(), (self.store.state.plan.text, self.store.on_disk)
        self._writer = in_thread(self, partial(self._write_drafts, self.to_keep))

    def keep_draft(self) -> None:
        """The Plan may be another one: keep it in a moment."""
        if self.to_keep is not None and not self._keeps_soon and self._kept != (self.store.state.plan.text, self.store.on_disk):
            self._keeps_soon = True
            self.set_timer(KEEP_AFTER, self._keep_now)

    def _keep_now(self) -> None:
        self._keeps_soon = False
        if self.to_keep is not None:
            self._kept = self.store.state.plan.text, self.store.on_disk
            self.to_keep.put(self.draft())

    def draft(self) -> Draft:
        """What is open, as it is now."""
        plan = self.store.state.plan
        return Draft(document_of(plan, self.store.path), self.store.on_disk, plan.text, plan.source, plan.base)

    def _write_drafts(self, waiting: Latest[Draft]) -> None:
        while (draft := waiting.take()) is not None:
            self._write_draft(draft)

    def _write_draft(self, draft: Draft) -> None:
        try:
            draft.keep()
        except (FileProblem, OSError) as error:
            self.post_message(DraftFailed(str(error)))

    @on(DraftFailed)
    def _draft_failed(self, event: DraftFailed) -> None:
        if not self._warned:
            self.say(f"Unsaved edits would not survive a crash, since no draft can be written: {event.why}", "warning")
        self._warned = True

    def on_unmount(self) -> None:
        """Who left by himself was asked about his edits; where a signal or an error ends the session they are kept."""
        if self.to_keep is not None:
            draft = self.draft()
            self.to_keep.put(draft if self.return_code else replace(draft, text=draft.began))
            self.to_keep.close()
        if self._writer is not None:
            self._writer.join(LAST_WRITE)

    def last_words(self) -> None:
        """Keep the edits now, and leave no child: the end comes from outside, and the app may not come to it. Any thread may call it."""
        if self.to_keep is not None and self.return_code != 0:  # who left by himself was asked
            self._write_draft(self.draft())
        self._stop_oracle()
