"""A plot as lines of text for a terminal (curves in braille or ASCII, each with its name at its end), or as an SVG picture."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from html import escape

from dstui.base.text import UNSAFE
from dstui.runs.table import cell_len, cut
from dstui.tui.plot.curves import Axis, Picture, PlotLine
from dstui.tui.run.braille import braille

SIGNS = "*+ox#@%&"
"""Characters of lines if there is only ASCII."""
NAME = 20
"""The largest width of a name in cells."""
Paint = Callable[[str, int], str]
"""Colours a piece of the line with this number."""


def room(width: int) -> int:
    """Return the cells that are left for the curves of a picture of this width."""
    return max(width - NAME - 14, 20)


def as_text(shown: Picture, cells: tuple[int, int], paint: Paint, *, ascii_only: bool) -> list[str]:
    """Return the picture with its axes, the curves in this many cells."""
    width, height = cells
    lines = [line for line in shown.lines if line.style != "faint"]
    owners, grid = _drawn(lines, shown, cells, ascii_only=ascii_only)
    for mark in shown.marks:
        column = _column(mark.x, shown.x, width)
        grid[0 if mark.top else -1][column], owners[0 if mark.top else -1][column] = "!" if ascii_only else "✖", -1
    names = _names(lines, shown, height)
    edge, corner, below = ("|", "+", "-") if ascii_only else ("│", "└", "─")
    texts = {_row(value, shown.y, height): text for value, text in zip(shown.y.ticks, shown.y.texts, strict=True)}
    left = max((cell_len(text) for text in texts.values()), default=0)
    made = []
    for number, signs in enumerate(grid):
        drawn = "".join(paint(sign, owner) if owner >= 0 else sign for sign, owner in zip(signs, owners[number], strict=True))
        named = names.get(number)
        sign = f"{SIGNS[named % len(SIGNS)]} " if ascii_only and named is not None else ""
        name = " " + paint(sign + cut(lines[named].label, NAME), named) if named is not None and lines[named].label else ""
        made.append(f"{texts.get(number, '').rjust(left)} {edge}{drawn}{name}".rstrip())
    return [*made, " " * (left + 1) + corner + below * width, " " * (left + 2) + numbers_below(shown.x, width)]


def _drawn(
    lines: Sequence[PlotLine], shown: Picture, cells: tuple[int, int], *, ascii_only: bool
) -> tuple[list[list[int]], list[list[str]]]:
    """Return, for each cell, the index of the line that was drawn last in it (-1 for none) and its character."""
    width, height = cells
    owners = [[-1] * width for _ in range(height)]
    grid = [[" "] * width for _ in range(height)]
    for number, line in enumerate(lines):
        first, last = _column(line.xs[0], shown.x, width), _column(line.xs[-1], shown.x, width)
        part = braille(list(zip(line.xs, line.ys, strict=True)), (last - first + 1, height), shown.y.low, shown.y.high)
        for y, signs in enumerate(part):
            for x, sign in enumerate(signs, first):
                if sign != " ":
                    bits = ord(sign) - 0x2800 | (ord(grid[y][x]) - 0x2800 if grid[y][x] > "⠀" else 0)
                    grid[y][x] = SIGNS[number % len(SIGNS)] if ascii_only else chr(0x2800 + bits)
                    owners[y][x] = number
    return owners, grid


def _column(x: float, axis: Axis, width: int) -> int:
    return min(max(round((x - axis.low) / (axis.high - axis.low or 1.0) * (width - 1)), 0), width - 1)


def _row(y: float, axis: Axis, height: int) -> int:
    return min(max(round((axis.high - y) / (axis.high - axis.low or 1.0) * (height - 1)), 0), height - 1)


def _names(lines: Sequence[PlotLine], shown: Picture, height: int) -> dict[int, int]:
    """Return the row of each line's name: at its end, or in the next free row."""
    rows: dict[int, int] = {}
    for number in sorted(range(len(lines)), key=lambda n: -lines[n].ys[-1]):
        if lines[number].label:
            wanted = _row(lines[number].ys[-1], shown.y, height)
            free = [row for row in range(height) if row not in rows]
            if free:
                rows[min(free, key=lambda row: (abs(row - wanted), row))] = number
    return rows


def numbers_below(axis: Axis, width: int) -> str:
    """Return the numbers below the picture, each centred at its position."""
    line = ""
    for value, text in zip(axis.ticks, axis.texts, strict=True):
        at = min(max(_column(value, axis, width) - len(text) // 2, 0), width - len(text))
        if at >= len(line) + (1 if line else 0):
            line = line.ljust(at) + text
    return line


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
