"""The base of both modes: the first two lines, the footer, the steps, and which actions are enabled."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Protocol

from textual import events, on
from textual.dom import DOMNode
from textual.geometry import Size
from textual.widget import Widget
from textual.widgets import Input, Static

from dstui.tui.forms.fields import Field
from dstui.tui.forms.navigation import StepLine, TitleBar
from dstui.tui.forms.steps import STEPS, Step
from dstui.tui.kit.breakpoints import MINIMUM, PARTS, visible_parts
from dstui.tui.kit.current_size import CurrentSizeScreen
from dstui.tui.kit.footer import Footer
from dstui.tui.kit.keys import ACTIONS, PANES, valid
from dstui.tui.kit.row_list import RowList
from dstui.tui.session.session import Session

if TYPE_CHECKING:
    from dstui.plan.finding import Finding

TOO_SMALL = f"dstui needs at least {MINIMUM[0]}x{MINIMUM[1]} cells.\nMake the window larger, or press q to leave."
WHILE_TYPING = ("undo", "redo", "fix", "save", "help", "step", "command_palette", "leave", "escape", "pane")
"""Actions that F-keys and ctrl-keys have while a value is typed."""


class Go(Protocol):
    """Show a step, which may be on the other screen, and the field at `path` in it."""

    def __call__(self, step: Step, path: str = "") -> None: ...


class MainScreen(CurrentSizeScreen[None]):
    """The base screen of a mode. Its widgets are created once and kept as attributes, so they can be drawn at any time."""

    step: Step
    tab = "form"

    def __init__(self, session: Session, go: Go) -> None:
        super().__init__()
        self.session, self.go = session, go
        self.title_bar, self.step_line, self.footer = TitleBar(), StepLine(), Footer()
        self.too_small = Static(TOO_SMALL, id="too-small", markup=False)
        self.when_small: tuple[Widget, ...] = (self.too_small,)
        """The parts that are mounted when a screen is too small or too narrow for the first time."""
        self.acting: tuple[DOMNode, ...] = (self,)
        """The nodes that perform the actions of this screen's keys."""
        self._sizes: tuple[Size, ...] = ()
        """The sizes of the lists at the last report of a change."""
        self.needs: Mapping[str, Callable[[], object]] = {}
        """The conditions for an action to have an effect. Actions that are not listed always have one."""

    # Drawing

    def draw(self) -> None:
        """Draw the parts that both modes have."""
        state = self.session.state
        self.title_bar.show(state, self.session.path)
        self.step_line.show(state, self.step)

    def show_parts(self) -> None:
        """Show the parts that belong on a screen of this size, and hide the others."""
        parts = visible_parts(*self.app.size, self.step.pane, self.tab, self.step.wide)
        self._mount_missing(parts)
        for part in self.walk_children(Widget):  # a query would match each of them against a selector for each part
            if part.id in PARTS:
                part.display = part.id in parts

    def _mount_missing(self, parts: frozenset[str]) -> None:
        """Mount the parts that only small screens have, once. A wide screen's first frame would wait a millisecond for each."""
        above: Widget = self.title_bar
        for part in self.when_small:
            if part.id in parts and not part.is_attached and self.is_running and self.is_attached:
                self.mount(part, after=above)
            if part.is_attached:
                above = part

    def on_resize(self) -> None:
        """Show the parts for the new size, once the app knows it too."""
        self.call_later(self.show_parts)

    @on(RowList.Resized)
    def _resized(self) -> None:
        """Draw once for a new layout, in which many lists report a new size."""
        sizes = tuple(rows.size for rows in self.query(RowList))
        if self.app.is_running and sizes != self._sizes:
            self._sizes = sizes
            self.draw()

    # Enabled keys

    @property
    def is_topmost(self) -> bool:
        """Return whether it is shown, with no dialog on top of it."""
        return self.app.screen_stack[-1:] == [self]

    @property
    def typing_pane(self) -> str:
        """Return the name in the table of keys of what is being typed."""
        return "typing"

    @property
    def typing(self) -> bool:
        """Return whether letters are typed as text now."""
        return isinstance(self.focused, Input)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:  # noqa: ARG002
        """Return whether an action is allowed now: dialogs and text input have keys of their own."""
        if action not in ACTIONS:
            return True
        return self.is_topmost and (action in WHILE_TYPING if self.typing else self.can(action))

    def can(self, action: str) -> bool:
        """Return whether an action would have an effect now, by its pane and its object."""
        return self.step.pane in PANES.get(action, ()) and (action not in self.needs or bool(self.needs[action]()))

    @on(events.DescendantFocus)
    @on(events.ScreenResume)
    def show_keys(self) -> None:
        """Show the enabled keys in the footer. Another screen on top may have changed which ones are enabled, and the size."""
        if self.is_topmost:
            possible = frozenset(name for name in ACTIONS if self.check_action(name, ()))
            self.footer.show(valid(self.typing_pane if self.typing else self.step.pane, possible))

    @property
    def here(self) -> Field | Finding | None:
        """The field or the finding under the cursor, for the help."""
        return None

    # Actions of keys

    def action_step(self, by: int) -> None:
        """Show the next or previous step."""
        at = STEPS.index(self.step) + by
        if 0 <= at < len(STEPS):
            self.go(STEPS[at])

    def action_digit(self, number: int) -> None:
        """Show a step by its number."""
        if 1 <= number <= len(STEPS):
            self.go(STEPS[number - 1])

    def action_pane(self, by: int) -> None:
        """Move the focus to the next or previous pane."""
        self.focus_next() if by > 0 else self.focus_previous()
