"""Before a launch on other hosts: the progress of their checks, and the result."""

from __future__ import annotations

from collections.abc import Sequence
from time import monotonic
from typing import TYPE_CHECKING, ClassVar

from textual import events, on

from dstui.tui.dialogs.dialog import Answer, Lines
from dstui.tui.kit.row_list import RowList
from dstui.tui.kit.text_row import BLANK, GLYPHS, STYLE_OF, Row, Span, paragraph, row

if TYPE_CHECKING:
    from dstui.doctor.examine import Result

STATE_OF = {"warn": "warning", "fail": "error"}
"""Verdict of the doctor -> state of a row."""
WAITED_FOR = 8
"""Hosts without an answer that are listed."""


class Preflight(Lines):
    """Result: True to launch, False or None (Esc) to go back. Closes with True by itself if nothing is wrong."""

    ROWS, BOX = "preflight", 100
    WAITING: ClassVar[Answer] = Answer("l", "launch without waiting for them", True)

    def __init__(self, hosts: Sequence[str]) -> None:
        """Create the dialog. `hosts`: the hosts that are checked."""
        super().__init__("Are the hosts ready?")
        self.hosts, self.answered = tuple(hosts), set[str]()
        self.results: Sequence[Result] | None = None
        self._began = monotonic()

    def on_mount(self) -> None:
        """Draw it, and again every second while hosts are checked."""
        super().on_mount()
        self.set_interval(1.0, self.redraw)

    @property
    def answers(self) -> tuple[Answer, ...]:
        """Return the answers that are possible now."""
        if self.results is None:
            return (Answer("b", "back", False), self.WAITING)
        failed = any(result.verdict == "fail" for result in self.results)
        return (Answer("b", "back", False), Answer("l", "launch anyway" if failed else "launch", True))

    def host_answered(self, host: str) -> None:
        """Note that a host has answered or timed out."""
        self.answered.add(host)
        if self.is_attached:
            self.redraw()

    def show(self, results: Sequence[Result]) -> None:
        """Show what is wrong (see doctor/preflight.py). Closes with True if nothing is."""
        self.results = results
        if not self.is_attached:
            return
        if not results:
            self.dismiss(True)
        else:
            self.redraw()

    def lines(self) -> Sequence[Row]:
        """Return the hosts that have not answered, or the findings, the most severe first; then the answers."""
        rows = self._waiting() if self.results is None else self._found(self.results)
        return [*rows, BLANK, *(row((answer.key, "accent"), f"  {answer.label}", key=answer.label) for answer in self.answers)]

    def _waiting(self) -> list[Row]:
        left = [host for host in self.hosts if host not in self.answered]
        named = ", ".join(left[:WAITED_FOR]) + (f" and {len(left) - WAITED_FOR} more" if len(left) > WAITED_FOR else "")
        text = f"{len(self.hosts) - len(left)} of {len(self.hosts)} hosts have answered, after {monotonic() - self._began:.0f} s"
        return [*paragraph(f"{text}.", self.room), *paragraph(f"Waiting for {named}." if named else "Comparing them.", self.room, "dim")]

    def _found(self, results: Sequence[Result]) -> list[Row]:
        rows: list[Row] = []
        for verdict in ("fail", "warn"):
            for result in (each for each in results if each.verdict == verdict):
                state = STATE_OF[verdict]
                first = (Span(f"{GLYPHS[state]} ", STYLE_OF[state]), Span(f"{result.host}  ", "title"))
                rows += paragraph(f"{result.id}: {result.observed}", self.room, first=first)
                rows += paragraph(result.fix, self.room, "dim", first=(Span("    → ", "accent"),)) if result.fix else []
        count = len(self.hosts)
        return [*rows, BLANK, *paragraph(f"That is all, of {count} host{'s' if count > 1 else ''}.", self.room, "dim")]

    def on_key(self, event: events.Key) -> None:
        """Answer with a letter."""
        for answer in self.answers:
            if answer.key == event.key:
                event.stop()
                self.dismiss(answer.value)

    @on(RowList.Chosen)
    def _chosen(self, event: RowList.Chosen) -> None:
        event.stop()
        self.dismiss(next((answer.value for answer in self.answers if answer.label == event.key), None))
