"""Why a job ended, at length: the whole diagnosis, its lines where they stand in the log, and where each rank is in its code."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from dstui.tui.dialogs.text_viewer import WIDTH, TextViewer
from dstui.tui.kit.notes import say
from dstui.tui.run.diagnosis_rows import stack_rows, whole_rows
from dstui.tui.run.job_view import JobView

if TYPE_CHECKING:
    from dstui.jobs.watch.stacks import Stack


class Explaining:
    """Shows over the app what the pane under the log has no room for, and leads from it into the log."""

    def __init__(self, view: JobView) -> None:
        self._view = view

    def show_whole(self) -> None:
        """The whole diagnosis; a line of evidence that is chosen in it is shown in the log."""
        if (diagnosis := self._view.why.diagnosis) is not None:
            self._view.app.push_screen(TextViewer("Why it ended", whole_rows(diagnosis, self._room)), self.show_evidence)

    def show_evidence(self, evidence: object) -> None:
        """A line of evidence where it stands in the log; any other row of that pane leads nowhere."""
        from dstui.diagnosis import Evidence

        if not isinstance(evidence, Evidence) or self._view.job is None:
            return
        if Path(evidence.file).suffix != ".log":
            say(self._view.app, f"{evidence.file}, line {evidence.line}")
            return
        self._view.show_rank(evidence.rank if evidence.file.endswith(f"rank_{evidence.rank}.log") else None)
        self._view.job_log.find(evidence.text.strip())
        self._view.log_view.focus()

    def show_stacks(self, stacks: list[Stack]) -> None:
        """Where the ranks are, in the pane under the log and whole."""
        from dstui.jobs.watch.hang_analysis import grouped

        self._view.why.stand(grouped(stacks))
        self._view.app.push_screen(TextViewer("Where the ranks are", stack_rows(stacks, self._room)))

    @property
    def _room(self) -> int:
        """Cells for the text of a dialog."""
        return min(WIDTH, self._view.app.size.width - 10)
