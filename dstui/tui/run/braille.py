"""Curves in cells of two by four dots, cheap enough for many small plots that are redrawn each second."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

DOTS = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))
"""The bits of a cell's dots: left and right column, from the top."""
RUNS = tuple(tuple(tuple(sum(column[top : bottom + 1]) for bottom in range(4)) for top in range(4)) for column in DOTS)
"""The bits of a vertical run of dots: left and right column, first and last dot."""


def braille(points: Sequence[tuple[float, float]], cells: tuple[int, int], low: float, high: float) -> list[str]:
    """Return a picture of this many cells as lines: the points, joined in order, between the values `low` and `high`."""
    width, height = max(cells[0], 1), max(cells[1], 1)
    grid = [[0] * width for _ in range(height)]
    for row, column, bits in strokes(_placed(points, 2 * width - 1, 4 * height - 1, low, high)):
        grid[row][column] |= bits
    return ["".join(chr(0x2800 + bits) if bits else " " for bits in line) for line in grid]


def _placed(points: Sequence[tuple[float, float]], right: int, bottom: int, low: float, high: float) -> list[tuple[int, int]]:
    """Return the position of each point in dots, from the top left."""
    if not points:
        return []
    first, last = points[0][0], points[-1][0]
    wide, tall = last - first or 1.0, high - low or 1.0
    flat = bottom // 2 if high == low else 0
    return [(round((x - first) / wide * right), flat or round((high - min(max(y, low), high)) / tall * bottom)) for x, y in points]


def strokes(dots: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int, int]]:
    """Yield row, column and bits of each cell that a line through these dots touches, in order."""
    before: tuple[int, int] | None = None
    for dot in dots:
        for x, top, bottom in _joined(before or dot, dot):
            runs, last = RUNS[x % 2], bottom // 4
            for row in range(top // 4, last + 1):
                yield row, x // 2, runs[top % 4 if row == top // 4 else 0][bottom % 4 if row == last else 3]
        before = dot


def _joined(start: tuple[int, int], end: tuple[int, int]) -> Iterator[tuple[int, int, int]]:
    """Yield the line from one position to another as vertical runs: column, first and last dot. A steep line has few of them."""
    (x, y), (to_x, to_y) = start, end
    across, down = to_x - x, to_y - y
    steps = max(abs(across), abs(down))
    if not steps:
        yield x, y, y
    elif abs(across) == steps:
        for n in range(1, steps + 1):
            yield x + across * n // steps, (at := y + down * n // steps), at
    else:
        by = 1 if down > 0 else -1
        for column in range(abs(across) + 1):
            first = max(-(-column * steps // (abs(across) or steps)), 1)
            last = min(-(-(column + 1) * steps // (abs(across) or 1)) - 1, steps) if across else steps
            ends = y + by * first, y + by * last
            if first <= last:
                yield x + (column if across >= 0 else -column), min(ends), max(ends)
