"""Parse and apply the conditions that select runs: `stage=3 loss<2 failed lr>1e-4 !quickstart`.

All words must hold. A word is KEY OPERATOR VALUE, a state, or a part of the run's name, user or reason. KEY is a column, the end of a Plan
key, or a metric. A leading `!` negates the word.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, get_args

from dstui.base.dataclass import dataclass
from dstui.jobs.store.records import JobState
from dstui.logs.time_parsing import UNITS
from dstui.plan.patterns import METRICS
from dstui.runs.columns import COLUMNS, column
from dstui.runs.run import Run

COMPARISON: Final = re.compile(r"(?P<key>[\w./-]+?)(?P<by>!=|<=|>=|=|<|>|~)(?P<value>.*)", re.DOTALL)
NUMBER: Final = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?", re.IGNORECASE)
SIZES: Final[Mapping[str, float]] = {"k": 1e3, "M": 1e6, "G": 1e9, "KB": 2.0**10, "MB": 2.0**20, "GB": 2.0**30, "TB": 2.0**40}
STATES: Final = get_args(JobState)
ORDERS: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "=": lambda one, other: bool(one == other),
    "!=": lambda one, other: bool(one != other),
    "<": lambda one, other: bool(one < other),
    "<=": lambda one, other: bool(one <= other),
    ">": lambda one, other: bool(one > other),
    ">=": lambda one, other: bool(one >= other),
}


@dataclass(frozen=True, slots=True)
class Condition:
    """One word of the conditions."""

    word: str
    holds: Callable[[Run], bool]
    key: str = ""
    """The key; "" if the word has none."""


def parse(text: str) -> tuple[Condition, ...]:
    """Parse conditions. Raises ValueError with a sentence."""
    try:
        words = shlex.split(text)
    except ValueError:
        raise ValueError(f"{text[:60]}: a quote that is not closed") from None
    return tuple(_condition(word) for word in words)


def chosen(runs: Sequence[Run], conditions: Sequence[Condition]) -> list[Run]:
    """Return the runs for which all conditions hold."""
    return [run for run in runs if all(condition.holds(run) for condition in conditions)]


def unknown(runs: Sequence[Run], names: Iterable[str]) -> str:
    """Return the first name of neither a column nor a metric that no run has, probably a typing error; "" if each is known."""
    known = COLUMNS.keys() | METRICS.keys()
    return next((name for name in names if name not in known and all(column(name).value(run) is None for run in runs)), "")


def _condition(word: str) -> Condition:
    if word.startswith("!") and len(word) > 1:
        other = _condition(word[1:])
        return Condition(word, lambda run: not other.holds(run), other.key)
    if (match := COMPARISON.fullmatch(word)) is not None:
        return _comparison(word, match["key"], match["by"], match["value"])
    if word in STATES:
        return Condition(word, lambda run: run.status.state == word)
    part = word.lower()
    return Condition(word, lambda run: any(part in text.lower() for text in (run.name, run.user, run.cause, run.why)))


def _comparison(word: str, key: str, by: str, value: str) -> Condition:
    if not value:
        raise ValueError(f"{word}: there is no value after {by}")
    read, number = column(key).value, quantity(value)
    if by == "~":
        return Condition(word, lambda run: value.lower() in _text(read(run)).lower(), key)
    if number is None and by not in ("=", "!="):
        raise ValueError(f"{word}: {value[:40]} is not a number; write one, such as 3, 1e-4, 90s, 2h or 40GB, or use =, != or ~")
    return Condition(word, lambda run: _compare(read(run), by, value, number), key)


def _compare(found: Any, by: str, value: str, number: float | None) -> bool:
    """Return whether a run's value satisfies a comparison. A missing value never does."""
    if found is None:
        return by == "!="
    if number is not None and isinstance(found, (int, float)) and not isinstance(found, bool):
        return ORDERS[by](found, number)
    if number is not None and (given := quantity(_text(found))) is not None:
        return ORDERS[by](given, number)
    return by in ("=", "!=") and ORDERS[by](_text(found).lower(), value.lower())


def _text(value: Any) -> str:
    return ("true" if value else "false") if isinstance(value, bool) else "" if value is None else str(value)


def quantity(text: str) -> float | None:
    """Parse a number with or without a unit (`1e-4`, `90s`, `7d`, `40GB`, `41k`) to seconds, bytes or a plain number, else None."""
    match = NUMBER.match(text)
    if match is None or len(text) > 60:
        return None
    unit = text[match.end() :]
    factor = 1.0 if not unit else UNITS.get(unit) or SIZES.get(unit)
    return None if factor is None else float(match[0]) * factor
