"""The palette: all actions and steps by name, enabled as they would be without the palette on top."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple, Protocol, cast

from textual import events
from textual.app import App, ComposeResult
from textual.command import CommandList, CommandPalette, DiscoveryHit, Hit, Hits, Provider
from textual.content import Content

from dstui.tui.dialogs.dialog import Over
from dstui.tui.flows.examining import examine_plan
from dstui.tui.flows.saving import take_screenshot
from dstui.tui.forms.steps import STEPS, Step
from dstui.tui.kit.keys import ANYWHERE, CHOOSING, KeyHint, table
from dstui.tui.session.session import Session

LEFT_OUT = ("digit", "command_palette", "escape", "pane", "dismiss", "set_row", "onward")


class Performer(Protocol):
    """The interface of the app that the palette calls."""

    session: Session

    @property
    def step(self) -> Step: ...
    def show_step(self, step: Step) -> None: ...
    async def perform(self, key: KeyHint) -> None: ...
    def show_code(self) -> None: ...


class Command(NamedTuple):
    """A name, a sentence that says what it does, and the function that does it."""

    name: str
    help: str
    act: Callable[[], object]


class PaletteList(CommandList):
    """Textual's list of commands, with a click on an option that is gone ignored: the options change with each letter."""

    async def _on_click(self, event: events.Click) -> None:
        option = event.style.meta.get("option")
        if option is not None and option >= self.option_count:
            event.prevent_default()


class Palette(CommandPalette, Over[None]):
    """Textual's palette with two defects worked around: a page key before the first layout, and options removed while others arrive.

    Its list has no page to turn before it was laid out, and fails over an option that is gone while the next ones arrive.
    """

    PANE = CHOOSING
    DEFAULT_CSS = "Palette Footer { dock: bottom; height: 1; }"

    def compose(self) -> ComposeResult:
        """Compose Textual's widgets and the footer."""
        for widget in super().compose():
            yield PaletteList() if isinstance(widget, CommandList) else widget
        yield self.footer

    def _gather_commands(self, search_value: str) -> Any:
        if self not in self.app.screen_stack:
            return None
        worker = super()._gather_commands(search_value)
        worker.exit_on_error = False  # its list may be taken away before it has filled it
        return worker

    def _action_command_list(self, action: str) -> None:
        if self.query_one(CommandList).virtual_size.height:
            with suppress(LookupError):
                super()._action_command_list(action)


class Commands(Provider):
    """The provider of commands. Each palette runs one command only: Enter may arrive twice in one read."""

    _done = False

    async def discover(self) -> Hits:
        """Yield every command, for an empty query."""
        for command in self._commands():
            yield DiscoveryHit(Content(command.name), partial(self._once, command), command.name, command.help)

    async def search(self, query: str) -> Hits:
        """Yield the commands whose name matches the query."""
        matcher = self.matcher(query)
        for command in self._commands():
            if (score := matcher.match(command.name)) > 0:
                yield Hit(score, matcher.highlight(command.name), partial(self._once, command), command.name, command.help)

    async def _once(self, command: Command) -> None:
        if not self._done:
            self._done = True
            ended = command.act()
            if ended is not None and hasattr(ended, "__await__"):
                await ended

    def _commands(self) -> Iterator[Command]:
        app = cast(Performer, self.app)
        if isinstance(self.screen, Over):
            yield from actions(self.screen.PANE, [key for key in table() if self.screen.PANE in key.where], app.perform)
            return
        yield from actions(app.step.pane, [key for key in table() if key.where & ANYWHERE], app.perform)
        for number, step in enumerate(STEPS, 1):
            yield Command(f"Go to {number}: {step.title}", step.question, partial(app.show_step, step))
        yield Command("Code: the lines that the script needs", "What to write into it, of a plain loop as a diff.", app.show_code)
        doctor = partial(examine_plan, self.app, app.session.state.plan)
        yield Command("Doctor", "Whether this machine and every host of the Plan is ready.", doctor)
        yield Command("Theme", "Other colours, which are remembered.", partial(search_themes, self.app))
        yield Command(
            "Screenshot",
            "Write what is on the screen to a picture (SVG) in the current folder.",
            partial(take_screenshot, self.app, app.session),
        )


def actions(pane: str, keys: Iterable[KeyHint], perform: Callable[[KeyHint], object]) -> Iterator[Command]:
    """Yield each action once, labelled as in this pane, the actions of the pane first."""
    listed: set[str] = set()
    for key in sorted(keys, key=lambda key: pane not in key.where):
        if key.name and key.name not in LEFT_OUT and key.action not in listed:
            listed.add(key.action)
            yield Command(f"{key.label.capitalize()} ({key.shown})", key.help, partial(perform, key))


def search_themes(app: App[Any]) -> None:
    """Open a palette of the themes."""
    from textual.theme import ThemeProvider

    app.push_screen(Palette(providers=[ThemeProvider], placeholder="Search for themes…"))
