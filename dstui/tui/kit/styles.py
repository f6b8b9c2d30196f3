"""What the names of styles look like: data over the variables of the theme, worked out once per theme.

Component classes in CSS would do the same for 15 styles in each of ten widgets, a third of the time to the first frame.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Final, NamedTuple

from rich.style import Style
from textual.color import Color


class Look(NamedTuple):
    """A theme variable for the text, how strong it is against the background, its attributes, and a variable for its ground."""

    variable: str = "foreground"
    strength: float = 1.0
    bold: bool = False
    ground: str = ""
    ground_strength: float = 1.0


LOOKS: Final[dict[str, Look]] = {
    "": Look(),
    "dim": Look(strength=0.6),
    "faint": Look(strength=0.38),
    "ok": Look("success"),
    "warning": Look("warning"),
    "error": Look("error"),
    "title": Look(bold=True),
    "set": Look(bold=True),
    "accent": Look("primary"),
    "value": Look("primary", 0.85),
    "name": Look("primary", 0.9),
    "string": Look("success"),
    "number": Look("warning"),
    "mark": Look("warning"),
    "pointer": Look("primary", bold=True),
    "cursor": Look(ground="panel"),
    "found": Look(bold=True, ground="warning", ground_strength=0.3),
}


def palette(variables: Mapping[str, str], ansi: bool) -> dict[str, Style]:
    """Name -> style, for the theme with these variables. An ANSI theme has no colours to blend: what is weak there is dim."""
    used = {look.variable for look in LOOKS.values()} | {look.ground for look in LOOKS.values() if look.ground} | {"background"}
    return _palette(tuple((name, variables[name]) for name in sorted(used)), ansi)


@lru_cache(maxsize=8)
def _palette(variables: tuple[tuple[str, str], ...], ansi: bool) -> dict[str, Style]:
    colours = {name: Color.parse(value) for name, value in variables}
    return {name: _style(look, colours, ansi) for name, look in LOOKS.items()}


def _style(look: Look, colours: Mapping[str, Color], ansi: bool) -> Style:
    if ansi:
        weak, found = look.strength < 0.8, bool(look.ground)
        return Style(color=colours[look.variable].rich_color, bold=look.bold or None, dim=weak or None, reverse=found or None)
    back = colours["background"]
    text = back.blend(colours[look.variable], look.strength)
    ground = back.blend(colours[look.ground], look.ground_strength).rich_color if look.ground else None
    return Style(color=text.rich_color, bgcolor=ground, bold=look.bold or None)
