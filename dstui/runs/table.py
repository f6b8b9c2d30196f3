"""Format runs as a table: sorted, and as lines of text of a given width."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from math import isnan
from typing import Any

from dstui.runs.columns import DROPPED, Column, Kept
from dstui.runs.run import Run

GAP = "  "
BEST = "★ "
"""Marks the best value of a row."""


def ordered(runs: Sequence[Run], by: Column, *, reverse: bool = False) -> list[Run]:
    """Return the runs sorted by a column, smallest first. Runs without a value come last in both directions."""
    told = [(value, run) for run in runs if (value := by.value(run)) is not None and not (isinstance(value, float) and isnan(value))]
    said = {id(run) for _, run in told}
    told.sort(key=lambda item: _key(item[0]), reverse=reverse)
    return [*(run for _, run in told), *(run for run in runs if id(run) not in said)]


def _key(value: Any) -> tuple[bool, Any]:
    """Return a sort key by which numbers come before texts."""
    return (False, value) if isinstance(value, (int, float)) else (True, str(value))


ENOUGH = 30
"""Cells of a column of words that say enough of it."""
LEAST_TELLING = "changed"
"""The column of words that is dropped where only one has room."""


def fitting(texts: Sequence[Sequence[str]], columns: Sequence[Column], width: int) -> tuple[list[list[str]], tuple[Column, ...]]:
    """Return a table without the columns that have no room, the least important ones first; empty columns take none."""
    sizes = {n: min(max(cell_len(row[n]) for row in texts), ENOUGH) for n in range(len(columns)) if any(row[n] for row in texts[1:])}
    left = list(range(len(columns)))
    for name in DROPPED:
        if sum(sizes[n] + len(GAP) for n in left if n in sizes) - len(GAP) <= width:
            break
        left = [n for n in left if columns[n].name != name]
    if sum(sizes[n] + len(GAP) for n in left if n in sizes) - len(GAP) - width > ENOUGH:
        left = [n for n in left if columns[n].name != LEAST_TELLING]  # two columns of words would both be too narrow to read
    return [[row[n] for n in left] for row in texts], tuple(columns[n] for n in left)


def cells(runs: Sequence[Run], columns: Sequence[Column]) -> list[list[str]]:
    """Return the texts of a table row by row, with its header first."""
    return [[column.name for column in columns], *([column.text(run) for column in columns] for run in runs)]


def lines(texts: Sequence[Sequence[str]], columns: Sequence[Column], width: int | None = None, labels: Sequence[Kept] = ()) -> list[str]:
    """Return a table as lines, without empty columns.

    `width`: cells of the terminal, None for no limit; `labels`: what is kept of the first text of each row.
    """
    used = [n for n in range(len(columns)) if any(row[n] for row in texts[1:])] or list(range(len(columns)))
    sizes = {n: max(cell_len(row[n]) for row in texts) for n in used}
    if width is not None:
        sizes = shrunk(sizes, [columns[n] for n in used], width - len(GAP) * (len(used) - 1))
    made = []
    for number, row in enumerate(texts):
        parts = []
        for n in used:
            text = cut(row[n], sizes[n], labels[number] if labels and n == 0 else columns[n].keeps)
            pad = " " * (sizes[n] - cell_len(text))
            parts.append(f"{pad}{text}" if columns[n].number else f"{text}{pad}")
        made.append(GAP.join(parts).rstrip())
    return made


def markdown_lines(texts: Sequence[Sequence[str]]) -> list[str]:
    """Return a table in Markdown, with the best value of a row in bold and all other markup escaped."""
    head, *body = [[_markdown(text) for text in row] for row in texts]
    return [f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *body)]


def _markdown(text: str) -> str:
    plain = re.sub(r"([|*`<\\\[\]]|(?<!\w)_|_(?!\w))", r"\\\1", text.removeprefix(BEST))
    return f"**{plain}**" if text.startswith(BEST) else plain


def short_names(names: Sequence[str]) -> tuple[str, ...]:
    """Return names of runs without their common first words: of quickstart-20261123-101500 often only the time differs."""
    words = [name.split("-") for name in names]
    shared = 0
    while len(set(names)) > 1 and all(len(each) > shared + 1 and each[shared] == words[0][shared] for each in words):
        shared += 1
    return tuple("-".join(each[shared:]) for each in words)


def cell_len(text: str) -> int:
    """Return the width of a text in terminal cells."""
    return len(text) if text.isascii() else sum(_cells_of(sign) for sign in text)


def _cells_of(sign: str) -> int:
    return 0 if unicodedata.combining(sign) else 2 if unicodedata.east_asian_width(sign) in "WF" else 1


def cut(text: str, width: int, keeps: Kept = "start") -> str:
    """Cut a text to at most `width` cells, with an ellipsis for what is not kept. Of both ends, a third is the start.

    `value`: of several parts the first one, whose end is its value: `…batch_size_per_gpu 8 → 16, …`.
    """
    if cell_len(text) <= width:
        return text
    if keeps == "value":
        first, more, _ = text.partition(", ")
        rest = ", …" if more and width > LEAST else ""
        if cell_len(first) > width - len(rest):
            return cut(first, width - len(rest), "end") + rest
    room = max(width - 1, 0)
    start = _first_cells(text, {"ends": room // 3, "end": 0}.get(keeps, room))
    return f"{start}…{_first_cells(text[::-1], room - cell_len(start))[::-1] if keeps in ('ends', 'end') else ''}"


def _first_cells(text: str, cells: int) -> str:
    text = text[:cells]
    while cell_len(text) > cells:
        text = text[:-1]
    return text


LEAST, BRIEF, SHORT_NAME = 8, 14, 20
"""The smallest width of a column of words, in cells, the width to which the others shrink before names do, and the width to which
names shrink before the others shrink further."""


def shrunk(sizes: dict[int, int], columns: Sequence[Column], room: int) -> dict[int, int]:
    """Return widths that fit into `room` if possible: the widest columns shrink first, down to LEAST cells."""
    made = {n: min(size, column.widest) for (n, size), column in zip(sizes.items(), columns, strict=True)}
    names = {n for n, column in zip(sizes, columns, strict=True) if column.keeps == "ends"}
    whole = {n for n, column in zip(sizes, columns, strict=True) if column.number or column.keeps == "all"}  # part of a number is another
    while sum(made.values()) > room and max(made[n] for n in set(made) - whole or made) > LEAST:
        widest = max((n for n in made if n not in names | whole and made[n] > BRIEF), key=lambda n: (made[n], n), default=None)
        if widest is None:
            words = {n for n in made if made[n] > LEAST} - whole
            long_names = {n for n in names & words if made[n] > SHORT_NAME}
            widest = max(long_names or words - names or words or made, key=lambda n: (made[n], n))
        made[widest] -= 1
    return made
