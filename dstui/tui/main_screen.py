"""What the two modes share: the first two lines, the keys in the last one, the steps, and which actions do something now."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Protocol

from textual import on
from textual.dom import DOMNode
from textual.geometry import Size
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets import Input, Static

from dstui.tui.forms.fields import Field
from dstui.tui.forms.navigation import StepLine, TitleBar
from dstui.tui.forms.steps import STEPS, Step
from dstui.tui.kit.breakpoints import MINIMUM, PARTS, shown
from dstui.tui.kit.footer import Footer
from dstui.tui.kit.keys import ACTIONS, PANES, valid
from dstui.tui.kit.row_list import RowList
from dstui.tui.session.messages import Launched
from dstui.tui.session.session import Session

if TYPE_CHECKING:
    from dstui.jobs.store.folder import JobFolder
    from dstui.plan.finding import Finding

TOO_SMALL = f"dstui needs at least {MINIMUM[0]}x{MINIMUM[1]} cells.\nMake the window larger, or press q to leave."
WHILE_TYPING = ("undo", "redo", "fix", "save", "help", "step", "command_palette", "leave", "escape", "pane")
"""What the F-keys and ctrl-keys do while a value is typed."""


class Go(Protocol):
    """Goes to a step, whose screen it may not be yet, and to the field at `path` in it."""

    def __call__(self, step: Step, path: str = "") -> None: ...


class MainScreen(Screen[None]):
    """The bottom screen of a mode. Its parts are made once and kept as attributes: they are drawn into at any time."""

    step: Step
    tab = "form"
    typing_pane = "typing"
    """What the table of keys calls it while something is typed."""

    def __init__(self, session: Session, go: Go) -> None:
        super().__init__()
        self.session, self.go = session, go
        self.title_bar, self.step_line, self.footer = TitleBar(), StepLine(), Footer()
        self.too_small = Static(TOO_SMALL, id="too-small", markup=False)
        self.acting: tuple[DOMNode, ...] = (self,)
        """Who does what the keys of this screen say."""
        self._sizes: tuple[Size, ...] = ()
        """Of the lists, when one last said that its size is another."""
        self.needs: Mapping[str, Callable[[], object]] = {}
        """What an action must have something to act on for; those that are not here always do something."""

    # Drawing

    def draw(self) -> None:
        """Everything visible, from the state: here what both modes show."""
        state = self.session.state
        self.title_bar.show(state, self.session.path)
        self.step_line.show(state, self.step)

    def show_parts(self) -> None:
        """Show the parts that belong on a screen of this size, and hide the others."""
        parts = shown(*self.app.size, self.step.pane, self.tab, self.step.wide)
        for part in self.walk_children(Widget):  # a query would match each of them against a selector for each part
            if part.id in PARTS:
                part.display = part.id in parts

    def on_resize(self) -> None:
        """Another size: other parts may be seen, once the app knows it too."""
        self.call_later(self.show_parts)

    @on(RowList.Resized)
    def _resized(self) -> None:
        """A layout gives many lists another size at once, and each says so: they are drawn once."""
        sizes = tuple(rows.size for rows in self.query(RowList))
        if self.app.is_running and sizes != self._sizes:
            self._sizes = sizes
            self.draw()

    # Which keys do something

    @property
    def on_top(self) -> bool:
        """Return whether it is seen, and no dialog lies over it."""
        return self.app.screen_stack[-1:] == [self]

    @property
    def typing(self) -> bool:
        """Return whether letters are text now."""
        return isinstance(self.focused, Input)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:  # noqa: ARG002
        """Return whether an action may act now: a dialog has keys of its own, and so has a line that is being typed."""
        if action not in ACTIONS:
            return True
        return self.on_top and (action in WHILE_TYPING if self.typing else self.can(action))

    def can(self, action: str) -> bool:
        """Return whether an action does something now: by the pane that it belongs to, and by what there is to act on."""
        return self.step.pane in PANES.get(action, ()) and (action not in self.needs or bool(self.needs[action]()))

    def show_keys(self) -> None:
        """In the last line, the keys that do something now."""
        if self.on_top:
            possible = frozenset(name for name in ACTIONS if self.check_action(name, ()))
            self.footer.show(valid(self.typing_pane if self.typing else self.step.pane, possible))

    def on_descendant_focus(self) -> None:
        """Other keys are valid where the focus is now."""
        self.show_keys()

    @property
    def here(self) -> Field | Finding | None:
        """The field or the finding under the cursor, for the help."""
        return None

    # What the keys do

    def action_step(self, by: int) -> None:
        """The next or previous step."""
        at = STEPS.index(self.step) + by
        if 0 <= at < len(STEPS):
            self.go(STEPS[at])

    def action_digit(self, number: int) -> None:
        """A step by its number."""
        if 1 <= number <= len(STEPS):
            self.go(STEPS[number - 1])

    def action_pane(self, by: int) -> None:
        """The focus goes to the next pane, or to the one before."""
        self.focus_next() if by > 0 else self.focus_previous()

    def action_jobs(self) -> None:
        """The table of all runs; the one that is chosen there is looked at, and maybe started once more."""
        from dstui.tui.runs.runs_screen import RunsTable  # brings jobs and diagnosis, which a form does without

        def look(chosen: tuple[JobFolder, bool] | None) -> None:
            if chosen is not None:
                self.app.post_message(Launched(*chosen))

        self.app.push_screen(RunsTable(), look)
