"""The memory bars under the form: what the Plan needs of GPU, RAM and NVMe, and what is free."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from rich.cells import cell_len

from dstui.machine.report import format_size
from dstui.tui.kit.text_row import GLYPHS, STYLE_OF, Row, Span, fit, row
from dstui.tui.session.state import State

if TYPE_CHECKING:
    from dstui.facts.measured import Taken
    from dstui.forecast.forecast import Forecast
    from dstui.forecast.need import Need, Verdict

NAME = 4
"""Cells for the name of a place."""
SEVERITY: dict[Verdict, str] = {"fits": "ok", "tight": "warning", "too big": "error", "unknown": "unknown"}
"""A verdict -> its severity, which decides glyph and style."""
LEAST_BAR, WIDEST_BAR = 12, 40
NO_MODEL = ("Will it fit? Set the model: model.source or params, in step 2", "Will it fit? Set the model in step 2")
NAMES = {"gpu": "GPU", "host": "RAM", "nvme": "NVMe"}


def memory_rows(state: State, width: int, most: int) -> list[Row]:
    """Return a line for each place that is needed, and one for the speed; if there is room for one only, the tightest place."""
    if state.outlook is None:
        named = state.plan.model is not None and state.plan.model.source
        return [_dim("Will it fit? Reading the model…" if named else _longest(NO_MODEL, width), width)]
    estimate = state.outlook.forecast
    if estimate.problem:
        return [_dim(f"No forecast: {estimate.problem}", width)]
    places = needed(estimate)
    if most < len(places):
        decides = estimate.bound if estimate.bound in places else next(iter(places))
        return place_rows({decides: places[decides]}, width)
    return [*place_rows(places, width), *speed_rows(estimate, width), *_measured_row(estimate.corrected, state.outlook.runs, width)][:most]


def needed(estimate: Forecast) -> dict[str, Need]:
    """Return the names of the places that a forecast needs."""
    return {name: need for name, need in (("gpu", estimate.gpu), ("host", estimate.host), ("nvme", estimate.nvme)) if need.bytes}


def place_rows(places: Mapping[str, Need], width: int) -> list[Row]:
    """Return a line for each place, their bars aligned: `GPU  ██████▒▒░░░░│ 41.2 GB of 79.6 GB ✔ fits`."""
    words = {name: f" {GLYPHS[SEVERITY[n.verdict]]} {n.word}" if n.verdict != "unknown" else "" for name, n in places.items()}
    for texts in ({name: _amounts(need)[long] for name, need in places.items()} for long in (1, 0)):
        room = width - NAME - 3 - max((cell_len(texts[name] + words[name]) for name in places), default=0)
        if room >= LEAST_BAR:
            break
    return [
        row(
            (fit(NAMES[name], NAME), "accent"),
            " ",
            *bar(need, min(room, WIDEST_BAR)),
            f" {texts[name]}",
            right=[(words[name], STYLE_OF[SEVERITY[need.verdict]])],
        )
        for name, need in places.items()
    ]


def _amounts(need: Need) -> tuple[str, str]:
    """Return the amount needed of what is free, without and with its range."""
    assert need.bytes is not None
    free = f" of {format_size(need.capacity)}" if need.capacity else ""
    low, high = need.range
    around = f" ({format_size(low)} to {format_size(high)})" if high > low else ""
    return (
        f"{format_size(need.bytes)}{free}",
        f"{format_size(need.bytes)}{around}{free} free" if free else f"{format_size(need.bytes)}{around}",
    )


def bar(need: Need, cells: int) -> tuple[Span, ...]:
    """Return a bar: █ for the need, ▒ for its upper range, │ where the free memory ends."""
    if not need.capacity or need.bytes is None or cells < 5:
        return ()
    whole, high = max(need.capacity, need.range[1], need.bytes), max(need.range[1], need.bytes)
    line = round(need.capacity / whole * (cells - 1))
    full, reach = (min(round(amount / whole * (cells - 1)), cells - 1) for amount in (need.bytes, high))
    if need.bytes > need.capacity:
        full = max(full, line + 1)
    drawn = "█" * full + "▒" * (reach - full)
    drawn += "░" * (line - len(drawn))
    style = STYLE_OF[SEVERITY[need.verdict]]
    return Span(drawn[:line], style), Span("│", "title"), Span(drawn[line:], style), Span(" " * (cells - 1 - len(drawn)))


def speed_rows(estimate: Forecast, width: int) -> list[Row]:
    """Return the expected speed, and what limits it."""
    if estimate.speed is None:
        return []
    low, high = (short(end) for end in estimate.speed.range)
    text = f"{'≈':<{NAME}} {tokens(estimate)}{{}} tokens/s, bound by {estimate.speed.bound_by}"
    around = text.format(f" ({low} to {high})")
    return [row((fit(around if estimate.speed.range[1] and len(around) <= width else text.format(""), width), "dim"))]


def _measured_row(corrected: str, runs: Sequence[Taken], width: int) -> list[Row]:
    """Return what the last run of this model measured here, and how runs have corrected the forecast."""
    return [_dim("; ".join(filter(None, (f"measured: {runs[-1]}", corrected))), width)] if runs else []


def tokens(estimate: Forecast) -> str:
    """Format the tokens per second of all ranks."""
    return short(estimate.speed.tokens if estimate.speed else 0.0)


def columns(amount: int | None, headroom: float | None, tokens: float | None, place: str = "–") -> str:
    """Return `41.3 GB   48% 17.3k`: memory needed, share left, tokens per second; or `386 GB  4.8x   GPU`, so many times the place."""
    last = short(tokens) if tokens else place if (headroom or 0.0) < 0 else "–"
    return f"{format_size(amount):>7} {share_left(headroom):>5} {last:>5}"


def share_left(headroom: float | None) -> str:
    """Return the share of memory that is left; if the Plan does not fit, the factor by which it exceeds the memory: `7.9x`."""
    return "" if headroom is None else f"{headroom:.0%}" if headroom >= 0 else _times(1 - headroom)


def _times(needed: float) -> str:
    return f"{needed:.1f}x" if needed < 100 else ">99x"


def short(number: float) -> str:
    """Format a number in few cells: 950, 12.3k, 1.2M."""
    return f"{number / 1e6:.3g}M" if number >= 999_500 else f"{number / 1e3:.3g}k" if number >= 1000 else f"{number:.3g}"


def _longest(texts: tuple[str, ...], width: int) -> str:
    return next((text for text in texts if cell_len(text) <= width), texts[-1])


def _dim(text: str, width: int) -> Row:
    return row((fit(text, min(cell_len(text), width)), "dim"))
