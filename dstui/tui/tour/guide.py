"""Guide through the tour: a panel at the top of the visible screen, and a check several times a second for what was achieved."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from textual.command import DiscoveryHit, Hit, Hits, Provider

from dstui.base.files import FileProblem
from dstui.tui.kit.row_list import RowList
from dstui.tui.kit.text_row import BLANK, Row, paragraph, row
from dstui.tui.tour.observe import MAIN, place
from dstui.tui.tour.steps import TOUR, TourStep, number_of

if TYPE_CHECKING:
    from dstui.tui.app import DstuiApp
    from dstui.tui.tour.folder import TourFolder

LOOK = 0.2
"""Seconds between two checks."""
WAYS = {
    ("run", "form"): "[ [",
    ("run", "review"): "[",
    ("review", "form"): "[",
    ("form", "review"): "8",
    ("form", "run"): "9",
    ("review", "run"): "9",
    ("form", "runs"): "J",
    ("review", "runs"): "J",
    ("run", "runs"): "J",
    ("run", "plot"): "m",
    ("form", "zero"): "3",
    ("review", "zero"): "3",
    ("run", "zero"): "[ 3",
    ("form", "batch"): "6",
    ("review", "batch"): "6",
    ("run", "batch"): "[ 6",
}
"""The user's place, and the place where the key of the step works -> the keys that lead there."""


class TourPanel(RowList):
    """The step of the tour: its title, the expected key, and a few lines of text."""

    DEFAULT_CSS = """
    TourPanel { dock: top; height: 4; background: $panel; }
    """
    MARGIN = 1
    LINES: ClassVar[int] = 3
    """Lines of text, enough for every step on a screen of 80 columns."""
    can_focus = False

    def show_step(self, step: TourStep, number: int, way: str) -> None:
        """Show a step. `way`: the keys that lead to where its key works."""
        key = f"first {way}, then {step.key}" if way else f"press {step.key}"
        head = row((f"Tour {number + 1}/{len(TOUR)} ", "dim"), (step.title, "title"), right=[(key, "accent")])
        text = text_rows(step, self.app.size.width - 3)
        self.show_rows([head, *(*text, BLANK, BLANK, BLANK)[: self.LINES]])  # empty lines would be transparent, so the panel fills them


def text_rows(step: TourStep, width: int) -> list[Row]:
    """Return the text of a step, wrapped."""
    return paragraph(step.text, width)


class Guide:
    """Runs the tour during one session of the app."""

    def __init__(self, app: DstuiApp, folder: TourFolder) -> None:
        self._app, self._folder = app, folder
        self.number = number_of(folder.step)
        self._began = False

    @property
    def step(self) -> TourStep:
        """The current step of the tour."""
        return TOUR[self.number]

    def begin(self) -> None:
        """Start as soon as the app shows something."""
        self._app.session.subscribe(lambda _before, _now: self._start())
        self._app.COMMANDS = {*self._app.COMMANDS, commands_of(self)}  # type: ignore[misc]  # Textual reads them of the app

    def go(self, by: int) -> None:
        """Move to another step, and record it."""
        self.number = min(max(self.number + by, 0), len(TOUR) - 1)
        with suppress(FileProblem):  # a full disk only prevents the record
            self._folder.note(self.step.name)

    def _start(self) -> None:
        if not self._began and self._app.is_running:
            self._began = True
            self._app.set_interval(LOOK, self.look)

    def look(self) -> None:
        """Move on when the step is complete, and back if what it needs is gone."""
        if self._app.leaving or not self._app.screen.is_mounted:
            return
        if self.step.done(self._app):
            self.go(1)
        elif not self.step.needs(self._app):
            self.go(-1)
        self._draw()

    def _draw(self) -> None:
        screen = self._app.screen
        panel = next(iter(screen.query(TourPanel)), None)
        if panel is None:
            panel = TourPanel()
            screen.mount(panel)
        panel.show_step(self.step, self.number, self._way())

    def _way(self) -> str:
        """Return the keys that lead to where the step's key works; "" if that is here."""
        here, wanted = place(self._app), self.step.at
        if here in wanted or (here == "form" and self._app.step.id in wanted):
            return ""
        return next((WAYS[here, there] for there in sorted(wanted) if (here, there) in WAYS), "") if here in MAIN else "Esc"


def commands_of(guide: Guide) -> type[Provider]:
    """Return the palette's provider of tour steps."""
    moves = (
        ("Tour: the next step", "Skip this step of the tour.", partial(guide.go, 1)),
        ("Tour: the step before", "Go back by one.", partial(guide.go, -1)),
    )

    class TourCommands(Provider):
        """The steps of the tour, in the palette."""

        async def discover(self) -> Hits:
            """Return all steps, before anything is typed."""
            for name, about, act in moves:
                yield DiscoveryHit(name, act, help=about)

        async def search(self, query: str) -> Hits:
            """Return the steps with the typed letters in their name."""
            matcher = self.matcher(query)
            for name, about, act in moves:
                if (score := matcher.match(name)) > 0:
                    yield Hit(score, matcher.highlight(name), act, help=about)

    return TourCommands
