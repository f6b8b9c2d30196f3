"""Below the log: why the job ended; while it runs silently, which ranks wait for which.

The first diagnosis is made when the last rank has ended, and another one when the launcher has ended too, whose log may say more.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from textual import events, on
from textual.message import Message
from textual.widget import Widget

from dstui.tui.kit.row_list import RowList
from dstui.tui.kit.text_row import BLANK, Row, Span, fit, paragraph, row
from dstui.tui.kit.tools import in_thread, label

if TYPE_CHECKING:
    from dstui.diagnosis import Diagnosis, Evidence
    from dstui.jobs.store.folder import JobFolder
    from dstui.jobs.watch.follow import Follower
    from dstui.jobs.watch.hangs import Hang
    from dstui.jobs.watch.stacks import Stack
    from dstui.plan.finding import Fix


EVIDENCE, FIXES = 2, 2
"""Lines of evidence and fixes in the pane; the dialog has all."""
WHOLE = "whole"
"""The key of the row that opens the dialog."""


def why_rows(diagnosis: Diagnosis, width: int) -> list[Row]:
    """Return the most important part: the cause and its rank, the evidence, what else happened, the next steps."""
    rows = [Row(line.left, line.right, WHOLE if number == 0 else None) for number, line in enumerate(_headline(diagnosis, width))]
    rows += [evidence_row(line, width) for line in diagnosis.evidence[:EVIDENCE]]
    rows += [*_others(diagnosis, width), *_fixes(diagnosis, width, FIXES)]
    for note in diagnosis.notes[:1]:
        rows += paragraph(note, width, "dim", indent="  ")
    return rows


def full_rows(diagnosis: Diagnosis, width: int) -> list[Row]:
    """Return the full diagnosis."""
    rows = [*_headline(diagnosis, width), *paragraph(diagnosis.why, width, indent="  ")]
    rows += _part("What shows it (Enter: to this line of the log)", [evidence_row(line, width) for line in diagnosis.evidence])
    rows += _part("Besides", _others(diagnosis, width))
    rows += _part("It could also be" if diagnosis.found else "It could be", _could_be(diagnosis, width))
    rows += _part("Also", [line for note in diagnosis.notes for line in paragraph(note, width, indent="  ")])
    rows += _part("What to do", _fixes(diagnosis, width, len(diagnosis.fixes)))
    if diagnosis.confirm:
        sure = "What proves it" if diagnosis.confidence == "high" else "What would confirm it"
        rows += _part(sure, paragraph(diagnosis.confirm, width, indent="  "))
    return rows


def waiting_rows(hang: str, grouped: tuple[str, ...], width: int) -> list[Row]:
    """Return, for a silent job, which ranks wait, which are missing, and where each is if stacks were read."""
    rows = paragraph(f"{hang}.", width, first=(Span("▲ ", "warning"),))
    for line in grouped:
        rows += paragraph(line, width, indent="  ")
    return rows if grouped else [*rows, row(("  p ", "accent"), "shows where in its Python code each rank is")]


def stack_rows(found: Sequence[Stack], width: int) -> list[Row]:
    """Return where each rank is: first the conclusion, then the frames, ranks at the same place together."""
    from dstui.jobs.watch.hang_analysis import grouped
    from dstui.jobs.watch.stacks import report

    rows = [line for text in grouped(found) for line in paragraph(text, width)]
    frames = [row((fit(line, min(len(line), width)), "dim" if line.startswith(" ") else "title")) for line in report(found).split("\n")]
    return [*rows, BLANK, *frames]


def evidence_row(line: Evidence, width: int) -> Row:
    """Return a line of evidence; its key is the evidence itself."""
    where = f"{Path(line.file).name}:{line.line}  "
    text = line.text.strip()
    return row("  ", (where, "dim"), fit(text, max(min(len(text), width - len(where) - 2), 8)), key=line)


def label_of(diagnosis: Diagnosis) -> str:
    """Return the frame's second label: the name of the cause, its confidence, and the key for the rest."""
    if not diagnosis.found:
        return "unknown   d all of it"
    from dstui.diagnosis.reporting.wording import SURE
    from dstui.jobs.store.ranks import ranks_in_words

    shared = f" on {ranks_in_words(diagnosis.ranks)}" if len(diagnosis.ranks) > 1 else ""
    return f"{diagnosis.cause}{shared}, {SURE[diagnosis.confidence]}   d all of it"


def _headline(diagnosis: Diagnosis, width: int) -> list[Row]:
    failure = diagnosis.kind == "failure"
    rank = diagnosis.first_failing_rank
    where = "" if rank is None else f"rank {rank}{f' on {diagnosis.host}' if diagnosis.host else ''}: "
    return paragraph(where + diagnosis.title, width, first=(Span("✖ " if failure else "■ ", "error" if failure else "warning"),))


def _others(diagnosis: Diagnosis, width: int) -> list[Row]:
    if not diagnosis.others:
        return []
    from dstui.diagnosis.reporting.wording import named

    return [line for one in diagnosis.others for line in paragraph(f"and, independently of it, {named(one)}", width, indent="  ")]


def _could_be(diagnosis: Diagnosis, width: int) -> list[Row]:
    if not diagnosis.could_be:
        return []
    from dstui.diagnosis.reporting.wording import named_with_proof

    return [line for one in diagnosis.could_be for line in paragraph(named_with_proof(one), width, indent="  ")]


def _fixes(diagnosis: Diagnosis, width: int, most: int) -> list[Row]:
    """Return the fixes; the first that edits the Plan shows its key."""
    key = next((fix for fix in diagnosis.fixes if fix.patch), None)
    rows: list[Row] = []
    for fix in diagnosis.fixes[:most] if key is None or key in diagnosis.fixes[:most] else (*diagnosis.fixes[: most - 1], key):
        first = (Span("  x ", "accent"),) if fix is key else (Span("  → ", "dim"),)
        rows += paragraph(fix.text, width, "value" if fix is key else "", first=first)
    return rows


def _part(title: str, rows: list[Row]) -> list[Row]:
    return [BLANK, row((title, "title")), *rows] if rows else []


WARM_UP = 3.0
"""Seconds after which the modules of the diagnosis are loaded, which takes a third of a second, so as not to delay the diagnosis."""
BESIDE = 6
"""Cells of the width around it for frame, margin and scroll bar, since a hidden pane has no width of its own."""
Moment = tuple[int, bool]
"""An attempt whose ranks have all ended, and whether the job has ended."""


class DiagnosisPane(RowList):
    """The diagnosis of the job. Hidden if there is none."""

    class Diagnosed(Message):
        """The diagnosis of a job, as far as it was known at one moment."""

        def __init__(self, folder: JobFolder, moment: Moment, diagnosis: Diagnosis) -> None:
            super().__init__()
            self.folder, self.moment, self.diagnosis = folder, moment, diagnosis

    def __init__(self) -> None:
        super().__init__(id="why", classes="pane")
        self.folder: JobFolder | None = None
        self.diagnosis: Diagnosis | None = None
        self.hang: Hang | None = None
        self.grouped: tuple[str, ...] = ()
        """The ranks grouped by the place where they are; empty if their stacks were not read."""
        self._moment: Moment | None = None
        self._places: tuple[str, ...] = ()
        """The same from the supervisor."""

    def begin(self, folder: JobFolder | None) -> None:
        """Start with another job, or with none."""
        self.folder, self._moment = folder, None
        self._forget()
        self._draw()
        if folder is not None:
            self.set_timer(WARM_UP, lambda: in_thread(self, _load))

    def update(self, follower: Follower, hang: Hang | None) -> None:
        """Take over the state of the job, and diagnose it as soon as it has ended."""
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
        if follower.notices.places != self._places:
            self._places = self.grouped = follower.notices.places
            self._draw()
        if hang != self.hang or moment is None:
            self.hang = hang
            self._draw()

    def stand(self, grouped: tuple[str, ...]) -> None:
        """Show where the ranks are, when their stacks were read."""
        self.grouped = grouped
        self._draw()

    @property
    def fix(self) -> Fix | None:
        """Return the fix that edits the Plan, or None."""
        return next((fix for fix in self.diagnosis.fixes if fix.patch), None) if self.diagnosis is not None else None

    def _diagnose(self, folder: JobFolder, moment: Moment) -> None:
        from dstui.base.files import FileProblem
        from dstui.diagnosis import diagnose_job
        from dstui.diagnosis.job.notes import with_history

        try:
            self.post_message(self.Diagnosed(folder, moment, with_history(diagnose_job(folder), folder)))
        except FileProblem:  # its logs are gone: there is no findings
            return

    @on(Diagnosed)
    def _diagnosed(self, event: Diagnosed) -> None:
        event.stop()
        if event.folder == self.folder and event.moment == self._moment:
            well = event.diagnosis.kind in ("success", "benign", None)  # None: its launcher has not printed anything yet
            self.diagnosis = None if well else event.diagnosis
            self._draw()

    def on_resize(self, _event: events.Resize) -> None:
        """Wrap for the new width."""
        self._draw()

    def _forget(self) -> None:
        self.diagnosis, self.hang, self.grouped, self._places = None, None, (), ()

    def _draw(self) -> None:
        around = self.parent.size.width if isinstance(self.parent, Widget) else 0
        rows = self._rows((around or self.app.size.width) - BESIDE)
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
    import dstui.diagnosis.job.job_diagnosis  # noqa: F401
