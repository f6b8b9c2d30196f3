"""The palette: everything that can be done, set or gone to, by its name, judged as if the palette were not over the screen."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast

from textual import events
from textual.app import App, ComposeResult
from textual.command import CommandList, CommandPalette, DiscoveryHit, Hit, Hits, Provider, SearchIcon
from textual.content import Content
from textual.widgets import Input

from dstui.base.text import one_line
from dstui.tui.dialogs.dialog import Over
from dstui.tui.dialogs.reading import TextViewer
from dstui.tui.flows.preferences import OWN, choosable, format_setting
from dstui.tui.flows.saving import take_screenshot
from dstui.tui.forms.review import LINES
from dstui.tui.forms.steps import STEPS
from dstui.tui.forms.steps.step import REVIEW
from dstui.tui.kit.keys import ANYWHERE, CHOOSING, WHY_NOT, KeyHint, table
from dstui.tui.kit.text_row import BLANK, GLYPHS, STYLE_OF, Row, Span, paragraph, row
from dstui.tui.kit.tools import in_thread, say
from dstui.tui.session.messages import Launched

if TYPE_CHECKING:
    from dstui.doctor.examine import Result
    from dstui.plan import Plan
    from dstui.tui.flows.opening import Opening
    from dstui.tui.flows.preferences import Preferences
    from dstui.tui.flows.saving import Saving
    from dstui.tui.forms.steps import Step
    from dstui.tui.main_screen import MainScreen
    from dstui.tui.session.session import Session

LEFT_OUT = ("digit", "command_palette", "escape", "pane", "dismiss", "set_row", "onward", "look")
RUNS, PLANS, FINDINGS = 30, 10, 40
"""The number of the newest runs, of the Plans that were open last, and of the findings that are offered."""


class Performer(Protocol):
    """The interface of the app that the palette calls."""

    session: Session
    opening: Opening
    preferences: Preferences
    saving: Saving

    @property
    def main(self) -> MainScreen: ...
    @property
    def step(self) -> Step: ...
    def show_step(self, step: Step, path: str = "") -> None: ...
    async def perform(self, key: KeyHint) -> None: ...


class Command(NamedTuple):
    """A name, a description, and the function that runs it."""

    name: str
    help: str
    act: Callable[[], object]
    why_not: str = ""

    def named(self, name: Content | None = None) -> Content:
        """Return its name, dim where it cannot act now."""
        shown = name or Content(self.name)
        return shown.stylize("dim") if self.why_not else shown

    @property
    def about(self) -> str:
        """Return what it does, or why it cannot now."""
        return f"Not now: {self.why_not}." if self.why_not else self.help


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
    DEFAULT_CSS = """
    Palette Footer { dock: bottom; height: 1; }
    Palette SearchIcon { color: $primary; }  /* Textual's is black in every theme */
    Palette:ansi > .command-palette--help-text { text-style: not bold; }  /* dim text is unreadable on the colour of the cursor */
    """

    def compose(self) -> ComposeResult:
        """Compose Textual's widgets and the footer."""
        for widget in super().compose():
            if isinstance(widget, SearchIcon):
                widget.icon = "/"  # Textual's is an emoji, which many consoles lack
            yield PaletteList() if isinstance(widget, CommandList) else widget
        yield self.footer

    def on_mount(self) -> None:
        """Format the commands anew in other colours: each is formatted once, when it is found."""
        self.app.theme_changed_signal.subscribe(self, lambda _theme: self._gather_commands(self.query_one(Input).value.strip()))

    def _gather_commands(self, search_value: str) -> Any:
        if self not in self.app.screen_stack:
            return None
        worker = super()._gather_commands(search_value)
        worker.exit_on_error = False  # its list may be removed before it was filled
        return worker

    def _action_command_list(self, action: str) -> None:
        if self.query_one(CommandList).virtual_size.height:
            with suppress(LookupError):
                super()._action_command_list(action)


class Commands(Provider):
    """The provider of commands. Each palette runs only one command: Enter may arrive twice in one read."""

    _done = False
    _on_disk: tuple[Command, ...] | None = None

    async def discover(self) -> Hits:
        """Return all but the long lists, before anything is typed."""
        for command in self._commands():
            yield DiscoveryHit(command.named(), partial(self._once, command), command.name, command.about)

    async def search(self, query: str) -> Hits:
        """Yield the commands whose name matches the query."""
        matcher = self.matcher(query)
        if self._on_disk is None:
            self._on_disk = await asyncio.to_thread(lambda: tuple(self._runs_and_plans()))
        for command in (*self._commands(), *self._themes(), *self._on_disk):
            if (score := matcher.match(command.name)) > 0:
                name = command.named(matcher.highlight(command.name))
                first = command.name.lower().startswith(query.lower())  # before those that only contain it
                yield Hit(score + first, name, partial(self._once, command), command.name, command.about)

    async def _once(self, command: Command) -> None:
        if not self._done:
            self._done = True
            ended = command.act()
            if ended is not None and hasattr(ended, "__await__"):
                await ended

    @property
    def _performer(self) -> Performer:
        return cast(Performer, self.app)

    def _commands(self) -> Iterator[Command]:
        app, over = self._performer, self.screen
        if isinstance(over, Over):
            yield from actions(over.PANE, [key for key in table() if over.PANE in key.where], app.perform)
        else:
            hints = [key for key in table() if key.where & ANYWHERE]
            yield from actions(app.step.pane, hints, app.perform, app.main.can)
            for number, step in enumerate(STEPS, 1):
                yield Command(f"Go to {number}: {step.title}", step.question, partial(app.show_step, step))
            code = partial(app.show_step, REVIEW, LINES)
            yield Command("Code: the lines that the script needs", "What to add to the script; for a plain loop as a diff.", code)
            yield Command("Open…", "Open another Plan, configuration or script by its path.", app.opening.ask_path)
            yield Command("Save as…", "Save the Plan under another name.", app.saving.save_as)
            for finding in app.session.state.findings[:FINDINGS]:
                about = partial(app.opening.explain, finding)
                name = ": ".join(filter(None, (f"Finding {finding.code}", finding.path.removeprefix("deepspeed."))))
                yield Command(name, finding.message, about)
        doctor = partial(examine_plan, self.app, app.session.state.plan)
        yield Command("Doctor", "Whether this machine and every host of the Plan is ready.", doctor)
        yield Command("Theme", "Choose other colours; remembered.", partial(search_themes, self.app))
        for one in choosable():
            yield Command(f"Setting: {one.name} ({format_setting(one)})", one.help, partial(app.preferences.choose, one))
        yield Command("Settings…", "The file of settings in your own editor.", app.preferences.edit)
        picture = "Write what is on the screen to a picture (SVG) in the current folder."
        yield Command("Screenshot", picture, partial(take_screenshot, self.app, app.session))

    def _themes(self) -> Iterator[Command]:
        for name in sorted(self.app.available_themes, key=lambda name: name not in OWN):
            yield Command(f"Theme: {name}", "Colours; remembered.", partial(setattr, self.app, "theme", name))

    def _runs_and_plans(self) -> Iterator[Command]:
        from dstui.jobs.store.folder import JobFolder
        from dstui.jobs.store.index import folders
        from dstui.jobs.store.status import current_status
        from dstui.tui.session.drafts import recent_plans

        if isinstance(self.screen, Over):
            return
        for folder in folders()[: -RUNS - 1 : -1]:
            if status := current_status(folder):
                look = partial(self.app.post_message, Launched(JobFolder(folder.path)))
                yield Command(one_line(f"Run: {folder.name} ({status.state})"), one_line(str(folder.path)), look)
        for path in recent_plans(PLANS):
            yield Command(one_line(f"Plan: {path.name}"), one_line(str(path)), partial(self._performer.opening.open_file, Path(path)))


def actions(
    pane: str, keys: Iterable[KeyHint], perform: Callable[[KeyHint], object], can: Callable[[str], bool] = lambda _name: True
) -> Iterator[Command]:
    """Yield each action once, labelled as in this pane: first those that act here now, then those that act elsewhere, then the others.

    `can`: whether an action is enabled now.
    """
    listed: set[str] = set()

    def why_not(key: KeyHint) -> str:
        return "" if pane not in key.where or can(key.name) else WHY_NOT.get(key.name, "no job is open")

    for key in sorted(keys, key=lambda key: (bool(why_not(key)), pane not in key.where, key.name == "step")):
        if key.name and key.name not in LEFT_OUT and key.action not in listed:
            listed.add(key.action)
            why = why_not(key)
            yield Command(f"{key.title} ({key.shown})", key.help, partial(perform, key), why)


def search_themes(app: App[Any]) -> None:
    """Open a palette of the themes."""
    from textual.theme import ThemeProvider

    app.push_screen(Palette(providers=[ThemeProvider], placeholder="Search for themes…"))


STATES = {"fail": "error", "warn": "warning", "ok": "ok"}
"""Verdict of the doctor -> state of a row, most severe first."""


class Examined(TextViewer):
    """The doctor's results."""


def examine_plan(app: App[Any], plan: Plan) -> None:
    """Examine the hosts of a Plan in a thread, and show the results."""
    say(app, "Checking this machine and the hosts of the Plan: this takes as long as importing torch…")
    in_thread(app, partial(_examine, app, plan))


def _examine(app: App[Any], plan: Plan) -> None:
    from dstui.doctor.examine import examine
    from dstui.doctor.gather import gather_cases

    job, cases = gather_cases(plan)
    results = examine(cases, job.problem)
    app.call_later(app.clear_notifications)
    app.call_later(app.push_screen, Examined("Is it ready?", partial(result_rows, results, several=len(cases) > 1)))


def result_rows(results: Sequence[Result], width: int, *, several: bool) -> Iterator[Row]:
    """Yield the verdict, then each result, most severe first. Skipped checks are only counted."""
    counts = {verdict: sum(result.verdict == verdict for result in results) for verdict in (*STATES, "skipped")}
    ready = "Ready." if not counts["fail"] else "Not ready."
    yield row(
        (ready, "error" if counts["fail"] else "ok"),
        f" {counts['ok']} ok, {counts['warn']} warning{'s' * (counts['warn'] != 1)}, {counts['fail']} failed",
    )
    yield BLANK
    for verdict, state in STATES.items():
        for result in (result for result in results if result.verdict == verdict):
            host = f"{result.host}: " if several else ""
            head = (Span(f"{GLYPHS[state]} ", STYLE_OF[state]), Span(f"{result.id:<15} "))
            yield from paragraph(f"{host}{result.observed}", width, first=head)
            if result.fix and verdict != "ok":
                yield from paragraph(f"→ {result.fix}", width, "dim", indent="    ")
