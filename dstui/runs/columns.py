"""The columns of a table of runs. Besides those defined here, each metric and each key of the Plan is a column."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from math import isfinite
from typing import Any, Final, Literal

from dstui.base.dataclass import dataclass
from dstui.base.text import one_line
from dstui.jobs.store.plan_diff import Change
from dstui.jobs.store.records import STATE_GLYPHS
from dstui.jobs.watch.summary import rate_text, value_text
from dstui.plan.patterns import METRICS
from dstui.plan.scalars import yaml_scalar
from dstui.runs.run import Run

Kept = Literal["start", "ends", "end", "all", "value"]


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its value is sorted and compared, its text is shown."""

    name: str
    help: str
    value: Callable[[Run], Any]
    """Returns None if the run has no value."""
    text: Callable[[Run], str]
    number: bool = False
    """True if its text is aligned to the right."""
    widest: int = 60
    """The largest width of its texts on a screen, in cells."""
    keeps: Kept = "start"
    """The part that is kept of a text that has no room: names of runs differ at their ends."""


def _started(run: Run) -> str:
    return f"{datetime.fromtimestamp(run.status.started):%Y-%m-%d %H:%M}" if run.status.started else ""


def _age(run: Run) -> float | None:
    return None if run.status.started is None else max(time.time() - run.status.started, 0.0)


def short_duration(seconds: float | None) -> str:
    """Format a duration in as few cells as needed: 0:09, 12:39, 2:03:10, 3 d."""
    if seconds is None:
        return ""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours >= 48:
        return f"{hours // 24} d"
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def _step(run: Run) -> str:
    step, steps = run.latest.step, run.latest.steps
    return "" if step is None else f"{step}/{steps}" if steps else str(step)


def _speed(run: Run) -> str:
    if run.speed is None:
        return ""
    name, value = run.speed
    text = rate_text(value) if value < 100 or value >= 10_000 else f"{value:.0f}"
    return text + ("" if name == "tokens/s" else f" {name}")


def _state(run: Run) -> str:
    code = run.status.exit_code
    return f"{STATE_GLYPHS[run.status.state]} {run.status.state}" + (f" {code}" if code else "")


def changes_text(changed: Iterable[Change]) -> str:
    """Format changes: `stage 2 → 3, lr 1e-4 → 3e-4`, each key by its last word."""
    return ", ".join(map(_change_text, changed))


def _change_text(change: Change) -> str:
    key = one_line(change.path.rpartition(".")[2])
    before, after = (_short(text) for text in texts_side_by_side([change.before, change.after]))
    return f"{key} {before} → {after}" if change.op == "replace" else f"+{key} {after}" if change.op == "add" else f"-{key} {before}"


def _short(text: str) -> str:
    return text if len(text) <= 24 else f"{text[:23]}…"


def texts_side_by_side(values: Sequence[Any]) -> list[str]:
    """Return texts of values in one line. Of lists, keep only the differences, each with the option before it."""
    lists = [value for value in values if isinstance(value, list)]
    if len(lists) < 2 or len(lists) < len(values):
        return [format_value(value) for value in values]
    shortest = min(map(len, lists))
    first = next((n for n in range(shortest) if any(each[n] != lists[0][n] for each in lists)), shortest)
    last = next((n for n in range(shortest - first) if any(each[-1 - n] != lists[0][-1 - n] for each in lists)), shortest - first)
    first -= first > 0 and str(lists[0][first - 1]).startswith("-")
    return [format_value(each[first : len(each) - last]) for each in lists]


def format_value(value: Any) -> str:
    """Format a value of a Plan on one line."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {format_value(part)}" for key, part in value.items()) + "}"
    if isinstance(value, list):
        return " ".join(format_value(part) for part in value)
    if isinstance(value, float) and 0 < abs(value) < FINE and not hasattr(value, "spelling"):
        mantissa, exponent = f"{value:.6e}".split("e")
        return f"{float(mantissa):g}e{int(exponent)}"
    return one_line(value if isinstance(value, str) else yaml_scalar(value))


FINE: Final = 0.01
"""Smaller numbers are formatted as learning rates are: 3e-4."""


def _changed(run: Run) -> str:
    if run.changed is None:
        return ""
    return changes_text(map(partial(_spelled, run), run.changed)) or "the same Plan"


def _spelled(run: Run, change: Change) -> Change:
    """Return a change with its large numbers as the Plans' files have them: 5e8. These are read for nothing else."""
    numbers = (change.before, change.after)
    if run.before is None or not any(isinstance(number, (int, float)) and abs(number) >= LARGE for number in numbers):
        return change
    after = run.spelled(change.path) if change.path in run.settings else change.after
    before = run.before.spelled(change.path) if change.path in run.before.settings else change.before
    return replace(change, before=before, after=after)


LARGE: Final = 10_000
"""From here on, people write numbers with exponents."""


def _metric(name: str) -> Column:
    def value(run: Run) -> float | None:
        return run.latest.metrics.get(name)

    return Column(name, METRICS.get(name, "as in the log"), value, lambda run: _number(name, value(run)), number=True)


def _number(name: str, value: float | None) -> str:
    return "" if value is None else metric_text(name, value)


def metric_text(name: str, value: float) -> str:
    """Format a metric's value with its unit."""
    return rate_text(value) if name.endswith("/s") and isfinite(value) else value_text(name, value)


def _texts(name: str, help: str, text: Callable[[Run], str], widest: int = 60) -> Column:
    return Column(name, help, lambda run: text(run) or None, text, widest=widest)


_ALL: Final = (
    Column(
        "state",
        "starting, running, succeeded, failed, stopped or lost; with its exit status",
        lambda run: run.status.state,
        _state,
        keeps="all",
    ),
    Column("exit", "exit status", lambda run: run.status.exit_code, lambda run: format_value(run.status.exit_code or ""), number=True),
    Column("name", "the run", lambda run: run.name, lambda run: run.name, widest=44, keeps="ends"),
    Column("started", "when it was started", lambda run: run.status.started, _started),
    Column("age", "since its start", _age, lambda run: short_duration(_age(run)), number=True),
    Column("took", "from start to end", lambda run: run.took, lambda run: short_duration(run.took), number=True),
    Column("step", "the last step, of how many", lambda run: run.latest.step, _step, number=True),
    Column(
        "loss",
        "the last loss",
        lambda run: run.latest.metrics.get("loss"),
        lambda run: _number("loss", run.latest.metrics.get("loss")),
        True,
    ),
    Column("speed", "tokens/s, else samples/s or steps/s, of a rank", lambda run: run.speed and run.speed[1], _speed, number=True),
    Column("eta", "for the steps that are left", lambda run: run.eta, lambda run: short_duration(run.eta), number=True),
    Column(
        "memory",
        "peak memory of the fullest GPU",
        lambda run: run.gpu_memory,
        lambda run: _number("memory", run.gpu_memory or None),
        number=True,
    ),
    Column("ranks", "how many ranks", lambda run: len(run.status.ranks), lambda run: str(len(run.status.ranks)), number=True),
    Column("hosts", "how many hosts", lambda run: len(run.hosts), lambda run: str(len(run.hosts)), number=True),
    _texts("host", "the host, or the first of several", lambda run: (run.hosts or [""])[0], 24),
    _texts("user", "owner of the run", lambda run: run.user, 16),
    replace(_texts("changed", "what its Plan changed since the previous run", _changed), keeps="value"),
    _texts("cause", "the code of why it failed", lambda run: run.cause, 24),
    _texts("why", "why it ended", lambda run: run.why),
    _texts("folder", "its folder", lambda run: one_line(str(run.folder.path))),
)
COLUMNS: Final[Mapping[str, Column]] = {column.name: column for column in _ALL}
USUAL: Final = ("state", "name", "age", "took", "step", "loss", "speed", "eta", "memory", "ranks", "hosts", "changed", "why")
"""The default columns."""
DROPPED: Final = ("hosts", "age", "memory", "eta", "ranks", "took")
"""Columns that are dropped, in this order, where not all have room."""


def column(name: str) -> Column:
    """Return a column by its name, by a metric's name, or by the end of the path of a Plan key."""
    return COLUMNS.get(name) or (_metric(name) if name in METRICS and name != "lr" else _setting(name))


def _setting(name: str) -> Column:
    """Return the column of a Plan key; if the Plan has no key with this end, of a metric of this name."""
    about = "from the Plan, or reported by the run"
    return Column(name, about, lambda run: setting(run, name), lambda run: _setting_text(run, name), number=True)


def setting(run: Run, name: str) -> Any:
    """Return the value of a Plan key by its path or the end of it, else of a metric; None if there is neither."""
    ends = f".{name}"
    found = next((value for path, value in run.settings.items() if path == name or path.endswith(ends)), None)
    return found if found is not None else run.latest.metrics.get(name)


def _setting_text(run: Run, name: str) -> str:
    value = setting(run, name)
    return "" if value is None else format_value(value)


def plain_column(name: str, *, number: bool = False, keeps: Kept = "start") -> Column:
    """Return a column with only a name, an alignment and what is kept of long texts, for other tables than those of runs."""
    return Column(name, "", lambda _: None, lambda _: "", number=number, keeps=keeps)


def columns_named(names: str) -> tuple[Column, ...]:
    """Return the columns of `name,loss,stage`."""
    return tuple(column(name) for name in (part.strip() for part in names.split(",")) if name)
