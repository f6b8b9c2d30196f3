"""The doctor as a dialog: whether this machine and every host of the Plan are ready."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from textual.app import App

from dstui.tui.dialogs.dialog import WIDTH
from dstui.tui.dialogs.reading import TextViewer
from dstui.tui.kit.text_row import BLANK, GLYPHS, STYLE_OF, Row, Span, paragraph, row
from dstui.tui.kit.tools import in_thread, say

if TYPE_CHECKING:
    from dstui.doctor.examine import Result
    from dstui.plan import Plan

STATES = {"fail": "error", "warn": "warning", "ok": "ok"}
"""Verdict of the doctor -> state of a row, most severe first."""


class Examined(TextViewer):
    """The doctor's results."""


def examine_plan(app: App[Any], plan: Plan) -> None:
    """Examine the hosts of a Plan in a thread, and show the results."""
    say(app, "Checking this machine and the hosts of the Plan: this takes as long as importing torch…")
    in_thread(app, partial(_examine, app, plan))


def _examine(app: App[Any], plan: Plan) -> None:
    from dstui.doctor.examine import examine
    from dstui.doctor.gather import gather_cases

    job, cases = gather_cases(plan)
    results = examine(cases, job.problem)
    rows = list(result_rows(results, WIDTH, several=len(cases) > 1))
    app.call_later(app.clear_notifications)
    app.call_later(app.push_screen, Examined("Is it ready?", rows))


def result_rows(results: Sequence[Result], width: int, *, several: bool) -> Iterator[Row]:
    """Yield the verdict, then each result, most severe first. Skipped checks are only counted."""
    counts = {verdict: sum(result.verdict == verdict for result in results) for verdict in (*STATES, "skipped")}
    ready = "Ready." if not counts["fail"] else "Not ready."
    yield row((ready, "error" if counts["fail"] else "ok"), f" {counts['ok']} ok, {counts['warn']} warnings, {counts['fail']} failed")
    yield BLANK
    for verdict, state in STATES.items():
        for result in (result for result in results if result.verdict == verdict):
            host = f"{result.host}: " if several else ""
            head = (Span(f"{GLYPHS[state]} ", STYLE_OF[state]), Span(f"{result.id:<15} "))
            yield from paragraph(f"{host}{result.observed}", width, first=head)
            if result.fix and verdict != "ok":
                yield from paragraph(f"→ {result.fix}", width, "dim", indent="    ")
