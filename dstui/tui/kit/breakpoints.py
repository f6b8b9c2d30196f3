"""The parts that are visible, by screen size, pane and tab: data that the app applies.

CSS classes on the screen could do the same, but each class restyles every widget, which takes too long for the first frame.
"""

from __future__ import annotations

from typing import Final

MINIMUM: Final = (60, 16)
WIDE: Final = 100
"""Columns from which form, preview and checks are visible together."""
DASHBOARD: Final = 160
"""Columns from which the run has plots beside its log."""
ROOMY: Final = 30
"""Lines from which a form has room for additional information."""
SIDE, STEPS_AND_FORM = 42, 122
"""Columns of preview and checks, and of the rest. On a wider screen preview and checks get the remaining columns, since a very wide form is
hard to read."""

PARTS: Final = (
    "title-bar",
    "step-line",
    "tab-line",
    "body",
    "footer",
    "too-small",
    "steps",
    "middle",
    "side",
    "preview",
    "checks",
    "review",
    "run",
)


def side_width(width: int) -> int | str:
    """Return the width of preview and checks on a screen of this width: the rest beside the form; the full width where they are tabs."""
    return "1fr" if width < WIDE else max(SIDE, width - STEPS_AND_FORM)


def visible_parts(width: int, height: int, pane: str, tab: str, alone: bool = False) -> frozenset[str]:
    """Return the ids of the parts that are shown; `alone`: the form also takes the place of preview and checks."""
    always = {"title-bar", "body", "footer"}
    if width < MINIMUM[0] or height < MINIMUM[1]:
        always.add("too-small")  # covers everything else, which keeps the focus and the typed text
    if pane == "run":
        return frozenset(always | {"step-line", "run"})
    if width >= WIDE:
        parts = {"review"} if pane == "review" else {"middle"} if alone else {"middle", "side", "preview", "checks"}
        return frozenset(always | {"steps"} | parts)
    always.add("step-line")
    if pane == "review":
        return frozenset(always | {"review"})
    return frozenset(always | {"tab-line", *(("middle",) if tab == "form" else ("side", tab))})
