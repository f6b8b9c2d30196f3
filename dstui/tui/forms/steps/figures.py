"""The cost of a ZeRO stage or an offload, beside the option that chooses it; words if the model is unknown.

All figures come from the outlook, which computes them when they are first shown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from dstui.tui.forms.fields import Field, Option
from dstui.tui.kit.text_row import BLANK, GLYPHS, STYLE_OF, Row, row
from dstui.tui.session.state import State

if TYPE_CHECKING:
    from dstui.forecast.choices import Choice
    from dstui.forecast.forecast import Forecast

Way = tuple[int, str, str]
"""ZeRO stage, place of the optimizer states, place of the weights: a Choice of the forecast."""


def own_offload(state: State) -> tuple[str, str]:
    """Return where the current Plan puts the optimizer states and the parameters."""
    setup = state.outlook.forecast.setup if state.outlook else None
    return (setup.optimizer_offload, setup.param_offload) if setup else ("none", "none")


def forecast_of(state: State, way: Way) -> Forecast | None:
    """Return the forecast of a stage and offload, with everything else as in the Plan; None if it is unknown or impossible."""
    return state.outlook.choices.get(cast("Choice", way)) if state.outlook is not None else None  # a Choice is such a tuple


def with_figures(field: Field, state: State, way_of: Callable[[State, Any], Way]) -> Field:
    """Return a choice whose options show memory and speed. `way_of`: the stage and offload of a value."""
    if field.disabled and field.disabled(state):
        return field
    estimates = {option.value: forecast_of(state, way_of(state, option.value)) for option in field.options}
    if not any(estimates.values()):
        return field
    options = tuple(_with_figure(option, estimates[option.value]) for option in field.options)
    return replace(field, options=options, columns=headings(*filter(None, estimates.values())))


def _with_figure(option: Option, estimate: Forecast | None) -> Option:
    return option if estimate is None else replace(option, figure=figure(estimate), severity=severity(estimate))


def headings(*estimates: Forecast) -> str:
    """Return the column titles of the figures; if all are too big, those of a factor and of what it is a multiple of."""
    left = any((one.gpu if one.gpu.bytes else one.host).verdict != "too big" for one in estimates)
    return headings_of_fitting(estimates[0]) if left else f"{_place(estimates[0]):>9} needs    of"


def headings_of_fitting(estimate: Forecast) -> str:
    """Return the column titles of figures of which some fit."""
    return f"{_place(estimate):>9}  left tok/s"


def _place(estimate: Forecast) -> str:
    return "GPU" if estimate.gpu.bytes else "RAM"


def severity(estimate: Forecast) -> str:
    """Return the severity of a forecast's verdict."""
    from dstui.tui.forms.memory_rows import SEVERITY

    return SEVERITY[estimate.verdict]


def figure(estimate: Forecast) -> str:
    """Return `✔ 41.3 GB   48% 17.3k`: the tightest place, the share left, tokens per second; `✖ 386 GB  4.8x   GPU` if it does not fit.

    If RAM or NVMe decides, the GPU's figure comes first, so that stages differ even if all need too much RAM, and each place has its
    own glyph: `✔ 62G ✖ RAM 74G 3.2x`.
    """
    from dstui.tui.forms.memory_rows import NAMES, SEVERITY, columns, share_left, short

    fits = estimate.verdict == "fits"
    places = {"gpu": estimate.gpu, "host": estimate.host, "nvme": estimate.nvme}
    usual = "gpu" if estimate.gpu.bytes else "host"
    name = usual if fits or not estimate.bound else estimate.bound
    need, tokens = places[name], estimate.speed.tokens if estimate.fits and estimate.speed else None
    if name == usual:
        return f"{GLYPHS[severity(estimate)]} {columns(need.bytes, need.headroom, tokens, NAMES[usual])}"
    first = f"{GLYPHS[SEVERITY[places[usual].verdict]]} {_gib(places[usual].bytes)} "
    speed = f" {short(tokens):>5}" if tokens else ""
    return f"{first}{GLYPHS[severity(estimate)]} {NAMES[name]} {_gib(need.bytes)} {share_left(need.headroom):>4}{speed}"


def _gib(amount: int | None) -> str:
    return f"{(amount or 0) / 2**30:.0f}G"


def other_ways(state: State, listed: Iterable[Way]) -> list[Row]:
    """Return a row for each further stage and offload that is possible here."""
    from_options = set(listed)
    if state.outlook is None:
        return []
    from dstui.forecast.choices import CHOICES

    left = {way: estimate for way, estimate in state.outlook.choices.items() if way in CHOICES and way not in from_options}
    if not left:
        return []
    rows = [
        row((f" {way.stage}  {way.offload or 'no offload'}", "dim"), right=[(figure(estimate), STYLE_OF[severity(estimate)])])
        for way, estimate in left.items()
    ]
    return [row(("With other offload (step 4)", "accent")), *rows, BLANK]
