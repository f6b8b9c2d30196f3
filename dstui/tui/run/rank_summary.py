"""More ranks than there is room for: what they are in all, then a line per host, or a cell per rank, those that are worst off first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from dstui.tui.kit.text_row import Row, Span, fit
from dstui.tui.run.rank_cell import GLYPH, Cell

WORST = ("failed", "lost", "silent", "killed", "waiting", "running", "ended")
NAMED = 4
"""Ranks that a host's line names."""


def worst_first(cells: Sequence[Cell]) -> list[Cell]:
    """By what has become of them, then by how far behind they are."""
    return sorted(cells, key=lambda c: (WORST.index(c.word) if c.word in WORST else 0, c.step if c.step is not None else -1, c.rank))


def total_row(cells: Sequence[Cell]) -> Row:
    """1,024 ranks on 128 hosts, how many of them run, and how far apart their steps are."""
    hosts = len({c.host for c in cells})
    where = f" on {hosts:,} hosts" if hosts > 1 else ""
    return Row((Span(f" {len(cells):,} ranks{where}  ", "title"), *_counts(cells), Span(steps_text(cells), "dim")))


def host_rows(cells: Sequence[Cell], lines: int, width: int) -> list[Row]:
    """A line per host, in so many lines; of the hosts for which there is none at least how many there are."""
    hosts: dict[str, list[Cell]] = {}
    for cell in worst_first(cells):
        hosts.setdefault(cell.host, []).append(cell)
    shown = list(hosts.items())[: lines if len(hosts) <= lines else lines - 1]
    name = min(max(len(host) for host, _ in shown), width // 3)
    rows = [Row((Span(f" {fit(host, name)}  "), *_counts(ranks), Span(steps_text(ranks), "dim"), *_named(ranks))) for host, ranks in shown]
    left = [cell for host, ranks in list(hosts.items())[len(shown) :] for cell in ranks]
    if left:
        rows.append(Row((Span(f" {len(hosts) - len(shown):,} more hosts  ", "dim"), *_counts(left), Span(steps_text(left), "dim"))))
    return rows


def steps_text(cells: Sequence[Cell]) -> str:
    """The step of all, or the first and the last."""
    steps = [c.step for c in cells if c.step is not None]
    if not steps:
        return ""
    return f"step {min(steps):,}" if min(steps) == max(steps) else f"steps {min(steps):,} to {max(steps):,}"


def _counts(cells: Sequence[Cell]) -> list[Span]:
    counts = Counter(c.word for c in cells)
    return [
        span
        for word in sorted(counts, key=lambda w: WORST.index(w) if w in WORST else 0)
        for span in (Span(f"{GLYPH.get(word, ('·', 'dim'))[0]} ", GLYPH.get(word, ("·", "dim"))[1]), Span(f"{counts[word]:,} {word}  "))
    ]


def _named(ranks: Sequence[Cell]) -> list[Span]:
    """The ranks of a host to which something has happened, by their numbers."""
    odd = [c for c in ranks if c.word in ("failed", "lost", "silent")]
    if not odd:
        return []
    text = ", ".join(str(c.rank) for c in odd[:NAMED])
    return [Span(f"  rank{'s' if len(odd) > 1 else ''} {text}{', …' if len(odd) > NAMED else ''}", GLYPH[odd[0].word][1])]
