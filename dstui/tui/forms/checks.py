"""The findings: what is wrong, why it matters, and the fix that one key applies."""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple

from textual import on

from dstui.plan.finding import Finding
from dstui.tui.forms.steps import Step, step_of
from dstui.tui.forms.steps.models import of_model
from dstui.tui.kit.frame import label
from dstui.tui.kit.row_list import RowList
from dstui.tui.kit.text_row import BLANK, GLYPHS, STYLE_OF, Row, Span, fit, paragraph, row
from dstui.tui.session.messages import PathChosen
from dstui.tui.session.state import State


class FindingKey(NamedTuple):
    """The first row of a finding."""

    number: int


class Checks(RowList):
    """The list of findings; choosing one goes to the field it is about."""

    def __init__(self) -> None:
        super().__init__(id="checks")
        self.findings: tuple[Finding, ...] = ()

    def show(self, state: State) -> None:
        """Draw the findings."""
        self.findings = state.findings
        label(self, "Checks", "  ".join(filter(None, (_counts(state), state.deepspeeds_word()))))
        self.show_rows(check_rows(state, (self.size.width or 38) - 1))

    @on(RowList.Chosen)
    def _chosen(self, event: RowList.Chosen) -> None:
        event.stop()
        if (finding := self.finding(event.key)) is not None:
            self.post_message(PathChosen(finding.path))

    def finding(self, key: Hashable) -> Finding | None:
        """What a row stands for; None where it stands for none, or is gone."""
        return self.findings[key.number] if isinstance(key, FindingKey) and key.number < len(self.findings) else None

    def to_fix(self, step: Step) -> Finding | None:
        """The finding under the cursor while this list has the focus; else the first that has a fix, on this step if there is one."""
        if self.has_focus and (here := self.finding(self.cursor)) is not None:
            return here
        shown = [f for f in self.findings if step.pane == "form" or f.severity != "info"]  # the review tells no mere notes
        fixable = [f for f in shown if f.fix is not None and f.fix.by_key]
        return next((f for f in fixable if step_of(f.path) is step), None) or next(iter(fixable), None)


def _counts(state: State) -> str:
    return "  ".join(f"{GLYPHS[s]} {state.counted(s)}" for s in ("error", "warning") if state.counted(s))


def check_rows(state: State, width: int) -> list[Row]:
    """The findings as rows."""
    if not state.checked:
        return [row((f"{GLYPHS['unknown']} not looked at yet", "dim"))]
    if not state.findings:
        return [row((GLYPHS["ok"], "ok"), " nothing to complain about")]
    rows: list[Row] = []
    for number, finding in enumerate(state.findings):
        rows += _finding_rows(number, finding, width)
    return rows


def _finding_rows(number: int, finding: Finding, width: int) -> list[Row]:
    style = STYLE_OF[finding.severity]
    glyph = GLYPHS.get(finding.severity, "i")
    model, path = of_model(finding.path)
    path = f"{model}: {path.removeprefix('deepspeed.')}" if model else path.removeprefix("deepspeed.")
    name = fit(path, min(len(path), width - len(finding.code) - 6))
    head = row((glyph, style), (f" {finding.code} ", "dim"), (name, style if finding.severity != "info" else ""), key=FindingKey(number))
    rows = [head, *paragraph(finding.message, width - 2, indent="  ")]
    if finding.fix:
        rows += paragraph(finding.fix.text, width - 2, "value", first=(Span("  x  " if finding.fix.by_key else "  →  ", "accent"),))
    return [*rows, BLANK]
