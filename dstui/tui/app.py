"""The app: what is on the screen, which step is shown, and what each key does. Slow work is left to workers."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from textual import events, on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal, Vertical
from textual.driver import Driver
from textual.drivers.linux_driver import LinuxDriver
from textual.errors import NoWidget
from textual.filter import LineFilter
from textual.widgets import Input, Static

from dstui.tui.byname import ByName
from dstui.tui.dialogs.over import Over
from dstui.tui.forms.checks import Checks
from dstui.tui.forms.fields import Field, Option
from dstui.tui.forms.form import Form
from dstui.tui.forms.hint import Hint
from dstui.tui.forms.memory_bars import Memory
from dstui.tui.forms.preview import Preview
from dstui.tui.forms.step_list import StepLine, StepList
from dstui.tui.forms.steps import STEPS, Step, field_of
from dstui.tui.forms.tabs import TABS, TabLine
from dstui.tui.forms.titlebar import TitleBar
from dstui.tui.jobs import Part
from dstui.tui.kit.breakpoints import MINIMUM, PARTS, SIDE, STEPS_AND_FORM, WIDE, shown
from dstui.tui.kit.driver import LastingDriver
from dstui.tui.kit.footer import Footer
from dstui.tui.kit.keys import KEYS, bindings, valid
from dstui.tui.kit.row_list import RowList
from dstui.tui.kit.safe_drawing import SAFELY
from dstui.tui.kit.themes import DARK, LIGHT
from dstui.tui.kit.threads import in_thread
from dstui.tui.session.session import Session
from dstui.tui.session.settings import remember, remembered

if TYPE_CHECKING:
    from dstui.machine.snapshot import Machine
    from dstui.plan import Plan
    from dstui.plan.finding import Fix
    from dstui.run.jobs.folder import JobFolder
    from dstui.tui.session.forecasts import Outlook

TOO_SMALL = f"dstui needs at least {MINIMUM[0]}x{MINIMUM[1]} cells.\nMake the window larger, or press q to leave."
REFERENCE_AFTER = 1.0
"""Seconds after the first frame: importing DeepSpeed takes two of a whole core."""
WHILE_TYPING = ("undo", "redo", "fix", "save", "help", "step", "command_palette", "leave", "escape", "next_pane", "pane_before")
"""What the F-keys and ctrl-keys do while a value is typed."""
WHILE_WATCHING = ("rank", "all_ranks", "metrics", "level", "host", "dedup", "time", "follow", "match", "only_matches", "problem", "jobs")
"""What there must be a job for."""


class DstuiApp(ByName):
    """dstui's screen, in layers: `Documents` does what concerns files, `Jobs` what concerns runs, `Verdicts` what is learnt meanwhile,
    `Unsaved` keeps drafts, `Beginning` opens something to begin with, and `ByName` finds every action."""

    TITLE = "dstui"
    CSS_PATH = Path(__file__).parent / "styles" / "app.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [*bindings()]
    AUTO_FOCUS = "#form-rows"

    def __init__(
        self, plan: Plan | None, path: Path | None, machine: Machine | None, job: JobFolder | None = None, *, reference: bool = True
    ) -> None:
        """`job`: look at it at once. `judge`: let the installed DeepSpeed judge every edit, in a child of 250 MB."""
        super().__init__()
        self.register_theme(DARK)
        self.register_theme(LIGHT)
        self.theme = self._liked_theme()
        self.fresh = plan is None and job is None
        self.job, self.validates = job, reference
        self.store = Session(plan or self.starting_plan(), path, machine, self.redraw_all)
        self.step: Step = STEPS[0]
        self.last_form = self.step
        """Where escape leads back to."""
        self.tab = "form"
        # The parts of the screen, made once and drawn into at any time: a message may come before a part is mounted, or when it is gone.
        self.title_bar, self.step_line, self.tab_line, self.step_list = TitleBar(), StepLine(), TabLine(), StepList()
        self.form, self.hint, self.preview, self.checks, self.footer = Form(self.store), Hint(), Preview(), Checks(), Footer()
        self.memory = Memory()
        self.body, self.middle, self.side = Horizontal(id="body"), Vertical(id="middle"), Vertical(id="side")
        self.done: list[str] = []
        self.leaving = False

    def _liked_theme(self) -> str:
        """What Textual's own variable asks for, else the one that was chosen last."""
        wanted = os.environ.get("TEXTUAL_THEME") or remembered().get("theme")
        return wanted if isinstance(wanted, str) and wanted in self.available_themes else DARK.name

    def _remember_theme(self, name: str) -> None:
        in_thread(self, partial(remember, "theme", name))

    def get_line_filters(self) -> Sequence[LineFilter]:
        """Textual's own, and the one without which nothing goes to the terminal."""
        return [*super().get_line_filters(), SAFELY]

    def get_driver_class(self) -> type[Driver]:
        """Textual's own for this platform, lasting where it is that of a Unix terminal."""
        chosen = super().get_driver_class()
        return LastingDriver if chosen is LinuxDriver else chosen

    def exit(self, result: int | None = None, return_code: int = 0, message: Any = None) -> None:
        """Leave. What still arrives afterwards finds no widgets any more."""
        self.leaving = True
        super().exit(result, return_code, message)

    async def on_event(self, event: events.Event) -> None:
        """What is typed after the end is for nobody, since the screens are being taken away, nor is a click on what has gone already."""
        if self.leaving and isinstance(event, (events.InputEvent, events.Paste)):
            return
        if not (isinstance(event, events.MouseEvent) and self._has_gone(event)):
            await super().on_event(event)

    def _has_gone(self, event: events.MouseEvent) -> bool:
        """Whether what is seen at this place was removed since the last frame, which Textual does not expect."""
        with suppress(NoWidget):
            return self.get_widget_at(event.x, event.y)[0].parent is None
        return False

    # What is on the screen

    def compose(self) -> ComposeResult:
        """What the first frame shows; the rest is mounted after it."""
        yield self.title_bar
        yield self.step_line
        yield self.tab_line
        with self.body:
            yield self.step_list
            with self.middle:
                yield self.form
                yield self.hint
            yield self.side
        yield self.footer
        yield Static(TOO_SMALL, id="too-small", markup=False)

    def on_mount(self) -> None:
        """Draw the form."""
        self.watch(self, "theme", self._remember_theme, init=False)
        self.show_step(self.step)
        self.call_after_refresh(self._second_frame)

    async def _second_frame(self) -> None:
        """What nobody misses in the first frame: consequences, probing, the question what to start from."""
        gc.enable()
        if self.leaving:
            return
        await self.side.mount(self.preview, self.checks)
        await self.middle.mount(self.memory, before=self.hint)
        self.arrange()
        self.start_lookups()
        self.store.follow()
        if self.store.state.machine is None:
            self.probe_machine()
        if self.validates:
            self.set_timer(REFERENCE_AFTER, self.start_reference)
        self.start_keeping()
        if self.job is not None:
            self.watch_job(self.job)
        elif self.fresh:
            self.ask_what_to_open()
        else:
            self.offer_drafts()

    def redraw_all(self) -> None:
        """Everything visible, from the state."""
        if self.leaving or not self.is_running:
            return
        state = self.store.state
        self.title_bar.show(state, self.store.path)
        self.step_list.show(state, self.step)
        self.step_line.show(state, self.step)
        self.tab_line.show(state, self.tab)
        self.preview.show(state)
        self.checks.show(state)
        self.memory.show(state)
        if self.step.pane == "form":
            self.form.show(state)
            self._show_hint()
        else:
            self.show_pane(state)
        self._show_keys()
        self.ask_deepspeed()
        self.lookup_if_edited()
        self.keep_draft()

    @on(RowList.Resized)
    def _resized(self) -> None:
        self.redraw_all()

    def _show_hint(self) -> None:
        self.hint.show(*self.here, self.store.state)

    @property
    def here(self) -> tuple[Field | None, Option | None]:
        """The field under the form's cursor, and the option where the cursor is on one."""
        return self.form.at(self.form.rows.cursor)

    def _show_keys(self) -> None:
        if len(self.screen_stack) != 1:
            return  # a dialog has the keys, or the app is closing
        possible = {key.name for key in KEYS if self.check_action(key.name, ())}
        self.footer.show(valid("typing" if self.typing else self.step.pane, frozenset(possible)))

    @property
    def typing(self) -> bool:
        """Whether letters are text now."""
        return isinstance(self.focused, Input) and len(self.screen_stack) == 1

    def on_descendant_focus(self) -> None:
        """Other keys are valid where the focus is now."""
        self._show_keys()

    # Steps and panes

    def show_step(self, step: Step, path: str = "") -> None:
        """Go to a step, and to the field at `path` in it."""
        self.step = step
        if step.pane == "form":
            self.last_form = step
            self.form.show_step(step, self.store.state, path)
            self.middle.border_title = f"{STEPS.index(step) + 1} · {step.title}"
            self.show_tab("form")
        else:
            self.open_pane(step)
            self.refresh_lookups()
            self.arrange()
        self.redraw_all()

    def arrange(self) -> None:
        """Show the parts that belong on a screen of this size, and hide the others."""
        parts = shown(*self.size, self.step.pane, self.tab, self.step.wide)
        for part in self.screen.query(", ".join(f"#{name}" for name in PARTS)):
            part.display = part.id in parts
        self.side.styles.width = "1fr" if self.narrow else max(SIDE, self.size.width - STEPS_AND_FORM)

    @property
    def narrow(self) -> bool:
        """Whether form, preview and checks are tabs."""
        return self.size.width < WIDE

    def show_part(self, part: Part) -> Part:
        """Mount a further part of the body."""
        if self.body.is_attached:
            self.body.mount(part)
        self.arrange()
        return part

    def on_resize(self) -> None:
        """Another size: other parts may be seen, once the app knows it too."""
        self.call_later(self.arrange)

    def show_tab(self, tab: str) -> None:
        """On a narrow screen, which of the three is seen; everywhere, which has the focus."""
        self.tab = tab
        self.arrange()
        {"form": self.form.rows, "preview": self.preview, "checks": self.checks}[tab].focus()
        self.tab_line.show(self.store.state, tab)

    def jump(self, path: str) -> None:
        """To the field that writes this path; where no form has it, type its value."""
        found = field_of(path, self.store.state)
        if found is None or (found[1].path != path and path not in found[1].owns and self.store.state.plan.get(path, None) is not None):
            self.type_value(path)
        else:
            self.show_step(found[0], found[1].path)

    @on(RowList.Chosen, "#steps")
    def _step_chosen(self, event: RowList.Chosen) -> None:
        self.show_step(next(s for s in STEPS if s.id == event.key))

    @on(RowList.Chosen, "#preview")
    def _line_chosen(self, event: RowList.Chosen) -> None:
        path = event.key[1] if isinstance(event.key, tuple) else ""
        if path:
            self.jump(f"deepspeed.{path}")

    @on(RowList.Chosen, "#checks")
    def _finding_chosen(self, event: RowList.Chosen) -> None:
        if (finding := self.checks.finding(event.key)) is not None:
            self.jump(finding.path)

    @on(RowList.Moved, "#form-rows")
    def _moved(self) -> None:
        self._show_hint()
        self._show_keys()

    @on(TabLine.TabPicked)
    def _tab_picked(self, event: TabLine.TabPicked) -> None:
        self.show_tab(event.tab)

    @on(Footer.Pressed)
    async def _hint_pressed(self, event: Footer.Pressed) -> None:
        await self.run_action(event.action)

    # What the keys do

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:  # noqa: ARG002
        """Whether an action may act now: what lies over the app has its own keys, and so has a line that is being typed."""
        if not any(key.name == action for key in KEYS):
            return True
        over = self.screen_stack[-1] if len(self.screen_stack) > 1 else None
        if over is not None:
            return isinstance(over, Over) and any(over.PANE in key.where for key in KEYS if key.name == action)
        return action in WHILE_TYPING if self.typing else self.can(action)

    def can(self, action: str) -> bool:
        """Whether an action does something now: by the pane it belongs to, and by what there is to act on."""
        if not any(self.step.pane in key.where for key in KEYS if key.name == action):
            return False
        needs: dict[str, Callable[[], bool]] = {
            "undo": lambda: self.store.can_undo,
            "redo": lambda: self.store.can_redo,
            "fix": self._fixable,
            **dict.fromkeys(WHILE_WATCHING, self.watching),
            "bundle": self.watching,
            "reason": self.explained,
            "set_row": lambda: not self.form.on_next,
            "onward": lambda: self.form.on_next,
            "again": self.watching,
            **dict.fromkeys(("stop", "stacks"), self.job_lives),
        }
        return action not in needs or needs[action]()

    def _fixable(self) -> bool:
        if self.step.pane == "run":
            return self.run_pane is not None and self.run_pane.fix is not None
        return any(f.fix is not None for f in self.store.state.findings)

    def action_step(self, by: int) -> None:
        """The next or previous step."""
        at = STEPS.index(self.step) + by
        if 0 <= at < len(STEPS):
            self.show_step(STEPS[at])

    def action_set_row(self) -> None:
        """What Enter does on a row of the form."""
        self.form.rows.action_choose()

    @on(Form.Onward)
    def action_onward(self) -> None:
        """The next step, and there on the row that leads on again; on Review, on the launch."""
        self.action_step(1)
        self.form.rest_on_next()
        if self.step.pane == "review" and self.review is not None:
            self.review.rest_on_launch()

    def action_digit(self, number: int) -> None:
        """A step by its number; on the run, a rank and nothing else."""
        if self.step.pane == "run":
            self.rank_by_digit(number)
        elif 1 <= number <= len(STEPS):
            self.show_step(STEPS[number - 1])

    def action_undo(self) -> None:
        """Take the last edit back."""
        self.form.close()
        self.store.undo()

    def action_redo(self) -> None:
        """Make it again."""
        self.form.close()
        self.store.redo()

    def action_fix(self) -> None:
        """Apply the fix of the finding under the cursor, or of the first that has one."""
        if self.step.pane == "run":
            self.fix_the_plan()
            return
        self.form.close()
        finding = self.checks.to_fix(self.step)
        if finding is None or finding.fix is None:
            self.say("There is no fix to apply.")
        elif finding.fix.removes:
            in_thread(self, partial(self._remove_files, finding.fix))
        elif self.store.apply(finding.fix):
            self.say(f"{finding.code}: {finding.fix.text} (z takes it back)")
        else:
            self.say(f"{finding.fix.text}: this one is yours to do.")

    def action_recommend(self) -> None:
        """The plans that fit, the best first; the one that is chosen becomes the Plan, in one step of undo."""
        self.form.close()
        if outlook := self._outlook():
            from dstui.tui.dialogs.recommended import Recommended

            self.push_screen(Recommended(outlook), self._take_plan)

    def _take_plan(self, fix: Fix | None) -> None:
        if fix is not None and self.store.apply(fix):
            self.say(f"{fix.text} (z takes it back)")

    def action_breakdown(self) -> None:
        """What fills the memory, part by part."""
        if outlook := self._outlook():
            from dstui.tui.dialogs.breakdown import breakdown

            self.push_screen(breakdown(outlook.forecast, self.size.width))

    def _outlook(self) -> Outlook | None:
        """What is forecast; where nothing is, why is said."""
        outlook = self.store.state.outlook
        if outlook is None or outlook.forecast.problem:
            self.say(outlook.forecast.problem if outlook else "Name the model first (model.source or params, in step 2).", "warning")
        return outlook if outlook and not outlook.forecast.problem else None

    def _remove_files(self, fix: Fix) -> None:
        from dstui.run.jobs.op_locks import remove_locks

        self.call_later(self.say, remove_locks(fix.removes))
        self.call_later(self.refresh_lookups)

    def action_find(self) -> None:
        """Find a setting; on the run, search the log."""
        if self.step.pane == "run":
            self.search_log()
            return
        from dstui.tui.dialogs.find import Find

        self.push_screen(Find(self.store.state), lambda path: self.jump(path) if path else None)

    def action_help(self) -> None:
        """The keys, and the field under the cursor."""
        if isinstance(self.screen, Over):
            self.screen.action_help()
            return
        from dstui.tui.dialogs.help import Help

        self.push_screen(Help(self.step.pane, self.here[0] if self.step.pane == "form" else None))

    def action_next_pane(self) -> None:
        """The focus goes to the next pane."""
        self._turn_pane(1)

    def action_pane_before(self) -> None:
        """The focus goes to the pane before."""
        self._turn_pane(-1)

    def _turn_pane(self, by: int) -> None:
        self.form.close()
        if self.step.pane != "form":
            self.screen.focus_next() if by > 0 else self.screen.focus_previous()
        elif self.narrow:
            self.show_tab(TABS[(TABS.index(self.tab) + by) % len(TABS)])
        else:
            panes = [p for p in self.screen.query("#steps, #form-rows, #preview, #checks") if p.visible and p.region]
            at = next((n for n, p in enumerate(panes) if p is self.focused), 0)
            panes[(at + by) % len(panes)].focus()

    def action_escape(self) -> None:
        """Close what is open; else the cursor goes back to the form."""
        if self.step.pane == "form" and not self.form.close():
            self.show_tab("form")
        elif self.step.pane != "form" and not self.back_in_pane():
            self.show_step(self.last_form)

    def say(self, text: str, severity: Any = "information") -> None:
        """A note at the corner for a few seconds."""
        self.notify(text, severity=severity, markup=False)

    def receipt(self) -> list[str]:
        """What was done, for the terminal that is left behind."""
        kept = self.return_code and self.to_keep is not None and not self.store.state.saved
        return [*self.done, *(["unsaved  The edits are kept; dstui offers them when this Plan is opened again."] if kept else [])]
