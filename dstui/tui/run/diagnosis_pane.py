"""Under the log: why the job ended; while it runs and is silent, who waits for whom.

The first verdict comes when the last rank has ended; it is asked for again when the launcher has ended too, whose log may say more.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from textual import events, on
from textual.message import Message

from dstui.tui.kit.frame import label
from dstui.tui.kit.row_list import RowList
from dstui.tui.kit.text_row import Row
from dstui.tui.kit.threads import in_thread
from dstui.tui.run.diagnosis_rows import label_of, waiting_rows, why_rows

if TYPE_CHECKING:
    from dstui.diagnosis import Diagnosis
    from dstui.jobs.store.folder import JobFolder
    from dstui.jobs.watch.follow import Follower
    from dstui.jobs.watch.hangs import Hang
    from dstui.plan.finding import Fix

WARM_UP = 3.0
"""Seconds after which what a diagnosis needs is loaded: a third of a second that nobody should wait for at the end."""
BESIDE = 6
"""Cells of the screen's width that are frame, margin and scroll bar: a pane that is not seen yet has no width of its own."""
Moment = tuple[int, bool]
"""An attempt whose ranks have all ended, and whether the job has."""


class DiagnosisPane(RowList):
    """The reason. Not seen while there is nothing to explain."""

    class Diagnosed(Message):
        """Why a job ended, as far as that was known at a moment."""

        def __init__(self, folder: JobFolder, moment: Moment, diagnosis: Diagnosis) -> None:
            super().__init__()
            self.folder, self.moment, self.diagnosis = folder, moment, diagnosis

    def __init__(self) -> None:
        super().__init__(id="why", classes="pane")
        self.folder: JobFolder | None = None
        self.diagnosis: Diagnosis | None = None
        self.hang: Hang | None = None
        self.grouped: tuple[str, ...] = ()
        """Where the ranks are, those at the same place together; empty where nobody has asked."""
        self._moment: Moment | None = None

    def begin(self, folder: JobFolder | None) -> None:
        """Another job, or none."""
        self.folder, self._moment = folder, None
        self._forget()
        self._draw()
        if folder is not None:
            self.set_timer(WARM_UP, lambda: in_thread(self, _load))

    def update(self, follower: Follower, hang: Hang | None) -> None:
        """What was seen of the job: asks why it ended as soon as that can be known."""
        from dstui.logs.log_folder import FINAL

        ended = follower.state in FINAL
        over = bool(follower.ranks) and all(view.state in ("ended", "lost") for view in follower.ranks.values())
        moment = (follower.attempt, ended) if ended or over else None
        if moment != self._moment:
            self._moment = moment
            if moment is None:
                self._forget()  # another attempt
            else:
                ask = partial(self._diagnose, follower.folder, moment)
                in_thread(self, ask)
        if hang is None and self.hang is not None:
            self.grouped = ()
        if hang != self.hang or moment is None:
            self.hang = hang
            self._draw()

    def stand(self, grouped: tuple[str, ...]) -> None:
        """Where the ranks are, now that somebody has looked."""
        self.grouped = grouped
        self._draw()

    @property
    def fix(self) -> Fix | None:
        """What the diagnosis would change in the Plan, if anything."""
        return next((fix for fix in self.diagnosis.fixes if fix.patch), None) if self.diagnosis is not None else None

    def _diagnose(self, folder: JobFolder, moment: Moment) -> None:
        from dstui.base.files import FileProblem
        from dstui.diagnosis import diagnose_job

        try:
            self.post_message(self.Diagnosed(folder, moment, diagnose_job(folder)))
        except FileProblem:  # its logs are gone: there is nothing to say
            return

    @on(Diagnosed)
    def _diagnosed(self, event: Diagnosed) -> None:
        event.stop()
        if event.folder == self.folder and event.moment == self._moment:
            well = event.diagnosis.kind in ("success", "benign", None)  # None: its launcher has not spoken yet
            self.diagnosis = None if well else event.diagnosis
            self._draw()

    def on_resize(self, _event: events.Resize) -> None:
        """Wrap anew."""
        self._draw()

    def _forget(self) -> None:
        self.diagnosis, self.hang, self.grouped = None, None, ()

    def _draw(self) -> None:
        rows = self._rows(self.app.size.width - BESIDE)
        self.display = bool(rows)
        if rows:
            self.styles.height = len(rows) + 2
            self.show_rows(rows)

    def _rows(self, width: int) -> list[Row]:
        if self.diagnosis is not None:
            label(self, "Why it ended", label_of(self.diagnosis))
            return why_rows(self.diagnosis, width)
        if self.hang is not None:
            label(self, "Who waits for whom", "nothing was killed")
            return waiting_rows(str(self.hang), self.grouped, width)
        return []


def _load() -> None:
    import dstui.diagnosis.job_diagnosis  # noqa: F401
