"""The forecast in detail: what fills the memory (`M`), and the Plans that fit this machine (`r`)."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from textual import on
from textual.binding import Binding, BindingType

from dstui.forecast.part_words import PART_WORDS, measure_words, part_name
from dstui.forecast.recommend import NOT_SEARCHED
from dstui.machine.report import format_size
from dstui.plan import PlanError
from dstui.plan.finding import Fix
from dstui.tui.dialogs.dialog import Lines
from dstui.tui.dialogs.reading import TextViewer
from dstui.tui.forms.memory_rows import NAMES, SEVERITY, columns, needed, place_rows
from dstui.tui.forms.steps.figures import figure, headings, headings_of_fitting
from dstui.tui.kit.row_list import RowList
from dstui.tui.kit.text_row import BLANK, GLYPHS, STYLE_OF, Row, Span, fit, paragraph, row
from dstui.tui.kit.tools import in_thread

if TYPE_CHECKING:
    from dstui.facts.measured import Taken
    from dstui.forecast.forecast import Forecast
    from dstui.forecast.need import Need, Verdict
    from dstui.forecast.recommend import RankedPlan, RankedPlans
    from dstui.jobs.store.plan_diff import Change
    from dstui.tui.session.forecasts import Outlook


PART, AMOUNT, WORDS = 26, 9, 35
"""Cells for the name of a part, for its bytes, and for what it is."""
WIDE = 90
"""The least width at which parts are explained."""
WHOSE = {"gpu": "each GPU", "host": "the RAM of a node", "nvme": "the NVMe of a node"}
LEAST = 1e-3
"""The smallest share of a place with which a part is listed."""


def breakdown(outlook: Outlook) -> TextViewer:
    """Return the dialog that shows what fills the memory."""
    return TextViewer("What fills the memory (estimate)", partial(breakdown_rows, outlook.forecast, runs=outlook.runs))


def breakdown_rows(estimate: Forecast, width: int, runs: Sequence[Taken] = ()) -> Iterator[Row]:
    """Yield each place with its parts and moments, then the checkpoint, measured runs of the model, and keys beyond the forecast."""
    for name, need in needed(estimate).items():
        yield row((f"{NAMES[name]}: {WHOSE[name]}", "title"))
        yield from place_rows({name: need}, width)
        yield from _parts(need, width)
        yield from _moments(need, width)
        if need is estimate.gpu and (words := measure_words(estimate.shown, estimate.allocated)):
            yield from paragraph(f"While it runs, {words}.", width - 2, "dim", indent="  ")
        yield BLANK
    if estimate.checkpoint:
        yield from paragraph(f"A checkpoint takes {format_size(estimate.checkpoint)} on disk.", width)
    if runs:
        yield row(("Measured here before", "title"))
        for run in runs:
            yield from paragraph(str(run), width, first=(Span("  - ", "dim"),))
    if estimate.unknown:
        yield row(("Unknown; each would narrow the estimate", "title"))
        for sentence in estimate.unknown:
            yield from paragraph(sentence, width, first=(Span("  - ", "dim"),))


def _parts(need: Need, width: int) -> Iterator[Row]:
    words = WORDS if width >= WIDE else 0
    total, cells = max(need.bytes or 1, 1), max(width - PART - AMOUNT - words - 10, 5)
    named = {part: amount for part, amount in need.parts.items() if amount >= total * LEAST}
    for part, amount in sorted(named.items(), key=lambda item: -item[1]):
        share = amount / total
        figures = f"  {fit(part_name(part), PART)}{format_size(amount):>{AMOUNT}}"
        bar = f"{'█' * max(round(share * cells), 1):<{cells}}"
        what = PART_WORDS.get(part, "") if words else ""
        yield row(figures, (f" {share:>4.0%} ", "dim"), (bar if what else bar.rstrip(), "value"), (f"  {what}" if what else "", "dim"))
    if rest := sum(need.parts.values()) - sum(named.values()):
        yield row((f"  {fit('all others', PART)}{format_size(rest):>{AMOUNT}}", "dim"))


def _moments(need: Need, width: int) -> Iterator[Row]:
    if len(need.moments) > 1:
        others = ", ".join(f"{moment} {format_size(amount)}" for moment, amount in need.moments.items() if moment != need.peak)
        yield from paragraph(f"The peak is at: {need.peak}. At other moments: {others}.", width - 2, "dim", indent="  ")


MAX_CHANGES = 8
"""Lines that show the changes of a Plan."""
INDENT = "    "
SCRIPTS = "model.activation_checkpointing"
"""A key that only describes what the script does."""


MEASURE = "measure"
"""The result that asks for a measurement, and the key of its row."""


class Recommended(Lines):
    """The ranked plans. Result: the Fix that makes the chosen plan, MEASURE, or None."""

    ROWS, BOX = "recommended", 114
    BINDINGS: ClassVar[list[BindingType]] = [Binding("T", "measure", "measure", show=False)]

    def __init__(self, outlook: Outlook) -> None:
        super().__init__("Which plan is best here")
        self.outlook = outlook
        self.found: RankedPlans | None = None

    def on_mount(self) -> None:
        """Start the search in a thread."""
        in_thread(self, self._search)

    def _search(self) -> None:
        found = self.outlook.recommended()
        self.call_later(self._show, found)

    def _show(self, found: RankedPlans) -> None:
        self.found = found
        self.redraw()  # twice: the changes are below the cursor, which has no row before the first draw
        self.redraw()

    def lines(self) -> Sequence[Row]:
        """Return the table, or a note that the search is running."""
        if self.found is None:
            return [row(("Searching…", "dim"))]
        return ranked_rows(self.outlook, self.found, self.rows.cursor, self.room)

    def action_measure(self) -> None:
        """Ask for a measurement, on the machine that the plans are for."""
        if not self.outlook.machine.recorded:
            self.dismiss(MEASURE)

    @on(RowList.Moved, "#recommended")
    def _moved(self) -> None:
        self.redraw()
        self.rows.reveal(self.rows.cursor, MAX_CHANGES)
        self.rows.reveal(self.rows.cursor)

    @on(RowList.Chosen, "#recommended")
    def _chosen(self, event: RowList.Chosen) -> None:
        event.stop()
        if event.key == MEASURE:
            self.dismiss(MEASURE)
        if self.found is not None and isinstance(event.key, int) and event.key < len(self.found.rows):
            plan = self.found.rows[event.key]
            self.dismiss(Fix(plan.why.partition(";")[0], plan.patch))


def ranked_rows(outlook: Outlook, found: RankedPlans, cursor: Hashable, width: int) -> list[Row]:
    """Return the current Plan, then one numbered row per plan; below the one at the cursor, what it changes."""
    if found.problem:
        return paragraph(f"No recommendation: {found.problem}", width)
    estimate = outlook.forecast
    beside = bool(estimate.gpu.bytes)  # without a GPU, the first column is the RAM
    rows = [row((headings(estimate), "faint")), _line(figure(estimate), "the Plan as it is", estimate.verdict, width), BLANK]
    if not found.rows:
        ways = found.ways or (f"nothing that was tried: use a smaller model, or {'larger GPUs' if beside else 'more RAM'}",)
        rows += paragraph(f"Nothing fits, of {found.candidates:,} plans with the same samples in a step. What would:", width)
        return rows + [line for way in ways for line in paragraph(way, width - 2, first=(Span("- ", "accent"),))]
    rows += paragraph(
        f"The best of {found.candidates:,} plans with the same samples in a step, precision and sequence, {found.order}:", width, "dim"
    )
    rows.append(row((headings_of_fitting(estimate) + "  RAM" * beside, "faint")))
    for number, plan in enumerate(found.rows):
        best = f"{', '.join(plan.best_at)}: " if plan.best_at else ""
        figures = _figures(plan, ram=beside)
        rows.append(_line(figures, best + plan.why, plan.verdict, width, number))
        if number == cursor:
            rows += _changes(outlook, plan, width - len(figures) - 2, width)
    rows += paragraph(f"The second against the first: {found.second}", width, "dim") if found.second else []
    rows += paragraph(f"Cheaper: {found.cheapest}", width, "dim") if found.cheapest else []
    rows += paragraph(f"{NOT_SEARCHED[0].upper()}{NOT_SEARCHED[1:]}", width, "dim")
    if outlook.machine.recorded:  # nothing runs here
        return rows
    return [*rows, row(("T", "accent"), "  measure the best of them here, by short jobs", key=MEASURE)]


def _line(figures: str, words: str, verdict: Verdict, width: int, key: int | None = None) -> Row:
    room = width - len(figures) - 2
    return row((f"{figures}  ", STYLE_OF[SEVERITY[verdict]]), fit(words, min(len(words), room)), key=key)


def _figures(plan: RankedPlan, *, ram: bool) -> str:
    figures = f"{GLYPHS[SEVERITY[plan.verdict]]} {columns(plan.gpu_bytes, plan.headroom, plan.speed.tokens if plan.speed else None)}"
    if not ram:
        return figures
    host = f"{(plan.host_bytes or 0) / 2**30:.0f}G{'!' if plan.tight == 'host' else ''}"
    return f"{figures} {host:>5}"


def _changes(outlook: Outlook, plan: RankedPlan, room: int, width: int) -> list[Row]:
    """Return what a plan would write, key by key, and what limits its speed if that is longer than its line's `room`."""
    from dstui.jobs.store.plan_diff import changes

    try:
        lines = [_sentence(change) for change in changes(outlook.plan, outlook.plan.patch(plan.patch))]
    except PlanError as error:
        lines = [str(error)]
    shown = lines[:MAX_CHANGES] if lines else ["no changes: this is the Plan as it is"]
    shown += [f"and {len(lines) - MAX_CHANGES} more"] if len(lines) > MAX_CHANGES else []
    words = paragraph(plan.why, width - len(INDENT), "dim", indent=INDENT) if len(plan.why) > room else []
    return [*words, *(line for text in shown for line in paragraph(text, width - len(INDENT), "value", indent=INDENT))]


def _sentence(change: Change) -> str:
    """Return the text for one key, or what the script itself has to do."""
    return str(change).replace("deepspeed.", "", 1) + (" (the script must do it)" if change.path == SCRIPTS else "")
