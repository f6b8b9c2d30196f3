"""Why a job ended: the cause in a sentence, the lines that show it, and what to do; seen only where a job has failed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from dstui.tui.row import Row, Span, fit, paragraph, row
from dstui.tui.widgets.rows import Rows

if TYPE_CHECKING:
    from dstui.run.diagnosis import Diagnosis

EVIDENCE, FIXES = 2, 2
"""How many lines and ways out are shown; `dstui diagnose` says all."""


class Why(Rows):
    """The diagnosis of the job that is looked at."""

    can_focus = False

    def __init__(self) -> None:
        super().__init__(id="why", classes="pane")
        self.diagnosis: Diagnosis | None = None

    def show(self, diagnosis: Diagnosis | None) -> None:
        """Draw it; nothing is said of a success."""
        self.diagnosis = diagnosis if diagnosis is not None and diagnosis.kind != "success" and diagnosis.found else None
        self.display = self.diagnosis is not None
        if self.diagnosis is not None:
            rows = why_rows(self.diagnosis, (self.size.width or 110) - 3)
            self.styles.height = len(rows) + 2
            self.label("Why it ended", f"{self.diagnosis.cause}, {self.diagnosis.confidence} confidence")
            self.show_rows(rows)


def why_rows(diagnosis: Diagnosis, width: int) -> list[Row]:
    """The diagnosis as rows."""
    style = "error" if diagnosis.kind == "failure" else "warning"
    rows = paragraph(diagnosis.title, width, first=(Span("✖ " if diagnosis.kind == "failure" else "■ ", style),))
    for line in diagnosis.evidence[:EVIDENCE]:
        where = f"{Path(line.file).name}:{line.line}  "
        rows.append(row("  ", (where, "dim"), fit(line.text.strip(), min(len(line.text.strip()), width - len(where) - 2))))
    for fix in diagnosis.fixes[:FIXES]:
        first = (Span("  x ", "accent"),) if fix.patch else (Span("  → ", "dim"),)
        rows += paragraph(fix.text, width, "value" if fix.patch else "", first=first)
    return rows
