"""Curves in cells of two by four dots, cheap enough for many small plots that are redrawn each second."""

from __future__ import annotations

from collections.abc import Sequence

DOTS = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))
"""The bits of a cell's dots: left and right column, from the top."""


def braille(points: Sequence[tuple[float, float]], cells: tuple[int, int], low: float, high: float) -> list[str]:
    """Return a picture of this many cells as lines: the points, joined in order, between the values `low` and `high`."""
    width, height = max(cells[0], 1), max(cells[1], 1)
    grid = [[0] * width for _ in range(height)]
    before: tuple[int, int] | None = None
    for x, y in _placed(points, 2 * width - 1, 4 * height - 1, low, high):
        for column, dot in _joined(before or (x, y), (x, y)):
            grid[dot // 4][column // 2] |= DOTS[column % 2][dot % 4]
        before = (x, y)
    return ["".join(chr(0x2800 + bits) if bits else " " for bits in line) for line in grid]


def _placed(points: Sequence[tuple[float, float]], right: int, bottom: int, low: float, high: float) -> list[tuple[int, int]]:
    """Return the position of each point in dots, from the top left."""
    if not points:
        return []
    first, last = points[0][0], points[-1][0]
    wide, tall = last - first or 1.0, high - low or 1.0
    flat = bottom // 2 if high == low else 0
    return [(round((x - first) / wide * right), flat or round((high - min(max(y, low), high)) / tall * bottom)) for x, y in points]


def _joined(start: tuple[int, int], end: tuple[int, int]) -> list[tuple[int, int]]:
    """Return the dots on the line between two positions."""
    (x, y), (to_x, to_y) = start, end
    steps = max(abs(to_x - x), abs(to_y - y))
    return [(x + (to_x - x) * n // steps, y + (to_y - y) * n // steps) for n in range(1, steps + 1)] if steps else [end]
