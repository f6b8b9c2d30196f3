"""The mode for editing the Plan: the forms of its steps with preview and checks, and the review before a launch."""

from __future__ import annotations

from asyncio import gather
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

from textual import on
from textual.app import App, ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal, Vertical

from dstui.render.config_files import config_name
from dstui.tui.flows.launching import Launching
from dstui.tui.flows.saving import Writing
from dstui.tui.forms.fields import Field
from dstui.tui.forms.form import Form
from dstui.tui.forms.navigation import TABS, StepList, TabLine
from dstui.tui.forms.side_panes import Checks, Hint, Memory, Preview
from dstui.tui.forms.steps import STEPS, Step, field_of
from dstui.tui.forms.steps.step import REVIEW as REVIEW_STEP
from dstui.tui.forms.steps.step import split_model_path
from dstui.tui.kit.breakpoints import WIDE, side_width
from dstui.tui.kit.keys import FORM, REVIEW, bindings, key_of
from dstui.tui.kit.row_list import RowList
from dstui.tui.kit.tools import copy, label, say
from dstui.tui.main_screen import Go, MainScreen
from dstui.tui.session.messages import PathChosen
from dstui.tui.session.session import Session

if TYPE_CHECKING:
    from dstui.plan.finding import Finding
    from dstui.tui.flows.editing import Forecasting
    from dstui.tui.forms.review import Review


class PlanScreen(MainScreen):
    """The screen of steps 1 to 8."""

    BINDINGS: ClassVar[list[BindingType]] = [*bindings(FORM | REVIEW)]
    AUTO_FOCUS = "#form-rows"

    def __init__(self, app: App[int], session: Session, go: Go, launching: Launching) -> None:
        super().__init__(session, go)
        self.launching, self.writing = launching, Writing(app, session)
        self.step = STEPS[0]
        self._wanted = ""
        """The field that was requested last."""
        self.last_form = self.step
        """The step to which escape returns."""
        self.tab_line, self.step_list = TabLine(self.show_tab), StepList(go)
        self.when_small = (self.step_line, self.tab_line, *self.when_small)
        self.form, self.hint, self.preview, self.checks, self.memory = Form(session), Hint(), Preview(), Checks(), Memory()
        self.body, self.middle, self.side = Horizontal(id="body"), Vertical(id="middle"), Vertical(id="side")
        self.review: Review | None = None
        """Mounted when it is first shown."""

        def leads_on() -> bool:  # not while another pane than the form has the focus
            return self.form.on_next and self.focused in (None, self.form.rows)

        self.needs = {
            "undo": lambda: session.can_undo,
            "redo": lambda: session.can_redo,
            "set_row": lambda: not leads_on(),
            "onward": leads_on,
            "other_model": lambda: len(session.state.plan.models) > 1,
            "fix": lambda: any(f.fix is not None for f in session.state.findings),
        }

    @cached_property
    def forecasting(self) -> Forecasting:
        """The dialogs of the forecast."""
        from dstui.tui.flows.editing import Forecasting  # not needed for the first frame, like the other flows of this module

        return Forecasting(self.app, self.session)

    # Content of the screen

    def compose(self) -> ComposeResult:
        """Yield the parts of the first frame. The rest is mounted after it."""
        yield self.title_bar
        with self.body:
            yield self.step_list
            with self.middle:
                yield self.form
                yield self.hint
            yield self.side
        yield self.footer

    def on_mount(self) -> None:
        """Draw the form."""
        self.show_step(self.step, self._wanted)

    async def mount_second(self) -> None:
        """Mount the parts that the first frame does not need, once, unless the screen is already being removed."""
        if self.side.is_attached and self.middle.is_attached and not self.preview.is_attached:
            await gather(self.side.mount(self.preview, self.checks), self.middle.mount(self.memory, before=self.hint))
            self.show_parts()

    def draw(self) -> None:
        """Draw everything visible from the state."""
        super().draw()
        state = self.session.state
        self.step_list.show(state, self.step)
        self.tab_line.show(state, self.tab)
        self.preview.show(state)
        self.checks.show(state)
        self.memory.show(state)
        if self.step.pane == "form":
            model = f" · {state.plan.focus}" if state.plan.focus else ""
            label(self.middle, f"{STEPS.index(self.step) + 1} · {self.step.title}{model}")
            self.form.show(state)
        elif self.review is not None:
            self.review.show(state, self.session.path)
        self.draw_cursor()

    @on(RowList.Moved, "#form-rows")
    def draw_cursor(self) -> None:
        """Draw the parts that depend on the cursor."""
        if self.step.pane == "form":
            self.hint.show(*self.form.at(self.form.rows.cursor), self.session.state)
        self.show_keys()

    def show_parts(self) -> None:
        """Show the parts that belong on a screen of this size, and hide the others."""
        super().show_parts()
        self.side.styles.width = side_width(self.app.size.width)

    @property
    def here(self) -> Field | Finding | None:
        """The field under the form's cursor; the finding under that of the checks, while they have the focus."""
        if self.checks.has_focus and (finding := self.checks.finding(self.checks.cursor)) is not None:
            return finding
        return self.form.here if self.step.pane == "form" else None

    # Steps and panes

    def show_step(self, step: Step, path: str = "") -> None:
        """Show a step, and the field at `path` in it, as soon as the screen is mounted.

        In the review `path` is the name of a file or a row.
        """
        self.step, self._wanted = step, path
        if not self.body.is_attached:
            return
        if step.pane == "form":
            self.last_form = step
            self.form.show_step(step, self.session.state, path)
            self.show_tab("form")
        else:
            self.review = self.review or _mount_review(self.body)
            self.review.open(self.session.state.plan, path)
            self.show_parts()
        if self.app.is_running:
            self.draw()

    def show_tab(self, tab: str) -> None:
        """Show one of the three tabs on a narrow screen; move the focus there on any screen."""
        self.tab = tab
        self.show_parts()
        {"form": self.form.rows, "preview": self.preview, "checks": self.checks}[tab].focus()
        self.tab_line.show(self.session.state, tab)

    @on(PathChosen)
    def jump(self, chosen: PathChosen) -> None:
        """Show the field that writes a path; if no form has one, ask for its value."""
        model, path = split_model_path(chosen.path)
        if model:
            self.session.select_model(model)
        state = self.session.state
        found = field_of(path, state)
        if found is None or (found[1].path != path and path not in found[1].owns and state.plan.get(path, None) is not None):
            from dstui.tui.flows.editing import TypingKeys

            TypingKeys(self.app, self.session).ask(path)
        else:
            self.show_step(found[0], found[1].path)

    # Actions of keys

    def action_set_row(self) -> None:
        """Set, open or go to the row under the cursor."""
        (self.focused if isinstance(self.focused, RowList) else self.form.rows).action_choose()

    @on(Form.Onward)
    def action_onward(self) -> None:
        """Show the next step with the cursor on the row that leads on; on Review, move the cursor to the launch."""
        self.action_step(1)
        self.form.rest_on_next()
        if self.step.pane == "review" and self.review is not None:
            self.review.rest_on_launch()
            self.launching.led_to_review()

    def action_undo(self) -> None:
        """Undo the last edit."""
        self.form.close()
        self.session.undo()

    def action_redo(self) -> None:
        """Redo the last edit that was undone."""
        self.form.close()
        self.session.redo()

    def action_fix(self) -> None:
        """Apply the fix of the finding under the cursor, or of the first that has one; where it is to adapt the script, show that."""
        self.form.close()
        finding = self.checks.to_fix(self.step)
        by_hand = finding is None or (finding.path == "job.script" and finding.fix is not None and not finding.fix.by_key)
        if by_hand and (adapted := self.writing.adapted_name()):
            self.show_adapted(adapted)
        else:
            from dstui.tui.flows.editing import Fixing

            Fixing(self.app, self.session).fix(finding)

    def show_adapted(self, name: str) -> None:
        """Show the adapted script in Review, where Enter writes it."""
        from dstui.tui.forms.review import WRITE_SCRIPT

        self.go(REVIEW_STEP)
        if self.review is not None:
            self.review.names.cursor = WRITE_SCRIPT
        say(self.app, f"Enter writes {name}, which the Plan then trains; the script stays as it is.")

    def action_other_model(self) -> None:
        """Select the next of several models."""
        self.form.close()
        names = list(self.session.state.plan.models)
        at = names.index(self.session.state.plan.focus) if self.session.state.plan.focus in names else -1
        self.session.select_model(names[(at + 1) % len(names)])

    def action_add_model(self) -> None:
        """Add a model to the run."""
        self.form.close()
        from dstui.tui.flows.editing import AddingModels

        AddingModels(self.app, self.session).ask()

    def action_own_editor(self) -> None:
        """Open the Plan in the user's own editor, at the line of the field under the cursor."""
        from dstui.tui.flows.own_editor import OwnEditor  # starts programs, which few sessions need

        OwnEditor(self.app, self.session).open(self.here.path if self.here is not None else "")

    def action_complete(self, hole: str) -> None:
        """Ask for the value of a hole of the Plan; without one, write the script with DeepSpeed's lines to a new file."""
        if not hole:
            self.writing.write_script()
            return
        from dstui.tui.flows.editing import FillingHoles

        FillingHoles(self.app, self.session).ask(hole)

    def action_recommend(self, elsewhere: int = 0) -> None:
        """Show the plans that fit, the best first; `elsewhere`: ask for other hardware first."""
        self.form.close()
        if elsewhere:
            self.forecasting.plan_elsewhere()
        else:
            self.forecasting.recommend()

    def action_breakdown(self) -> None:
        """Show what fills the memory, part by part."""
        self.forecasting.break_down()

    def action_find(self) -> None:
        """Find a setting."""
        from dstui.tui.dialogs.pick import Find

        self.app.push_screen(Find(self.session.state), lambda path: self.jump(PathChosen(path)) if path else None)

    def action_launch(self) -> None:
        """Start the job, detached; from a form show Review first: nothing is launched unseen."""
        if self.step is REVIEW_STEP:
            self.launching.launch_reviewed()
        else:
            self.launching.led_to_review()
            self.go(REVIEW_STEP)
            say(self.app, f"{key_of('launch')} again launches this.")

    def action_probe(self) -> None:
        """Show what DeepSpeed makes of this Plan, by running its ranks up to deepspeed.initialize."""
        self.launching.probe()

    def action_write(self) -> None:
        """Write ds_config.json, the command and the other files to a folder."""
        self.writing.ask()

    def action_copy(self) -> None:
        """Copy the chosen file, or ds_config.json."""
        if self.step.pane == "review" and self.review is not None:
            name, text = self.review.chosen
            copy(self.app, text, name)
        else:
            copy(self.app, "\n".join(line.text for line in self.session.state.lines) + "\n", config_name(self.session.state.plan.focus))

    def action_pane(self, by: int) -> None:
        """Move the focus to the next or previous pane."""
        self.form.close()
        if self.step.pane != "form":
            super().action_pane(by)
        elif self.app.size.width < WIDE:
            self.show_tab(TABS[(TABS.index(self.tab) + by) % len(TABS)])
        else:
            panes = [p for p in self.query("#steps, #form-rows, #preview, #checks") if p.visible and p.region]
            at = next((n for n, p in enumerate(panes) if p is self.focused), 0)
            panes[(at + by) % len(panes)].focus()

    def action_escape(self) -> None:
        """Close what is open; else move the cursor back to the form, on Review to the list of names first."""
        if self.step.pane == "form":
            if not self.form.close():
                self.show_tab("form")
        elif self.review is not None and self.focused is not self.review.names:
            self.review.names.focus()
        else:
            self.show_step(self.last_form)


def _mount_review(body: Horizontal) -> Review:
    """Return the review; it is mounted when it is first shown."""
    from dstui.tui.forms.review import Review

    review = Review()
    body.mount(review)
    return review
