"""The themes, and the style of each style name in a theme, computed once per theme.

Component classes in CSS could do the same, but for 15 styles in each of ten widgets they take a third of the time to the first frame.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Final, NamedTuple

from rich.style import Style
from textual.color import Color
from textual.theme import Theme


class StyleSpec(NamedTuple):
    """A theme variable for the text, its strength against the background, its attributes, and a variable for the background."""

    variable: str = "foreground"
    strength: float = 1.0
    bold: bool = False
    ground: str = ""
    ground_strength: float = 1.0


STYLES: Final[dict[str, StyleSpec]] = {
    "": StyleSpec(),
    "dim": StyleSpec(strength=0.6),
    "faint": StyleSpec(strength=0.38),
    "ok": StyleSpec("success"),
    "warning": StyleSpec("warning"),
    "error": StyleSpec("error"),
    "title": StyleSpec(bold=True),
    "set": StyleSpec(bold=True),
    "accent": StyleSpec("primary"),
    "value": StyleSpec("primary", 0.85),
    "name": StyleSpec("primary", 0.9),
    "string": StyleSpec("success"),
    "number": StyleSpec("warning"),
    "mark": StyleSpec("warning"),
    "pointer": StyleSpec("primary", bold=True),
    "cursor": StyleSpec(ground="panel"),
    "found": StyleSpec(bold=True, ground="warning", ground_strength=0.3),
}


WEAKEST: Final = "weakest-text"
"""The theme variable with the strength of the weakest text: high contrast has no faint text."""


def palette(variables: Mapping[str, str], ansi: bool) -> dict[str, Style]:
    """Return name -> style for the theme with these variables. An ANSI theme cannot blend colours, so weak text is dim."""
    used = {spec.variable for spec in STYLES.values()} | {spec.ground for spec in STYLES.values() if spec.ground} | {"background"}
    return _palette(tuple((name, variables[name]) for name in sorted(used)), ansi, float(variables.get(WEAKEST, 0)))


@lru_cache(maxsize=8)
def _palette(variables: tuple[tuple[str, str], ...], ansi: bool, weakest: float) -> dict[str, Style]:
    colours = {name: Color.parse(value) for name, value in variables}
    specs = {name: spec._replace(strength=max(spec.strength, weakest)) for name, spec in STYLES.items()}
    return {name: _style(spec, colours, ansi) for name, spec in specs.items()}


def _style(spec: StyleSpec, colours: Mapping[str, Color], ansi: bool) -> Style:
    if ansi:
        weak, found = spec.strength < 0.8, bool(spec.ground)
        return Style(color=colours[spec.variable].rich_color, bold=spec.bold or None, dim=weak or None, reverse=found or None)
    back = colours["background"]
    text = back.blend(colours[spec.variable], spec.strength)
    ground = back.blend(colours[spec.ground], spec.ground_strength).rich_color if spec.ground else None
    return Style(color=text.rich_color, bgcolor=ground, bold=spec.bold or None)


DARK = Theme(
    name="dstui",
    primary="#7aa7e0",
    secondary="#8a97ab",
    accent="#7aa7e0",
    foreground="#d3d8e0",
    background="#12161c",
    surface="#171c24",
    panel="#212832",
    success="#7fbf8f",
    warning="#dcb167",
    error="#e5786d",
    dark=True,
    variables={
        "input-selection-background": "#7aa7e0 35%",
        "input-cursor-background": "#d3d8e0",
        "input-cursor-foreground": "#12161c",
        "scrollbar": "#2b333f",
        "scrollbar-hover": "#3a4554",
        "scrollbar-active": "#4c5a6e",
        "scrollbar-background": "#12161c",
        "scrollbar-background-hover": "#12161c",
        "scrollbar-background-active": "#12161c",
    },
)
LIGHT = Theme(
    name="dstui-light",
    primary="#2b5fa8",
    secondary="#5b6675",
    accent="#2b5fa8",
    foreground="#22272e",
    background="#f6f7f9",
    surface="#eceff3",
    panel="#dde2e9",
    success="#2f7d46",
    warning="#8f6200",
    error="#b3382c",
    dark=False,
)
HIGH_CONTRAST = Theme(
    name="dstui-high-contrast",
    primary="#66e0ff",
    secondary="#ffffff",
    accent="#66e0ff",
    foreground="#ffffff",
    background="#000000",
    surface="#000000",
    panel="#4d4d4d",
    success="#66ff66",
    warning="#ffd733",
    error="#ff8080",
    dark=True,
    variables={
        WEAKEST: "0.85",
        "border": "#ffffff",
        "border-blurred": "#ffffff",
        "input-cursor-background": "#ffffff",
        "input-cursor-foreground": "#000000",
        "scrollbar": "#ffffff",
        "scrollbar-background": "#000000",
    },
)
THEMES: Final = (DARK, LIGHT, HIGH_CONTRAST)
"""The first one is the default."""
