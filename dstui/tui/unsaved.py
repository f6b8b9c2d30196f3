"""What becomes of edits that are not saved: a draft on disk while they are made, offered again when a session ended without an answer."""

from __future__ import annotations

import difflib
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from socket import gethostname

from textual import on
from textual.message import Message

from dstui.files import FileProblem
from dstui.plan import PlanError
from dstui.tui.drafts import Draft, document_of, left_behind, take_over
from dstui.tui.latest import Latest
from dstui.tui.row import BLANK, Row, fit, row
from dstui.tui.screens.dialog import WIDTH, Answer, Ask
from dstui.tui.verdicts import Verdicts

KEEP_AFTER = 0.3
"""Seconds from an edit to its draft: what a kill may cost."""
LINES = 12
"""Changed lines that are shown of a draft."""


class DraftsFound(Message):
    """Drafts that sessions before this one have left behind, the newest first."""

    def __init__(self, drafts: Sequence[Draft]) -> None:
        super().__init__()
        self.drafts = drafts


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
    _warned = False

    def start_keeping(self) -> None:
        """From now on there is a draft of what is not saved."""
        self.to_keep, self._kept = Latest(), (self.store.state.plan.text, self.store.on_disk)
        self.run_worker(partial(self._write_drafts, self.to_keep), thread=True, exit_on_error=False, group="drafts")
        self.run_worker(self._find_drafts, thread=True, exit_on_error=False, group="drafts")

    def keep_draft(self) -> None:
        """The Plan may be another one: keep it in a moment."""
        if self.to_keep is not None and not self._keeps_soon and self._kept != (self.store.state.plan.text, self.store.on_disk):
            self._keeps_soon = True
            self.set_timer(KEEP_AFTER, self._keep_now)

    def _keep_now(self) -> None:
        self._keeps_soon = False
        if self.to_keep is not None:
            self._kept = self.store.state.plan.text, self.store.on_disk
            self.to_keep.put(self._draft())

    def _draft(self) -> Draft:
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
            draft = self._draft()
            self.to_keep.put(draft if self.return_code else replace(draft, text=draft.began))
            self.to_keep.close()

    # What was left behind

    def _find_drafts(self) -> None:
        if found := left_behind():
            self.post_message(DraftsFound(found))

    @on(DraftsFound)
    def _drafts_found(self, event: DraftsFound) -> None:
        """Offer the newest draft of what is open."""
        document = document_of(self.store.state.plan, self.store.path)
        draft = next((d for d in event.drafts if d.document == document), None)
        if draft is None:
            return
        changes = changed_lines(self.store.state.plan.text, draft.text)
        if not changes:
            draft.forget()
            return
        answers = [
            Answer("t", "take them up (z takes them back)", True),
            Answer("d", "discard them for ever", False),
            Answer("l", "later: leave them where they are", None),
        ]
        text = f"{_when(draft)} a session ended with edits of this Plan that were not saved."
        if draft.began != self.store.on_disk:
            text += " The file was changed by something else since: saving the edits replaces that."
        self.push_screen(Ask("Unsaved edits", text, answers, _shown(changes)), partial(self._resume, draft))

    def _resume(self, draft: Draft, take: bool | None) -> None:
        if take is False:
            draft.forget()
        elif take:
            try:
                self.store.replace(draft.text)
            except PlanError as error:
                self.say(f"The draft is no Plan any more: {error}. It stays in {draft.file}", "error")
            else:
                self.run_worker(partial(take_over, draft, self._draft()), thread=True, exit_on_error=False, group="drafts")


def changed_lines(before: str, now: str) -> list[str]:
    """The lines that differ, each with + or - before it."""
    lines = difflib.unified_diff(before.splitlines(), now.splitlines(), lineterm="", n=0)
    return [line for line in list(lines)[2:] if not line.startswith("@@")]


def _shown(changes: Sequence[str]) -> list[Row]:
    rows = [row((fit(line, min(len(line), WIDTH - 4)), "ok" if line.startswith("+") else "error")) for line in changes[:LINES]]
    return [*rows, *([row((f"… and {len(changes) - LINES} more lines", "dim"))] if len(changes) > LINES else []), BLANK]


def _when(draft: Draft) -> str:
    moment = time.strftime("%H:%M" if time.time() - draft.at < 43_200 else "%Y-%m-%d %H:%M", time.localtime(draft.at))
    return f"At {moment}" if draft.host == gethostname() else f"At {moment}, on {draft.host},"
