"""A log line as segments: the style of its level, then the script's own colours, then the search highlight."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache

from rich.color import Color
from rich.segment import Segment
from rich.style import Style
from rich.terminal_theme import TerminalTheme

from dstui.logs.colours import Colour, Paint, Run

NEAR = 40
"""Of 255: if two colours differ by less in red, green and blue, text in one is unreadable on the other."""


def painted(runs: Iterable[Run], base: Style, theme: TerminalTheme) -> list[Segment]:
    """Return text in its script's colours on the style `base`. `theme`: the first sixteen colours."""
    return [Segment(text, base + style_of(paint, base.bgcolor, theme)) for text, paint in runs]


@lru_cache(maxsize=1024)
def style_of(paint: Paint, behind: Color | None, theme: TerminalTheme) -> Style:
    """Return the style on this background. Colours that would make the text invisible are left out."""
    colour, ground = _color(paint.colour), _color(paint.ground)
    if colour is not None and _near(colour, ground or behind, theme):
        colour = ground = None
    return Style(
        color=colour,
        bgcolor=ground,
        bold=paint.bold or None,
        dim=paint.dim or None,
        italic=paint.italic or None,
        underline=paint.underline or None,
        reverse=paint.reverse or None,
        strike=paint.strike or None,
    )


def _color(colour: Colour | None) -> Color | None:
    if colour is None:
        return None
    return Color.from_ansi(colour) if isinstance(colour, int) else Color.from_rgb(*colour)


def _near(colour: Color, behind: Color | None, theme: TerminalTheme) -> bool:
    if behind is None or behind.is_default:
        return False
    return all(abs(one - other) < NEAR for one, other in zip(colour.get_truecolor(theme), behind.get_truecolor(theme), strict=True))


def highlighted(segments: Iterable[Segment], spans: Sequence[tuple[int, int]], found: Style) -> list[Segment]:
    """Return the segments with another style at these positions (in characters, ascending)."""
    made, start, next_span = [], 0, 0
    for text, style, _ in segments:
        end, at = start + len(text), start
        while next_span < len(spans) and spans[next_span][0] < end:
            first, last = max(spans[next_span][0], at), min(spans[next_span][1], end)
            made += [
                Segment(text[at - start : first - start], style),
                Segment(text[first - start : last - start], (style or found) + found),
            ]
            at = last
            if spans[next_span][1] > end:
                break  # it continues in the next segment
            next_span += 1
        made.append(Segment(text[at - start :], style))
        start = end
    return [segment for segment in made if segment.text] or [Segment("")]
