"""`M`: what fills GPU, RAM and NVMe, part by part; when the peak is; what is not known, and would narrow the range."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from dstui.machine.report import format_size
from dstui.tui.dialogs.text_viewer import WIDTH, TextViewer
from dstui.tui.forms.memory_rows import NAMES, needed, place_rows
from dstui.tui.kit.text_row import BLANK, Row, Span, fit, paragraph, row

if TYPE_CHECKING:
    from dstui.facts.measured import Taken
    from dstui.forecast.forecast import Forecast, Need
    from dstui.tui.session.forecasts import Outlook

PART, AMOUNT = 26, 9
"""Cells for the name of a part and for its bytes."""
WHOSE = {"gpu": "each GPU", "host": "the RAM of a node", "nvme": "the NVMe of a node"}
LEAST = 1e-3
"""Share of a place from which a part is named."""


def breakdown(outlook: Outlook, screen: int) -> TextViewer:
    """The dialog, on a screen so many cells wide."""
    return TextViewer(
        "What fills the memory (estimate)", list(breakdown_rows(outlook.forecast, min(WIDTH, screen * 96 // 100 - 8), outlook.runs))
    )


def breakdown_rows(estimate: Forecast, width: int, runs: Sequence[Taken] = ()) -> Iterator[Row]:
    """Every place with its parts and moments, then the checkpoint, what runs of the model took here, and what is not known."""
    for name, need in needed(estimate).items():
        yield row((f"{NAMES[name]}: {WHOSE[name]}", "title"))
        yield from place_rows({name: need}, width)
        yield from _parts(need, width)
        yield from _moments(need, width)
        yield BLANK
    if estimate.checkpoint:
        yield from paragraph(f"A checkpoint takes {format_size(estimate.checkpoint)} on disk.", width)
    if runs:
        yield row(("Measured here before", "title"))
        for run in runs:
            yield from paragraph(str(run), width, first=(Span("  - ", "dim"),))
    if estimate.unknown:
        yield row(("Not known, and would narrow it", "title"))
        for sentence in estimate.unknown:
            yield from paragraph(sentence, width, first=(Span("  - ", "dim"),))


def _parts(need: Need, width: int) -> Iterator[Row]:
    total, cells = max(need.bytes or 1, 1), max(width - PART - AMOUNT - 10, 5)
    named = {part: amount for part, amount in need.parts.items() if amount >= total * LEAST}
    for part, amount in sorted(named.items(), key=lambda item: -item[1]):
        share = amount / total
        words = f"  {fit(part.replace('_', ' '), PART)}{format_size(amount):>{AMOUNT}}"
        yield row(words, (f" {share:>4.0%} ", "dim"), ("█" * max(round(share * cells), 1), "value"))
    if rest := sum(need.parts.values()) - sum(named.values()):
        yield row((f"  {fit('all others', PART)}{format_size(rest):>{AMOUNT}}", "dim"))


def _moments(need: Need, width: int) -> Iterator[Row]:
    if len(need.moments) > 1:
        others = ", ".join(f"{moment} {format_size(amount)}" for moment, amount in need.moments.items() if moment != need.peak)
        yield from paragraph(f"The peak is at: {need.peak}. At other moments: {others}.", width - 2, "dim", indent="  ")
