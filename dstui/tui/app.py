"""The app: two modes that share one session, the results of background services, and the exit. Services and flows do the slow work."""

from __future__ import annotations

import gc
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from textual import events, on
from textual.await_complete import AwaitComplete
from textual.binding import BindingType

from dstui.tui.dialogs.dialog import Over
from dstui.tui.flows.checkpointing import Checkpoints
from dstui.tui.flows.choosing_run import choose_run
from dstui.tui.flows.consent import Trusting
from dstui.tui.flows.launching import Launching, job_lines
from dstui.tui.flows.opening import Opening, starting_plan
from dstui.tui.flows.preferences import Preferences
from dstui.tui.flows.saving import Saving
from dstui.tui.forms.fields import Field
from dstui.tui.forms.steps import MACHINE, STEPS, Step
from dstui.tui.forms.steps.step import REVIEW, RUN
from dstui.tui.kit.footer import Footer
from dstui.tui.kit.keys import APP_KEYS, WHY_NOT, KeyHint, app_bindings, key_of
from dstui.tui.kit.tools import in_thread, say
from dstui.tui.main_screen import MainScreen
from dstui.tui.plan_screen import PlanScreen
from dstui.tui.session import messages
from dstui.tui.session.background import Autosave, LiveGpus, Lookups, Probe, Readiness, Service
from dstui.tui.session.reference_check import ReferenceCheck
from dstui.tui.session.session import HERE, Session
from dstui.tui.session.state import State
from dstui.tui.terminal_app import TerminalApp

if TYPE_CHECKING:
    from textual.command import Provider
    from textual.widget import AwaitMount

    from dstui.documents.open import Opened
    from dstui.jobs.store.folder import JobFolder
    from dstui.machine.snapshot import Machine
    from dstui.plan import Plan
    from dstui.tui.run_screen import RunScreen

PLAN_MODE, RUN_MODE = "plan", "run"
COLLECT = (10_000, 5, 20)
"""Thresholds of the garbage collector: with Python's defaults, a fifth of the time is spent on scanning lasting objects."""

UNHURRIED = 2.0
"""Seconds after the first frame at which the other screens are imported."""
LATER = ("dstui.tui.flows.editing", "dstui.tui.commands", "dstui.tui.run_screen", "dstui.tui.runs.runs_screen")
END_CHECK = 0.5
"""Seconds between two checks whether the job of the session has ended."""


def _commands() -> type[Provider]:
    from dstui.tui.commands import Commands  # imports Textual's palette, which is not open yet

    return Commands


def _import_screens() -> None:
    """Import the screens that are shown later. Their modules take 50 ms each, for which the first key that shows one would wait."""
    for name in LATER:
        import_module(name)


def _leave_with_job(app: DstuiApp) -> None:
    """Exit when the job has ended, for a script that waits. Unsaved edits are kept as a draft, since nobody was asked about them."""
    from dstui.jobs.store.status import has_ended

    if app.job is not None and not app.leaving and has_ended(app.job):
        app.exit(return_code=0 if app.session.state.saved else 1)


def _show_settings(app: DstuiApp) -> None:
    """Draw with the current settings. Before a job was shown, nothing depends on them."""
    if app.run_screen.is_mounted:
        app.run_screen.view.take_settings()
    app.main.draw()


class DstuiApp(TerminalApp):
    """One session of dstui. The mode "plan" exists from the first frame on; "run" is created when it is first shown."""

    TITLE = "dstui"
    BINDINGS: ClassVar[list[BindingType]] = [*app_bindings()]
    COMMANDS: ClassVar[set[type[Provider] | Callable[[], type[Provider]]]] = {_commands}
    DEFAULT_MODE = PLAN_MODE

    def __init__(  # noqa: PLR0913 - all but the first four are named
        self,
        plan: Plan | None,
        path: Path | None,
        machine: Machine | None,
        job: JobFolder | None = None,
        *,
        reference: bool = True,
        opened: Opened | None = None,
        script: str = "",
        until_end: bool = False,
    ) -> None:
        """Create the app. `job`: a job to show at once; `until_end`: exit when that job has ended.

        `reference`: let the installed DeepSpeed judge every edit, in a child of 250 MB.
        `opened`: where the Plan comes from, with what there is to say of that file. `script`: the one to start from.
        """
        if job is not None:
            self.DEFAULT_MODE = RUN_MODE  # type: ignore[misc]  # Textual reads it of the app
        super().__init__()
        self._opened = opened
        self.fresh, self.job, self.until_end = plan is None and job is None, job, until_end
        self.session = Session(plan or starting_plan(), path, machine)
        self.session.subscribe(self._changed)
        self.saving = Saving(self, self.session)
        self.gpus, self.lookups, self.autosave = LiveGpus(self), Lookups(self), Autosave(self, self.session.draft)
        self.reference = ReferenceCheck(self) if reference else None
        self.services: tuple[Service, ...] = (Probe(self), self.gpus, self.lookups, self.autosave)
        self.services += (self.reference,) if self.reference is not None else ()
        self.readiness = Readiness(self, self.session, self.services)
        self.launching = Launching(self, self.session, self.readiness.once_known, lambda: self.show_step(REVIEW))
        self.checkpoints = Checkpoints(self, self.session, lambda: self.show_step(REVIEW))
        self.preferences = Preferences(self, partial(_show_settings, self))
        self.trusting = Trusting(self, self.reference, self.session)
        self.plan_screen = PlanScreen(self, self.session, self.show_step, self.launching)
        self.opening = Opening(self, self.session, self.plan_screen.form.rest_on_next, script, lambda: self.show_step(STEPS[0]))
        self._run_screen: RunScreen | None = None

    # The screens

    async def on_event(self, event: events.Event) -> None:
        """Let the view of a job, which may be at rest, look at the consequences of any input."""
        if self._run_screen is not None and isinstance(event, (events.InputEvent, events.Paste)):
            self._run_screen.view.ticks.wake()
        await super().on_event(event)

    def get_default_screen(self) -> MainScreen:
        """Return the screen of the first frame; that of a mode in MODES would load the CSS a second time."""
        if self.job is None:
            return self.plan_screen
        self.run_screen.attach(self.job)
        return self.run_screen

    @property
    def run_screen(self) -> RunScreen:
        """Return the screen of the mode "run"."""
        if self._run_screen is None:
            from dstui.tui.run_screen import RunScreen  # imports logs and jobs, which the first frame does not need

            self._run_screen = RunScreen(self.session, self.show_step, self.launching, lambda: self.show_step(self.plan_screen.last_form))
        return self._run_screen

    @property
    def main(self) -> MainScreen:
        """Return the screen of the current mode, even if a dialog covers it."""
        bottom = self.screen_stack[0]
        assert isinstance(bottom, MainScreen)
        return bottom

    @property
    def step(self) -> Step:
        """Return the step that is shown."""
        return self.main.step

    def push_screen(self, screen: Any, *args: Any, **named: Any) -> Any:
        """Show a screen, unless it is open already: a key may be pressed again while a thread still prepares what it shows."""
        if isinstance(screen, Over) and any(map(screen.repeats, self.screen_stack)):
            return AwaitComplete()
        return super().push_screen(screen, *args, **named)

    def show_step(self, step: Step, path: str = "") -> None:
        """Show a step, and the field at `path` in it. Does nothing while the screens are being removed."""
        if self.leaving or not self.is_running:
            return
        if not self.screen.is_mounted:  # a palette that is just being opened looks for the screen below it
            self.call_later(self.show_step, step, path)
            return
        if step.pane != "form":
            self.lookups.refresh(self.session.state.plan)
        if step is RUN:
            self.switch_mode(RUN_MODE)
            self.run_screen.enter()
        else:
            mounted = self.switch_mode(PLAN_MODE)
            self.plan_screen.show_step(step, path)
            if not (self.readiness.began and self.plan_screen.preview.is_attached):
                self.call_later(self._begin_forms, mounted)
        self._follow_gpus()

    def _changed(self, _before: State, _now: State) -> None:
        """Draw the visible screen only; the other one is drawn when it is shown."""
        if self.is_running and not self.leaving:
            self.main.draw()

    # Beginning and end

    def on_mount(self) -> None:
        """Draw the form; everything else can wait for the second frame."""
        self.add_mode(PLAN_MODE, lambda: self.plan_screen)
        self.add_mode(RUN_MODE, lambda: self.run_screen)
        self.preferences.remember_theme()
        if self.until_end:
            self.set_interval(END_CHECK, partial(_leave_with_job, self))
        self.call_after_refresh(self._second_frame)

    async def _second_frame(self) -> None:
        """Mount the rest of the forms, start the services, and ask what to start from."""
        gc.freeze()
        gc.set_threshold(*COLLECT)
        gc.enable()
        self.preferences.tell_mistakes()
        if self.leaving or self.job is not None:
            return
        await self._begin_forms()
        if self.leaving:
            return
        if self.fresh:
            self.opening.ask_what_to_open()
        elif self._opened is not None:
            self.opening.begin_with(self._opened)
        else:
            self.opening.offer_drafts()

    async def _begin_forms(self, mounted: AwaitMount | None = None) -> None:
        """Start the services and look-ups of the forms, once. `mounted`: the mount of their screen, if it was not the first one."""
        if mounted is not None:
            await mounted
        await self.plan_screen.mount_second()
        if not self.leaving:
            self.readiness.begin()
            self.set_timer(UNHURRIED, partial(in_thread, self, _import_screens))

    def on_unmount(self) -> None:
        """No child outlives the app; edits are kept where a signal or an error ends the session."""
        self.autosave.end(keep=self.return_code != 0 or self.saving.keeps_edits)
        self.checkpoints.close()
        self.preferences.end()
        for service in self.services:
            service.close()

    def last_words(self) -> None:
        """Keep unsaved edits and end all child processes now: the process may be killed before the app exits. Thread-safe."""
        if self.return_code != 0:  # the user was asked before a normal exit
            self.autosave.keep_now()
        if self.reference is not None:
            self.reference.stop_child()

    def receipt(self) -> list[str]:
        """Return what was done, for the terminal that is left behind."""
        kept = (self.return_code != 0 or self.saving.keeps_edits) and not self.session.state.saved
        unsaved = ["unsaved  The edits are kept; dstui offers them when you open this Plan again."] if kept else []
        return [*self.session.receipt, *(line for folder in self.session.jobs for line in job_lines(folder)), *unsaved]

    # Messages

    @on(messages.Probed)
    def _probed(self, event: messages.Probed) -> None:
        self.session.machine_probed(event.machine)
        self._follow_gpus()
        self.opening.machine_probed(event.machine)

    @on(messages.GpusRefreshed)
    def _gpus_refreshed(self, event: messages.GpusRefreshed) -> None:
        from dstui.machine.live import update_states

        if (machine := self.session.state.machine) is not None and not machine.recorded:
            self.session.machine_probed(update_states(machine, event.states))

    def _follow_gpus(self) -> None:
        machine = self.session.state.machine
        self.gpus.follow(self.step is MACHINE and machine is not None and machine.source == HERE and bool(machine.gpus))

    @on(messages.LookupsDone)
    def _lookups_done(self, event: messages.LookupsDone) -> None:
        self.session.lookups_resolved(event.lookups)

    @on(messages.FilesChanged)
    def _files_changed(self) -> None:
        self.lookups.refresh(self.session.state.plan)

    @on(messages.Validated)
    def _validated(self, event: messages.Validated) -> None:
        self.session.validated(event.text, event.verdict)

    @on(messages.InterpreterNamed)
    def _interpreter_named(self, event: messages.InterpreterNamed) -> None:
        self.trusting.ask(event.plan)

    @on(messages.DraftFailed)
    def _draft_failed(self, event: messages.DraftFailed) -> None:
        say(self, f"Unsaved edits would not survive a crash, since no draft can be written: {event.why}", "warning")

    @on(messages.Launched)
    def _launched(self, event: messages.Launched) -> None:
        self.clear_notifications()
        self.show_step(RUN)
        self.run_screen.attach(event.folder, again=event.again)

    @on(messages.FixApplied)
    def _fix_applied(self, event: messages.FixApplied) -> None:
        self.show_step(REVIEW)
        say(self, f"{event.text}. {key_of('launch')} launches it, {key_of('undo')} undoes it.")

    # Actions of keys

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Return whether an action of the app is allowed now: dialogs and text input have keys of their own."""
        if action not in APP_KEYS or not self.screen_stack:
            return True
        top = self.screen_stack[-1]
        return top.offers(action) if isinstance(top, Over) else top.check_action(action, parameters)

    async def perform(self, key: KeyHint) -> None:
        """Perform a key's action. If it belongs to another pane, show that pane first."""
        top = self.screen
        if isinstance(top, Over) or self.main.can(key.name):
            for node in (*(top.acting if isinstance(top, MainScreen) else (top,)), self):
                if await self.run_action(key.action, node):
                    return
        elif self.step.pane in key.where:
            why = WHY_NOT.get(key.name, "no job is open")
            say(self, f"{key.title} ({key.shown}) is not available now: {why}.", "warning")
        else:
            self.show_step(REVIEW if "review" in key.where else RUN if "run" in key.where else STEPS[0])
            say(self, f"{key.shown} does it here: {key.help}")

    @on(Footer.Pressed)
    async def _hint_pressed(self, event: Footer.Pressed) -> None:
        await self.perform(event.key)

    def action_save(self) -> None:
        """Save the Plan."""
        self.saving.save()

    def action_jobs(self) -> None:
        """Show the table of all runs."""
        choose_run(self)

    def action_checkpoints(self) -> None:
        """Inspect a checkpoint."""
        self.checkpoints.ask()

    def action_leave(self) -> None:
        """Exit, after a question if edits would be lost. A running job continues."""
        self.saving.leave()

    async def action_quit(self) -> None:
        """Exit as `action_leave` does: Textual's own binding leads here."""
        self.action_leave()

    def action_help(self) -> None:
        """Show the keys and the field under the cursor; close the help if it is open."""
        from dstui.tui.dialogs.reading import Help

        top = self.screen
        if isinstance(top, Help):
            top.dismiss(None)
        elif isinstance(top, Over):
            self.push_screen(Help(top.PANE, None))
        else:
            here = self.main.here
            says = here.help(self.session.state) if isinstance(here, Field) and here.help else ""
            self.push_screen(Help(self.step.pane, here, self.session.origin(here), says))

    def action_command_palette(self) -> None:
        """Open the palette."""
        from dstui.tui.commands import Palette

        self.push_screen(Palette())
