"""A step's form as rows: pure functions, so that the content can be tested without a screen."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from rich.cells import cell_len

from dstui.tui.forms.fields import Field, Option, default_of, format_value, why_fixed
from dstui.tui.forms.slot_grid import grid_rows
from dstui.tui.forms.steps import STEPS, Step, step_of
from dstui.tui.kit.text_row import BLANK, GLYPHS, STYLE_OF, Row, Span, fit, paragraph, row
from dstui.tui.session.state import UNSET, State

NEXT: Final = "next step"
"""The key of the row."""
HELP: Final = "Enter goes to the next step; ↓ goes into the fields."


def next_row(step: Step) -> Row:
    """Return the row below the question of this step that leads on: at the top, so that it is visible in long forms too."""
    number = STEPS.index(step) + 1
    return row(("→ ", "accent"), f"on to {number + 1} · {STEPS[number].title}", right=[("Enter", "dim")], key=NEXT)


LABEL = 25
"""Cells for the label of a field."""
LONG_KINDS = ("text", "words", "pairs", "patterns")
"""Kinds whose value may be longer than the space behind the label."""


class FieldKey(NamedTuple):
    """The key of a field's row."""

    path: str


class OptionKey(NamedTuple):
    """The key of an option's row."""

    path: str
    number: int


def form_rows(step: Step, state: State, width: int, opened: str, *, roomy: bool) -> list[Row]:
    """Return the form of a step for a width in cells; `opened` is the path of the choice whose options are shown.

    `roomy`: informative rows are in their proper places, else below all fields.
    """
    rows, later = [*paragraph(step.question, width - 1, "title"), next_row(step), BLANK], list[Row]()
    for number, field in enumerate(step.fields(state)):
        if field.title:
            rows += [*([BLANK] if number and rows[-1] is not BLANK else []), row((field.title, "accent"), right=[(field.columns, "faint")])]
        elif field.columns:
            rows[-1] = row(right=[(field.columns, "faint")])
        rows += _field_rows(field, state, width, opened)
        rows += _remarks(field, state, width)
        if field.below:
            (rows if roomy else later).extend(field.below(state, width))
    rows += later
    return rows + (step.below(state, [f for f in state.findings if step_of(f.path) is step], width) if step.below else [])


def _field_rows(field: Field, state: State, width: int, opened: str) -> Iterable[Row]:
    disabled = why_fixed(field, state)
    if field.kind == "grid":
        head = row(fit(field.label, LABEL), key=FieldKey(field.path))
        yield from grid_rows(field, state, width, head, opened=field.path == opened)
    elif field.kind == "choice" and (field.spread or field.path == opened):
        if not field.spread:
            yield from _line(field, state, width, disabled, opened=True)
        for number in range(len(field.options)):
            yield _option_row(field, number, state, width, disabled)
        if field.spread:
            yield BLANK
    else:
        yield from _line(field, state, width, disabled, field.path == opened)


def _option_row(field: Field, number: int, state: State, width: int, field_disabled: str) -> Row:
    option = field.options[number]
    disabled = field_disabled or (option.disabled(state) if option.disabled else "")
    chosen = chosen_option(field, state) is option
    says = disabled or option.figure or option.says
    if chosen and field_disabled and field.value(state) is UNSET:
        says = ""  # the default needs nothing
    room = width - 4 - cell_len(option.label)
    label = Span(f"{'●' if chosen else '○'} {option.label}", "dim" if disabled else "set" if chosen else "")
    indent = "" if field.spread else "  "
    says = says if says == option.figure else fit(says, min(cell_len(says), room - len(indent)))  # figures are whole, or the label is cut
    end = (says, "faint" if disabled else STYLE_OF.get(option.severity, "dim"))
    return row(indent, label, right=[end], key=OptionKey(field.path, number))


def chosen_option(field: Field, state: State) -> Option | None:
    """Return the option that applies now, by the Plan or by default; None for a value that is not an option."""
    value = field.value(state)
    value = default_of(field) if value is UNSET else value
    return next((o for o in field.options if o.value == value and (o.value is UNSET) == (value is UNSET)), None)


def _line(field: Field, state: State, width: int, disabled: str, opened: bool) -> Iterable[Row]:
    """Yield the rows of a field. Text that is too long, and the Input, get rows of their own below."""
    key, remark = FieldKey(field.path), field.says(state) if field.says else ""
    room = width - LABEL - 1
    if disabled:
        yield row((fit(field.label, LABEL), "faint"), (fit(disabled, min(cell_len(disabled), room)), "faint"), key=key)
        return
    value = field.value(state)
    written = value is not UNSET and value is not None
    if field.kind == "toggle":
        yield _toggle(field, value, fit(remark, min(cell_len(remark), width - LABEL - 1)), layer_of(state, field.path), key)
        return
    text, style = (format_value(value), "set") if written else (_unwritten(field), "dim")
    below = field.kind in LONG_KINDS and (opened or cell_len(text) > room)
    if below:
        yield row(field.label, key=key)
        yield from [BLANK] if opened else paragraph(text, width - 1, style, indent="  ")[:3]
        return
    arrow = (" ▾", "dim") if field.kind == "choice" else ("", "")
    unit = f" {field.unit_of(value)}" if field.unit and written else ""
    tail = remark or ("default" if not written and text != "–" else layer_of(state, field.path) if written else "")
    fits = cell_len(text) + len(unit) + len(arrow[0]) + cell_len(tail) + 1 <= room
    here = (fit(text, min(cell_len(text), room)), style)
    yield row(fit(field.label, LABEL), here, arrow, (unit, "dim"), right=[(tail if fits else "", "faint")], key=key)
    if remark and not fits:
        yield row((f"  {remark}", "dim"))


def layer_of(state: State, path: str) -> str:
    """Return the layer that a value comes from (site, extends, settings); "" if the Plan itself sets it."""
    if not state.plan.beneath:
        return ""
    from dstui.plan.locks import origin_of

    origin = origin_of(state.plan, path)
    return origin.layer if origin is not None and origin.layer != "Plan" else ""


def typing_place(field: Field, width: int) -> tuple[int, int, int]:
    """Return the position of the Input: cells from the left, rows below the field's row, and its width."""
    return (2, 1, width - 3) if field.kind in LONG_KINDS else (LABEL, 0, width - LABEL - 1)


def _unwritten(field: Field) -> str:
    default = default_of(field)
    for option in field.options:
        if option.value == default:
            return option.label
    if isinstance(default, int) and default >= 10**6 and default % 10**6 == 0:
        digits = str(default).rstrip("0")
        return f"{digits}e{len(str(default)) - len(digits)}"
    return format_value(default)


def _toggle(field: Field, value: object, remark: str, layer: str, key: FieldKey) -> Row:
    written = value is not UNSET and value is not None
    on = (value if written else default_of(field)) is True
    unknown = not written and default_of(field) in (UNSET, None)
    box = "–" if unknown else "[x] yes" if on else "[ ] no" if not isinstance(value, str) else format_value(value)  # "auto"
    if remark:
        return row((f"{'[x]' if on else '[ ]'} ", "set" if on else "dim"), fit(field.label, LABEL - 4), (remark, "dim"), key=key)
    tail = layer if written else "" if unknown else "default"
    return row(fit(field.label, LABEL), (box, "set" if written else "dim"), right=[(tail, "faint")], key=key)


def _remarks(field: Field, state: State, width: int) -> list[Row]:
    """Yield the rows under a field: the reason of a refusal, or its findings."""
    if state.refusal[0] == field.path:
        return paragraph(state.refusal[1], width - 1, "error", first=(Span(f"  {GLYPHS['error']} ", "error"),))
    finding = state.finding_at(field.path)
    if finding is None:
        return []
    style = STYLE_OF[finding.severity]
    return paragraph(finding.message, width - 1, style, first=(Span(f"  {GLYPHS[finding.severity]} ", style),))
