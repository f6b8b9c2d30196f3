"""Why a job ended, or whom its ranks wait for, as rows: a few in the pane under the log, all of it in a dialog. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dstui.tui.kit.text_row import BLANK, Row, Span, fit, paragraph, row

if TYPE_CHECKING:
    from dstui.diagnosis import Diagnosis, Evidence
    from dstui.jobs.watch.stacks import Stack

EVIDENCE, FIXES = 2, 2
"""How many lines and ways out the pane shows; the dialog has all."""
WHOLE = "whole"
"""The key of the row that opens the dialog."""


def why_rows(diagnosis: Diagnosis, width: int) -> list[Row]:
    """What matters most: the cause and whose it was, the lines that show it, what else happened, the next steps."""
    rows = [Row(line.left, line.right, WHOLE if number == 0 else None) for number, line in enumerate(_headline(diagnosis, width))]
    rows += [evidence_row(line, width) for line in diagnosis.evidence[:EVIDENCE]]
    rows += [*_others(diagnosis, width), *_fixes(diagnosis, width, FIXES)]
    for note in diagnosis.notes[:1]:
        rows += paragraph(note, width, "dim", indent="  ")
    return rows


def whole_rows(diagnosis: Diagnosis, width: int) -> list[Row]:
    """Everything that is known."""
    rows = [*_headline(diagnosis, width), *paragraph(diagnosis.why, width, indent="  ")]
    rows += _part("What shows it (Enter: to this line of the log)", [evidence_row(line, width) for line in diagnosis.evidence])
    rows += _part("Besides", _others(diagnosis, width))
    rows += _part("It could also be" if diagnosis.found else "It could be", _could_be(diagnosis, width))
    rows += _part("Also", [line for note in diagnosis.notes for line in paragraph(note, width, indent="  ")])
    rows += _part("What to do", _fixes(diagnosis, width, len(diagnosis.fixes)))
    if diagnosis.confirm:
        sure = "What makes it certain" if diagnosis.confidence == "high" else "What would confirm it"
        rows += _part(sure, paragraph(diagnosis.confirm, width, indent="  "))
    return rows


def waiting_rows(hang: str, grouped: tuple[str, ...], width: int) -> list[Row]:
    """Of a job that is silent: who waits, who is missing, and, once they were asked for, where each is."""
    rows = paragraph(f"{hang}.", width, first=(Span("▲ ", "warning"),))
    for line in grouped:
        rows += paragraph(line, width, indent="  ")
    return rows if grouped else [*rows, row(("  p ", "accent"), "shows where in its Python code each rank is")]


def stack_rows(found: Sequence[Stack], width: int) -> list[Row]:
    """Where each rank is: first what follows from it, then the frames, those at the same place together."""
    from dstui.jobs.watch.hang_analysis import grouped
    from dstui.jobs.watch.stacks import report

    rows = [line for text in grouped(found) for line in paragraph(text, width)]
    frames = [row((fit(line, min(len(line), width)), "dim" if line.startswith(" ") else "title")) for line in report(found).split("\n")]
    return [*rows, BLANK, *frames]


def evidence_row(line: Evidence, width: int) -> Row:
    """One line of a log that shows the cause; its key is the evidence itself."""
    where = f"{Path(line.file).name}:{line.line}  "
    text = line.text.strip()
    return row("  ", (where, "dim"), fit(text, max(min(len(text), width - len(where) - 2), 8)), key=line)


def label_of(diagnosis: Diagnosis) -> str:
    """The frame's second label: the cause's name, how sure, and the key for the rest."""
    if not diagnosis.found:
        return "unknown   d all of it"
    from dstui.diagnosis.wording import SURE
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
    from dstui.diagnosis.wording import named

    return [line for one in diagnosis.others for line in paragraph(f"and, independently of it, {named(one)}", width, indent="  ")]


def _could_be(diagnosis: Diagnosis, width: int) -> list[Row]:
    if not diagnosis.could_be:
        return []
    from dstui.diagnosis.wording import named_with_proof

    return [line for one in diagnosis.could_be for line in paragraph(named_with_proof(one), width, indent="  ")]


def _fixes(diagnosis: Diagnosis, width: int, most: int) -> list[Row]:
    """The ways out; the first that edits the Plan has its key."""
    key = next((fix for fix in diagnosis.fixes if fix.patch), None)
    rows: list[Row] = []
    for fix in diagnosis.fixes[:most] if key is None or key in diagnosis.fixes[:most] else (*diagnosis.fixes[: most - 1], key):
        first = (Span("  x ", "accent"),) if fix is key else (Span("  → ", "dim"),)
        rows += paragraph(fix.text, width, "value" if fix is key else "", first=first)
    return rows


def _part(title: str, rows: list[Row]) -> list[Row]:
    return [BLANK, row((title, "title")), *rows] if rows else []
