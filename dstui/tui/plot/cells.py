"""A picture as rows of a screen: curves in braille, with axes, names at the ends of lines, attempts and marks."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from rich.cells import cell_len

from dstui.tui.kit.text_row import Row, Span
from dstui.tui.plot.curves import Picture, PlotLine
from dstui.tui.plot.printed import numbers_below
from dstui.tui.run.braille import strokes

SHADES = {"main": "accent", "faint": "lines", "other": "warning", "beside": "ok"}
"""Kind of line -> the name of its style. Ranks have the same colours as in the log."""
COARSE = ("faint", "other")
"""Lines that have another marker than the run's own if there are no colours."""
FEW = 40
"""Up to this many values, each is drawn as a point, not only as a corner of the line."""
AXES = "dim"


class _Grid:
    """Cells with a character and a style each, and the braille dots in them."""

    def __init__(self, width: int, height: int) -> None:
        self.signs = [[" "] * width for _ in range(height)]
        self.styles = [[""] * width for _ in range(height)]
        self.dots = [[0] * width for _ in range(height)]

    def line(self, dots: list[tuple[int, int]], style: str, sign: str) -> None:
        """Draw a line through these dots; with a `sign` in each cell instead, unless that is empty."""
        signs, styles, drawn = self.signs, self.styles, self.dots
        for row, column, bits in strokes(dots):
            drawn[row][column] |= 0 if sign else bits
            styles[row][column], signs[row][column] = style, sign or chr(0x2800 + drawn[row][column])

    def text(self, row: int, column: int, text: str, style: str, side: str) -> None:
        """Write a text whose first or last cell is at `column`, as far as there is room."""
        signs, width = self.signs[row], len(self.signs[row])
        at = column - cell_len(text) + 1 if side == "right" else column
        for char in text:
            wide = cell_len(char)
            if at >= 0 and wide and at + wide <= width:
                if not signs[at]:  # the second half of a wide character that was written before
                    signs[at - 1] = " "
                signs[at : at + wide] = [char, ""][:wide]
                self.styles[row][at : at + wide] = [style] * wide
                if at + wide < width and not signs[at + wide]:
                    signs[at + wide] = " "
            at += wide

    def spans(self) -> Iterator[tuple[Span, ...]]:
        """Yield the rows, neighbours of one style together."""
        for signs, styles in zip(self.signs, self.styles, strict=True):
            pieces = groupby(range(len(signs)), styles.__getitem__)
            yield tuple(Span("".join(map(signs.__getitem__, cells)), style) for style, cells in pieces)


class _Drawing:
    """The picture, placed in cells."""

    def __init__(self, shown: Picture, width: int, height: int) -> None:
        self.shown, self.grid = shown, _Grid(width, height)
        self._right, self._bottom = 2 * width - 1, 4 * height - 1
        self._names: list[tuple[int, range]] = []
        """The row and the cells of each name."""

    def x(self, value: float) -> int:
        """Return the dot of a step, from the left."""
        axis = self.shown.x
        return min(max(round((value - axis.low) / (axis.high - axis.low or 1.0) * self._right), 0), self._right)

    def y(self, value: float) -> int:
        """Return the dot of a value, from the top."""
        axis = self.shown.y
        return min(max(round((axis.high - value) / (axis.high - axis.low or 1.0) * self._bottom), 0), self._bottom)

    def write(self, text: str, x: float, y: float, style: str) -> None:
        """Write a text that begins or ends at these values."""
        self.grid.text(self.y(y) // 4, self.x(x) // 2, text, style, self.shown.side(x))

    def attempts(self) -> None:
        """Draw where attempts begin."""
        for attempt, step in self.shown.attempts.items():
            self.grid.line([(self.x(step), 0), (self.x(step), self._bottom)], AXES, "│")
            self.write(f"attempt {attempt}", step, self.shown.y.high, AXES)

    def line(self, line: PlotLine, *, colours: bool) -> None:
        """Draw a line."""
        style = SHADES.get(line.style, line.style)
        dots = [(self.x(x), self.y(y)) for x, y in zip(line.xs, line.ys, strict=True)]
        self.grid.line(dots, style, "•" if line.style in COARSE and not colours else "")
        for x, y in zip(line.xs, line.ys, strict=True) if line.style == "beside" and len(dots) < FEW else ():
            self.write("●", x, y, style)

    def name(self, line: PlotLine) -> None:
        """Write a line's name at its end."""
        point = "●" if line.style == "beside" else ""
        side = self.shown.side(line.xs[-1])
        text = (f"{line.label} {point}" if side == "right" else f"{point} {line.label}").strip()
        column = self.x(line.xs[-1]) // 2
        first = column - cell_len(text) + 1 if side == "right" else column
        row = self._free_row(self.y(line.ys[-1]) // 4, range(first, first + cell_len(text)))
        self.grid.text(row, column, text, SHADES.get(line.style, line.style), side)

    def _free_row(self, row: int, cells: range) -> int:
        """Return the row, or one near it, in which no other name is written in or beside these cells."""
        near = [row + by for by in (0, -1, 1, -2, 2) if 0 <= row + by < len(self.grid.signs)]
        taken = {there for there, others in self._names if cells.start <= others.stop and others.start <= cells.stop}
        free = next((one for one in near if one not in taken), row)
        self._names.append((free, cells))
        return free


def picture_rows(shown: Picture, width: int, height: int, *, colours: bool = True) -> list[Row]:
    """Return the picture in this many cells. Without colours, lines differ by their markers: dots for the run, bullets for others."""
    left = max(map(cell_len, shown.y.texts), default=0)
    across, up = width - left - 1, height - 2
    if across < 2 or up < 1:
        return []
    drawing = _Drawing(shown, across, up)
    drawing.attempts()
    lines = sorted(shown.lines, key=lambda line: line.style != "faint")
    for line in lines:
        drawing.line(line, colours=colours)
    for line in lines:
        if line.label:
            drawing.name(line)
    for mark in shown.marks:
        drawing.write("✖", mark.x, shown.y.high if mark.top else shown.y.low, "error")
    texts = {drawing.y(value) // 4: text for value, text in zip(shown.y.ticks, shown.y.texts, strict=True)}
    edges = [Span(f"{texts.get(row, '').rjust(left)}{'┤' if row in texts else '│'}", AXES) for row in range(up)]
    ticks = {drawing.x(value) // 2 for value in shown.x.ticks}
    below = "".join("┬" if column in ticks else "─" for column in range(across))
    rows = [Row((edge, *spans)) for edge, spans in zip(edges, drawing.grid.spans(), strict=True)]
    return [*rows, Row((Span(f"{' ' * left}└{below}", AXES),)), Row((Span(" " * (left + 1) + numbers_below(shown.x, across), AXES),))]
