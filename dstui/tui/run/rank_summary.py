"""More ranks than there is room for: what they are in all, and those that are worst off first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from dstui.tui.kit.text_row import Row, Span
from dstui.tui.run.rank_cell import GLYPH, Cell

WORST = ("failed", "lost", "unknown", "silent", "behind", "stopped", "killed", "waiting", "running", "ended")


def worst_first(cells: Sequence[Cell]) -> list[Cell]:
    """By what has become of them, then by how far behind they are."""
    return sorted(cells, key=lambda c: (WORST.index(c.word) if c.word in WORST else 0, c.step if c.step is not None else -1, c.rank))


def total_row(cells: Sequence[Cell]) -> Row:
    """1,024 ranks on 128 hosts, how many of them run, and how far apart their steps are."""
    hosts = len({c.host for c in cells})
    where = f" on {hosts:,} hosts" if hosts > 1 else ""
    return Row((Span(f" {len(cells):,} ranks{where}  ", "title"), *counts(cells), Span(steps_text(cells), "dim")))


def steps_text(cells: Sequence[Cell]) -> str:
    """The step of all, or the first and the last."""
    steps = [c.step for c in cells if c.step is not None]
    if not steps:
        return ""
    return f"step {min(steps):,}" if min(steps) == max(steps) else f"steps {min(steps):,} to {max(steps):,}"


def counts(cells: Sequence[Cell]) -> list[Span]:
    """How many are in which state, the worst first."""
    numbers = Counter(c.word for c in cells)
    return [
        span
        for word in sorted(numbers, key=lambda w: WORST.index(w) if w in WORST else 0)
        for span in (Span(f"{GLYPH.get(word, ('·', 'dim'))[0]} ", GLYPH.get(word, ("·", "dim"))[1]), Span(f"{numbers[word]:,} {word}  "))
    ]
