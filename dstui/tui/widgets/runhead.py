"""The head of a job: its state, how long it has run, where it is, and, when it has ended, what it came to."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING

from rich.cells import cell_len

from dstui.tui.row import Row, Span, fit

if TYPE_CHECKING:
    from dstui.run.follow import Follower

STATES = {
    "starting": ("○", "accent"),
    "running": ("●", "ok"),
    "succeeded": ("✔", "ok"),
    "failed": ("✖", "error"),
    "lost": ("✖", "error"),
    "stopped": ("■", "warning"),
}
BARS = "▁▂▃▄▅▆▇█"


def head_rows(follower: Follower, folder: Path, losses: Sequence[float], note: str, width: int) -> list[Row]:
    """Two lines: the numbers, and the folder or what is going on."""
    state = str(follower.state)
    glyph, style = STATES.get(state, ("·", "dim"))
    code = f" (exit status {follower.exit_code})" if follower.exit_code else ""
    facts = [Span(f" {glyph} {state}{code}", style), Span(f"  {clock(follower.duration)}", "title")]
    steps = [v.step for v in follower.ranks.values() if v.step is not None]
    facts += [Span("   step ", "dim"), Span(f"{max(steps):,}", "title")] if steps else []
    facts += [Span("   loss ", "dim"), Span(f"{losses[-1]:.4g} ", "title"), Span(spark(losses, 16), "accent")] if losses else []
    for name, rate in sorted(follower.rates.items()):
        facts += [Span(f"   {si(rate)}", "title"), Span(f" {name}", "dim")]
    return [Row(tuple(facts)), Row(_second(folder, note, width))]


def _second(folder: Path, note: str, width: int) -> tuple[Span, ...]:
    if note:
        return (Span(f"   {fit(note, min(cell_len(note), width - 5))}", "accent"),)
    text = fit(str(folder), min(cell_len(str(folder)), width - 16))
    return (Span("   job folder ", "dim"), Span(text, "dim"))


def ladder(seconds: float) -> str:
    """Where a stop has got to: what was asked, and what comes next, and when."""
    from dstui.run.stop import STEP

    rungs = ("asked the ranks to end", "SIGTERM to every process of the job", "SIGKILL to whatever is left", "looking for what is left")
    at = min(int(seconds // STEP), len(rungs) - 1)
    after = f"; in {STEP * (at + 1) - seconds:.0f} s: {rungs[at + 1]}" if at + 1 < len(rungs) else ""
    return f"stopping, {seconds:.0f} s: {rungs[at]}{after}"


def clock(seconds: float | None) -> str:
    """0:17, 42:05, 3:02:11."""
    whole = int(seconds or 0)
    hours, rest = divmod(whole, 3600)
    return f"{hours}:{rest // 60:02}:{rest % 60:02}" if hours else f"{rest // 60}:{rest % 60:02}"


def si(value: float) -> str:
    """A rate in three digits: 41.2k."""
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= limit:
            return f"{value / limit:.3g}{unit}"
    return f"{value:.3g}"


def spark(values: Sequence[float], cells: int) -> str:
    """The last values as bars, each cell the mean of its share of them."""
    finite = [v for v in values if isfinite(v)]
    if len(finite) < 2:
        return ""
    size = max(len(finite) / cells, 1.0)
    parts = [finite[int(n * size) : max(int((n + 1) * size), int(n * size) + 1)] for n in range(min(cells, len(finite)))]
    means = [sum(p) / len(p) for p in parts if p]
    low, high = min(means), max(means)
    return "".join(BARS[round((m - low) / (high - low) * 7)] if high > low else BARS[0] for m in means)
