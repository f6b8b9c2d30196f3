"""A plot as an SVG picture: curves, axes, and the name of each run at the end of its line; readable on light and dark pages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from dstui.base.text import UNSAFE
from dstui.tui.plot.curves import Axis, Picture, PlotLine

WIDTH, HEIGHT = 900, 420
LEFT, RIGHT, TOP, BOTTOM = 70, 170, 40, 40
COLOURS = ("#3b78c4", "#c4782b", "#3f9a5a", "#b3455f", "#8a63b8", "#2b9aa0", "#8a7a2b", "#777777")
CELLS = (200, 40)
"""The resolution of an SVG picture, in cells of a terminal."""


def as_svg(plots: Sequence[tuple[str, Picture]]) -> str:
    """Return the pictures one below the other, each with its title."""
    body = [part for number, (title, shown) in enumerate(plots) for part in _plot(title, shown, number * HEIGHT)]
    size = f'width="{WIDTH}" height="{HEIGHT * len(plots)}" viewBox="0 0 {WIDTH} {HEIGHT * len(plots)}"'
    style = "<style>text{font:12px sans-serif;fill:#777}.title{font-size:14px}path,line{fill:none;stroke:#777;stroke-opacity:.4}</style>"
    return "\n".join([f'<svg xmlns="http://www.w3.org/2000/svg" {size}>', style, *body, "</svg>", ""])


def _plot(title: str, shown: Picture, down: float) -> Iterator[str]:
    yield f'<g transform="translate(0 {down})">'
    yield _text(LEFT, TOP - 16, title, "start", ' class="title"')
    for value, text in zip(shown.y.ticks, shown.y.texts, strict=True):
        yield f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{_y(value, shown.y)}" y2="{_y(value, shown.y)}"/>'
        yield _text(LEFT - 8, _y(value, shown.y) + 4, text.strip(), "end")
    for value, text in zip(shown.x.ticks, shown.x.texts, strict=True):
        yield _text(_x(value, shown.x), HEIGHT - BOTTOM + 18, text, "middle")
    yield from _curves(shown)
    for mark in shown.marks:
        yield _text(_x(mark.x, shown.x), _y(shown.y.high if mark.top else shown.y.low, shown.y), "✖", "middle", ' style="fill:#c33"')
    yield "</g>"


def _curves(shown: Picture) -> Iterator[str]:
    lines = [line for line in shown.lines if line.style != "faint"]
    yield from (_curve(line, shown, "#999999", 0.5) for line in shown.lines if line.style == "faint")
    placed: list[float] = []
    colours = {id(line): COLOURS[number % len(COLOURS)] for number, line in enumerate(lines)}
    for line in sorted(lines, key=lambda line: -line.ys[-1]):
        yield _curve(line, shown, colours[id(line)], 1.0)
        y = max(_y(line.ys[-1], shown.y) + 4, (placed[-1] + 14) if placed else 0)
        if line.label:
            placed.append(y)
            yield _text(WIDTH - RIGHT + 8, y, line.label, "start", f' style="fill:{colours[id(line)]}"')


def _curve(line: PlotLine, shown: Picture, colour: str, strength: float) -> str:
    points = " ".join(f"{_x(x, shown.x)},{_y(y, shown.y)}" for x, y in zip(line.xs, line.ys, strict=True))
    if len(line.xs) == 1:
        return f'<circle cx="{_x(line.xs[0], shown.x)}" cy="{_y(line.ys[0], shown.y)}" r="3" fill="{colour}"/>'
    return f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.5" stroke-opacity="{strength}"/>'


def _text(x: float, y: float, text: str, anchor: str, more: str = "") -> str:
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}"{more}>{escape(UNSAFE.sub("", text))}</text>'


def _x(value: float, axis: Axis) -> float:
    return round(LEFT + (value - axis.low) / (axis.high - axis.low or 1.0) * (WIDTH - LEFT - RIGHT), 1)


def _y(value: float, axis: Axis) -> float:
    return round(TOP + (axis.high - value) / (axis.high - axis.low or 1.0) * (HEIGHT - TOP - BOTTOM), 1)
