"""The panes beside and under the form: ds_config.json as it will be written, findings with fixes, memory bars, help on the field."""

from __future__ import annotations

import re
from collections.abc import Hashable
from functools import lru_cache
from typing import NamedTuple

from rich.cells import cell_len
from textual import on

from dstui.plan.finding import Finding
from dstui.render.config_files import config_name
from dstui.tui.forms.fields import Field, Option, help_for, why_fixed
from dstui.tui.forms.form_rows import HELP
from dstui.tui.forms.steps import Step, step_of
from dstui.tui.forms.steps.step import split_model_path
from dstui.tui.kit.breakpoints import ROOMY
from dstui.tui.kit.keys import key_of
from dstui.tui.kit.row_list import RowList
from dstui.tui.kit.text_row import BLANK, GLYPHS, STYLE_OF, Row, Span, fit, paragraph, row
from dstui.tui.kit.tools import label
from dstui.tui.session.messages import PathChosen
from dstui.tui.session.state import State

_TOKEN = re.compile(r'("(?:[^"\\]|\\.)*")(\s*:)|("(?:[^"\\]|\\.)*")|(-?\d[\d.eE+-]*|true|false|null|-?Infinity|NaN)')


class LineKey(NamedTuple):
    """A line of ds_config.json, counted from 0, and its dotted path; "" for a bracket."""

    number: int
    path: str


class Preview(RowList):
    """The preview of ds_config.json; choosing a line shows the field that writes it."""

    MARGIN = 1

    def __init__(self) -> None:
        super().__init__(id="preview")

    def show(self, state: State) -> None:
        """Draw the lines, and scroll to a changed one."""
        self.show_rows([_line(line.text, line.path, number, number in state.changed) for number, line in enumerate(state.lines)])
        label(self, config_name(state.plan.focus), f"{len(state.changed)} changed" if state.changed else "")
        if state.changed and not self.has_focus:
            self._reveal_changed(state)

    @on(RowList.Chosen)
    def _chosen(self, event: RowList.Chosen) -> None:
        event.stop()
        match event.key:
            case LineKey(path=path) if path:
                self.post_message(PathChosen(f"deepspeed.{path}"))

    def _reveal_changed(self, state: State) -> None:
        top, bottom = min(state.changed), max(state.changed)
        height, at = self.size.height, self.scroll_offset.y
        if top < at or bottom >= at + height:
            self.scroll_to(y=max(min(top - 1, bottom - height // 2), 0), animate=False)


@lru_cache(maxsize=2048)
def _line(text: str, path: str, number: int, changed: bool) -> Row:
    return Row(tokens(text), key=LineKey(number, path), mark="▎" if changed else "")


def tokens(text: str) -> tuple[Span, ...]:
    """Return a line of JSON as coloured spans."""
    fragments: list[Span] = []
    end = 0
    for match in _TOKEN.finditer(text):
        fragments.append(Span(text[end : match.start()], "dim"))
        key, colon, string, number = match.groups()
        fragments += [Span(key, "name"), Span(colon, "dim")] if key else [Span(string, "string")] if string else [Span(number, "number")]
        end = match.end()
    return tuple(p for p in (*fragments, Span(text[end:], "dim")) if p.text)


class FindingKey(NamedTuple):
    """The key of a finding's first row."""

    number: int


class Checks(RowList):
    """The list of findings; choosing one shows its field."""

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
        """Return the finding of a row; None if it has none or the finding is gone."""
        return self.findings[key.number] if isinstance(key, FindingKey) and key.number < len(self.findings) else None

    def to_fix(self, step: Step) -> Finding | None:
        """Return the finding under the cursor if the list has the focus; else the first with a fix, those of this step first."""
        if self.has_focus and (here := self.finding(self.cursor)) is not None:
            return here
        shown = [f for f in self.findings if step.pane == "form" or f.severity != "info"]  # the review shows no mere notes
        fixable = [f for f in shown if f.fix is not None and f.fix.by_key]
        return next((f for f in fixable if step_of(f.path) is step), None) or next(iter(fixable), None)


def _counts(state: State) -> str:
    return "  ".join(f"{GLYPHS[s]} {state.counted(s)}" for s in ("error", "warning") if state.counted(s))


def check_rows(state: State, width: int) -> list[Row]:
    """Return the findings as rows."""
    if not state.checked:
        return [row((f"{GLYPHS['unknown']} not checked yet", "dim"))]
    if not state.findings:
        return [row((GLYPHS["ok"], "ok"), " no findings")]
    rows: list[Row] = []
    for number, finding in enumerate(state.findings):
        rows += _finding_rows(number, finding, width)
    return rows


def _finding_rows(number: int, finding: Finding, width: int) -> list[Row]:
    style = STYLE_OF[finding.severity]
    glyph = GLYPHS.get(finding.severity, "i")
    model, path = split_model_path(finding.path)
    path = f"{model}: {path.removeprefix('deepspeed.')}" if model else path.removeprefix("deepspeed.")
    name = fit(path, min(len(path), width - len(finding.code) - 6))
    head = row((glyph, style), (f" {finding.code} ", "dim"), (name, style if finding.severity != "info" else ""), key=FindingKey(number))
    rows = [head, *paragraph(finding.message, width - 2, indent="  ")]
    if finding.fix:
        rows += paragraph(
            finding.fix.text, width - 2, "value", first=(Span(f"  {key_of('fix')}  " if finding.fix.by_key else "  →  ", "accent"),)
        )
    return [*rows, BLANK]


PLACES_AND_SPEED = 5
"""Lines on a screen with enough room: three places, the speed and measured runs; on others there is one line."""


class Memory(RowList):
    """The need of GPU, RAM and NVMe as bars."""

    can_focus = False
    MARGIN = 1

    def __init__(self) -> None:
        super().__init__(id="memory")

    def show(self, state: State) -> None:
        """Draw the bars. The height is set only if it changes, since that causes a new layout."""
        if not state.lookups:
            return
        from dstui.tui.forms.memory_rows import memory_rows  # not needed for the first frame

        roomy = self.app.size.height >= ROOMY
        rows = memory_rows(state, (self.size.width or 48) - 2, PLACES_AND_SPEED if roomy else 1)
        self.show_rows(rows)
        height = len(rows) + roomy
        if self.styles.height is None or self.styles.height.value != height:
            self.styles.height = height
            self.set_class(roomy, "-roomy")


class Hint(RowList):
    """Help on one field."""

    can_focus = False
    MARGIN = 1

    def __init__(self) -> None:
        super().__init__(id="hint")

    def show(self, field: Field | None, option: Option | None, state: State) -> None:
        """Draw the help of this field or of one of its options; of the row that leads on if there is none."""
        width, height = (self.size.width or 48) - 2, self.size.height
        rows = hint_rows(field, option, state, width) if field else paragraph(HELP, width, "dim")
        if 0 < height < len(rows):  # F1 shows all of it
            last = rows[height - 1]
            style = last.left[-1].style if last.left else ""  # between two sizes of the window there may be no room for a character
            rows = [*rows[: height - 1], row((fit(f"{last.text} …", min(cell_len(last.text) + 2, width)), style))]
        self.show_rows(rows)


def hint_rows(field: Field, option: Option | None, state: State, width: int) -> list[Row]:
    """Return the path, the help text, and the reason if the field is disabled."""
    disabled = why_fixed(field, state) or (option.disabled(state) if option and option.disabled else "")
    name = "" if field.help else field.path.removeprefix("deepspeed.")
    rows = [row((fit(name, min(len(name), width)), "name"))] if name else []
    if disabled:
        rows += paragraph(f"Not possible now: {disabled}.", width, "warning")
    elif option is not None and option.says:
        rows += paragraph(f"{option.label.strip()}: {option.says}.", width)
    return rows + paragraph(field.help(state) if field.help else help_for(field.path), width, "dim")
