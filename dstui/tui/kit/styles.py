"""The themes, and the style of each style name in a theme, computed once per theme.

Component classes in CSS could do the same, but for 15 styles in each of ten widgets they take a third of the time to the first frame.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Final, NamedTuple

from rich.style import Style
from textual.color import Color
from textual.theme import BUILTIN_THEMES, Theme


class StyleSpec(NamedTuple):
    """A theme variable for the text, its strength against the background, its attributes, and a variable for the background."""

    variable: str = "foreground"
    strength: float = 1.0
    bold: bool = False
    ground: str = ""
    ground_strength: float = 1.0
    is_text: bool = True
    """True if it is for text, which is readable in every theme; else it is for lines."""


STYLES: Final[dict[str, StyleSpec]] = {
    "": StyleSpec(),
    "dim": StyleSpec(strength=0.7),
    "faint": StyleSpec(strength=0.38),
    "lines": StyleSpec(strength=0.38, is_text=False),
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


RANKS: Final = ("#6ea8dc", "#7fbf8f", "#d7a65f", "#b58fd8", "#5fb7b2", "#d98aa5", "#a8b566", "#c98f6b")
"""The colours of ranks in the log and in plots."""
ANSI_RANKS: Final = ("blue", "green", "magenta", "cyan", "bright_blue", "bright_green", "bright_magenta", "bright_cyan")
"""The same among the terminal's own colours, which are readable on its background whether that is dark or light. Red and yellow have a
meaning."""
BOLD_IF_PLAIN: Final = ("error", "warning", "accent", "mark")
LEAST_CONTRAST: Final = "least-contrast"
"""The theme variable with the contrast that all text has at least; without it 4.5, as WCAG asks of normal text."""
NORMAL: Final = 4.5


def contrast(first: Color, second: Color) -> float:
    """Return the contrast of two colours as WCAG 2 defines it, from 1 to 21."""
    darker, lighter = sorted((_luminance(first), _luminance(second)))
    return (lighter + 0.05) / (darker + 0.05)


def _luminance(colour: Color) -> float:
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in colour.normalized)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _readable(text: Color, foreground: Color, grounds: Sequence[Color], least: float) -> Color:
    """Return the text's colour, moved towards the foreground until its contrast to each ground is enough."""
    for part in range(10):
        moved = text.blend(foreground, part / 10)
        if all(contrast(moved, ground) >= least for ground in grounds):
            return moved
    return foreground


def palette(variables: Mapping[str, str], ansi: bool, *, plain: bool = False) -> dict[str, Style]:
    """Return name -> style for the theme with these variables. An ANSI theme cannot blend colours, so weak text is dim.

    `plain`: without colours (NO_COLOR), where a colour would only be a darker grey.
    """
    used = {spec.variable for spec in STYLES.values()} | {spec.ground for spec in STYLES.values() if spec.ground} | {"background"}
    return _palette(tuple((name, variables[name]) for name in sorted(used)), ansi, plain, float(variables.get(LEAST_CONTRAST, NORMAL)))


@lru_cache(maxsize=8)
def _palette(variables: tuple[tuple[str, str], ...], ansi: bool, plain: bool, least: float) -> dict[str, Style]:
    colours = {name: Color.parse(value) for name, value in variables}
    specs = {name: _plain_spec(name, spec) if plain else spec for name, spec in STYLES.items()}
    styles = {name: _ansi_style(spec, colours) if ansi else _style(spec, colours, least) for name, spec in specs.items()}
    return styles | {f"rank {number}": styles[""] if plain else _rank_style(number, colours, ansi, least) for number in range(len(RANKS))}


def _plain_spec(name: str, spec: StyleSpec) -> StyleSpec:
    """Return a style for a screen without colours: as strong as other text, bold where the colour calls for attention."""
    if spec.variable == "foreground":
        return spec
    return spec._replace(variable="foreground", strength=1.0, bold=spec.bold or name in BOLD_IF_PLAIN)


def _ansi_style(spec: StyleSpec, colours: Mapping[str, Color]) -> Style:
    weak, found = spec.strength < 0.8, bool(spec.ground)
    return Style(color=colours[spec.variable].rich_color, bold=spec.bold or None, dim=weak or None, reverse=found or None)


def _style(spec: StyleSpec, colours: Mapping[str, Color], least: float) -> Style:
    back, foreground = colours["background"], colours["foreground"]
    ground = back.blend(colours[spec.ground], spec.ground_strength) if spec.ground else None
    grounds = (back, colours["panel"]) if ground is None else (ground,)  # the row under the cursor is on the panel's colour
    text = back.blend(colours[spec.variable], spec.strength)
    text = _readable(text, foreground, grounds, least) if spec.is_text else text
    return Style(color=text.rich_color, bgcolor=ground.rich_color if ground is not None else None, bold=spec.bold or None)


def _rank_style(number: int, colours: Mapping[str, Color], ansi: bool, least: float) -> Style:
    if ansi:
        return Style(color=ANSI_RANKS[number])
    grounds = (colours["background"], colours["panel"])
    return Style(color=_readable(Color.parse(RANKS[number]), colours["foreground"], grounds, least).rich_color)


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
    error="#a93226",
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
    panel="#333333",
    success="#66ff66",
    warning="#ffd733",
    error="#ff8080",
    dark=True,
    variables={
        LEAST_CONTRAST: "7",
        "frame": "#ffffff",
        "border": "#ffffff",
        "border-blurred": "#ffffff",
        "input-selection-background": "#004a66",
        "input-cursor-background": "#ffffff",
        "input-cursor-foreground": "#000000",
        "scrollbar": "#ffffff",
        "scrollbar-background": "#000000",
    },
)
THEMES: Final = (DARK, LIGHT, HIGH_CONTRAST)
"""The first one is the default."""
ANSI_THEMES: Final = (
    replace(BUILTIN_THEMES["ansi-dark"], primary="ansi_bright_blue"),
    replace(BUILTIN_THEMES["ansi-light"], warning="ansi_magenta"),
)
"""Textual's themes of the terminal's own colours. Plain blue is hard to read on black, and red warnings would look like errors."""
