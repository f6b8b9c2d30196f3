"""One field of a step as a prompt: its line, its explanation, and the edit of the Plan that an answer makes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from dstui.plain.console import NO, YES, Console, number_in
from dstui.tui.forms.fields import Field, NotThat, Option, default_of, format_value, help_for, parse_value, why_default, why_fixed
from dstui.tui.forms.form_rows import chosen_option
from dstui.tui.session.session import Session
from dstui.tui.session.state import UNSET, State

if TYPE_CHECKING:
    from dstui.plan.finding import Finding

SEVERITY_WORDS = {"ok": "fits", "warning": "tight", "error": "too big"}
"""Severity of an option's cost -> the word for it."""
HOW = {
    "number": "Type a number",
    "numbers": "Type numbers, separated by spaces",
    "text": "Type the text",
    "words": "Type the words as in a shell",
    "pairs": "Type name: value, separated by commas",
    "patterns": "Type name: pattern, separated by commas",
}
COST = re.compile(r"(\S*%)\s+(\S+)\s*$")
"""The last two columns of a figure: the free memory and the tokens per second."""
EMPTY = "–"
"""The sign that forms show for an empty value."""


def describe(field: Field, state: State) -> str:
    """Return one line with the field's label and its value or default."""
    remark = field.says(state) if field.says else ""
    return f"{' '.join(field.label.split())}: {value_text(field, state)}" + (f" ({remark})" if remark else "")


def value_text(field: Field, state: State) -> str:
    """Return the field's current value in words."""
    value = field.value(state)
    written = value is not UNSET and value is not None
    option = chosen_option(field, state)
    answer = value if written else default_of(field)
    text = option.label if option is not None else format_value(answer)
    unit = f" {field.unit_of(answer)}" if field.unit and text != EMPTY else ""
    return "not set" if text == EMPTY else " ".join(f"{text}{unit}".split()) + ("" if written else ", by default")


def finding_text(finding: Finding) -> str:
    """Return a finding in words: severity, path, problem and fix."""
    named = " ".join(filter(None, (finding.severity, finding.code, finding.path)))
    return f"{named}: {finding.message}{finding.instruction}"


def explain(field: Field, state: State) -> Iterator[str]:
    """Yield the meaning of a field, its default, and the Plan key that it sets."""
    yield field.help(state) if field.help else help_for(field.path)
    if not field.help and not field.selects_model:
        yield f"In the Plan: {field.path}"
    if (default := format_value(default_of(field))) != EMPTY:
        yield f"Default: {default}"
    if why := why_default(field.path):
        yield f"Why this default: {why}"
    if field.kind in HOW:
        yield "To enter a value that is a command here, put = before it: =b is the text b."
    if (finding := state.finding_at(field.path)) is not None:
        yield finding_text(finding)


def option_text(option: Option, state: State) -> str:
    """Return one line with the option's text, or why it is not possible, and its cost on this Machine."""
    if option.disabled and (why := option.disabled(state)):
        return f"{option.label}: not possible: {why}"
    cost = f"{SEVERITY_WORDS.get(option.severity, '')} {COST.sub(_cost_words, option.figure.partition(' ')[2])}" if option.figure else ""
    return " ".join(f"{option.label}: {'; '.join(filter(None, (option.says, cost)))}".split()).rstrip(":")


def _cost_words(match: re.Match[str]) -> str:
    return f"{match[1]} left" + (f", {match[2]} tokens/s" if match[2] != EMPTY else "")


def ask_field(console: Console, session: Session, field: Field) -> None:
    """Ask for a field until the user gives a valid answer or keeps the value."""
    state = session.state
    if why := why_fixed(field, state):
        console.say(f"{field.label}: cannot be set here: {why}")
        return
    console.say("", describe(field, state))
    options = _options(field)
    chosen = chosen_option(field, state)
    for number, option in enumerate(options, 1):
        console.say(f"  {number}. {option_text(option, state)}" + (" (now)" if chosen is option else ""))
    keeps = "Enter keeps it, ? explains, b goes back" + ("" if field.selects_model else ", - removes it from the Plan")
    prompt = f"{'Number' if options else HOW.get(field.kind, 'Type the value')}; {keeps}:"
    while answer := console.ask(prompt):
        if answer == "?":
            console.say(*explain(field, session.state))
            continue
        problem = _answer(session, field, options, answer)
        if not problem:
            console.say(describe(field, session.state))
            return
        console.say(problem)


def _options(field: Field) -> tuple[Option, ...]:
    """Return the options of a field; empty if the value is typed."""
    if field.kind == "toggle":
        return (Option(value=True, label="yes"), Option(value=False, label="no"))
    return field.options


def _answer(session: Session, field: Field, options: tuple[Option, ...], answer: str) -> str:
    """Write an answer to the Plan. Return why the answer is not accepted, or ""."""
    state = session.state
    try:
        value: Any = (
            UNSET if answer == "-" else _chosen(options, answer, state) if options else parse_value(field, answer.removeprefix("="))
        )
    except NotThat as problem:
        return str(problem)
    if field.selects_model:
        session.select_model(str(value))
        return ""
    if session.edit(*(((field.path, UNSET),) if answer == "-" else field.edits(state, value))):
        return ""
    refusal = session.state.refusal[1]
    session.settle()
    return refusal


def _chosen(options: tuple[Option, ...], answer: str, state: State) -> Any:
    """Return the value of the option that an answer names by number or word. Raises NotThat if it names none."""
    word = answer.casefold()
    by_word = next((option for option in options if word == option.label.casefold()), None)
    if options[0].value is True and word in (*YES, *NO):
        by_word = options[0 if word in YES else 1]
    number = number_in(answer, len(options))
    option = by_word or (options[number] if number is not None else None)
    if option is None:
        raise NotThat(f"A number from 1 to {len(options)}; Enter keeps the current value.")
    if option.disabled and (why := option.disabled(state)):
        raise NotThat(f"{option.label}: not possible: {why}")
    return option.value


def ask_setting(console: Console, session: Session, setting: str) -> None:
    """Ask for PATH=VALUE and set that key of the Plan, as --set does."""
    from dstui.documents.plan_files import apply_overrides
    from dstui.plan import PlanError

    try:
        session.replace(apply_overrides(session.state.plan.unfocused, [setting]).text)
    except PlanError as error:
        console.say(str(error).removeprefix("--"))
    else:
        console.say(f"Set {setting}")
