"""Do what a finding says that is to be done: its patch to the Plan, or the removal of what a killed build has left."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from textual.app import App

from dstui.tui.kit.notes import say
from dstui.tui.kit.threads import in_thread
from dstui.tui.session.messages import FilesChanged
from dstui.tui.session.session import Session

if TYPE_CHECKING:
    from dstui.plan.finding import Finding, Fix


class Fixing:
    """Applies a fix, and says what was done. Posts FilesChanged where it was done to files."""

    def __init__(self, app: App[int], session: Session) -> None:
        self._app, self._session = app, session

    def fix(self, finding: Finding | None) -> None:
        """Apply the fix of a finding; None where no finding has one."""
        if finding is None or finding.fix is None:
            say(self._app, "There is no fix to apply.")
        elif finding.fix.removes:
            in_thread(self._app, partial(self._remove_files, finding.fix))
        elif self._session.apply(finding.fix):
            say(self._app, f"{finding.code}: {finding.fix.text} (z takes it back)")
        else:
            say(self._app, f"{finding.fix.text}: this one is yours to do.")

    def _remove_files(self, fix: Fix) -> None:
        from dstui.jobs.store.op_locks import remove_locks

        self._app.call_later(say, self._app, remove_locks(fix.removes))
        self._app.post_message(FilesChanged())
