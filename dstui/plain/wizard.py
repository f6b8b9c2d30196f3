"""Ask where to start, then the wizard's steps as prompts, one after another, then the review.

One can start from unsaved edits, the script in this folder with its configuration, a recipe, a file, or a shipped Plan.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from dstui.base.files import FileProblem
from dstui.documents.layers import load_layered
from dstui.documents.open import Opened, open_document, plan_of_both
from dstui.documents.plan_files import BLANK_PLAN, SHIPPED
from dstui.plain.answers import ask_field, ask_setting, describe, explain, finding_text
from dstui.plain.console import Back, Console, Ended, Leave, number_in
from dstui.plain.review import Review
from dstui.plain.saving import keep_draft, leaves, offer_draft
from dstui.plan import PlanError
from dstui.tui.forms.fields import why_fixed
from dstui.tui.forms.steps import STEPS, step_of
from dstui.tui.session.file_lookups import resolve_all
from dstui.tui.session.folder_scan import scan_folder
from dstui.tui.session.session import Session

if TYPE_CHECKING:
    from dstui.documents.open import Opened
    from dstui.machine.snapshot import Machine
    from dstui.plain.console import Console
    from dstui.tui.forms.fields import Field
    from dstui.tui.forms.steps import Step
    from dstui.tui.session.drafts import Draft
    from dstui.tui.session.state import State

ASKED = tuple(step for step in STEPS if step.pane == "form")
WELCOME = "dstui, in lines. At every prompt: Enter keeps the current value, ? explains, b goes back, q leaves."
HELP = (
    "Enter goes on to the next step, b to the step before.",
    "A number changes the setting with that number; ? and a number explains it.",
    "l lists the settings of this step again; step and a number goes to that step; r goes to the review.",
    "u undoes the last edit. set PATH=VALUE writes any key: set deepspeed.gradient_clipping=1.0",
)
REVIEW = len(ASKED)
"""The position of the review among the steps, counted from 0."""


class Wizard:
    """One session of the plain interface."""

    def __init__(self) -> None:
        self.console = Console()

    def run(self, opened: Opened | None, machine: Machine | None, script: str) -> int:
        """Ask until the user leaves or standard input ends. Return the exit status."""
        console = self.console
        console.say(WELCOME)
        try:
            self._begin(opened, machine, script)
            console.can_go_back = True
            self._ask_steps()
        except Leave:  # the user left before anything was opened
            return 0
        except Ended:
            return self._end()
        except KeyboardInterrupt:
            self._end()
            raise
        return 0

    def _begin(self, opened: Opened | None, machine: Machine | None, script: str) -> None:
        from dstui.machine.report import summarise

        if machine is None:
            from dstui.machine.probe import probe

            machine = probe()
        self.console.say(summarise(machine))
        chosen = opened or ask_start(self.console, machine, script)
        self.session = Session(chosen.plan, chosen.path, machine)
        self.console.say(f"The Plan: {chosen.plan.name or chosen.plan.source}", *chosen.notes)
        self.console.say(*(f"{one.severity} {one.code}, line {one.line}: {one.message}" for one in chosen.findings))
        offer_draft(self.console, self.session)
        self._look()
        self.session.subscribe(lambda before, now: keep_draft(self.session) if now.plan is not before.plan else None)

    def _end(self) -> int:
        """Report what happened to unsaved edits after the end of standard input. Return the exit status."""
        session = getattr(self, "session", None)
        if session is None or session.state.saved:
            return 0
        keep_draft(session)
        self.console.say("The edits are not saved; they are kept, and offered at the next start.")
        return 1

    def _look(self) -> None:
        """Read the files around the Plan again, since an edit may refer to other files."""
        self.session.lookups_resolved(resolve_all(self.session.state.plan))

    def _ask_steps(self) -> None:
        """Go through the steps and the review, in any order, until the user leaves."""
        at: int | None = 0
        while at is not None:
            at = self._ask_at(at)

    def _ask_at(self, at: int) -> int | None:
        """Ask for a step or the review. Return the number of the next one, or None to leave."""
        try:
            return Review(self.console, self.session).ask() if at == REVIEW else self._ask_step(at)
        except Back:
            return max(at - 1, 0)
        except Leave:
            return None if leaves(self.console, self.session) else at

    def _ask_step(self, at: int) -> int:
        """Ask for one step; return the number of the next one."""
        step, console = ASKED[at], self.console
        self._list(step, at)
        while True:
            where = f"to step {at + 2}, {ASKED[at + 1].title}" if at + 1 < REVIEW else "to the review"
            answer = console.ask(f"{step.title}: a number to change a setting, Enter to go on {where}, ? for help:")
            fields = fields_of(step, self.session.state)
            word, _, rest = answer.partition(" ")
            number = number_in(rest.strip() if word in ("?", "step") else word, max(len(fields), REVIEW + 1))
            if not answer:
                return at + 1
            if word == "r":
                return REVIEW
            if word == "step" and number is not None and number <= REVIEW:
                return number
            if word == "?":
                known = number is not None and number < len(fields)
                console.say(*(explain(fields[number], self.session.state) if known and number is not None else self._help(step)))
            elif word == "l":
                self._list(step, at)
            elif word == "u":
                console.say("The last edit is undone." if self.session.undo() else "There is nothing to undo.")
            elif word == "set":
                self._edit(partial(ask_setting, console, self.session, rest.strip()))
            elif number is not None and number < len(fields):
                self._edit(partial(ask_field, console, self.session, fields[number]))
            else:
                numbers = f"A number from 1 to {len(fields)}" if len(fields) > 1 else "The number 1"
                console.say(f"{numbers}, Enter, b, r, l, u, q, set PATH=VALUE, step and a number up to {REVIEW + 1}, or ? for help.")

    def _edit(self, ask: Callable[[], None]) -> None:
        """Ask for an edit, and say what is wrong since then."""
        before = {finding.message for finding in self.session.state.findings}
        try:
            ask()
        except Back:
            return
        self._look()
        for finding in self.session.state.findings:
            if finding.message not in before and finding.severity != "info":
                self.console.say(finding_text(finding))

    def _list(self, step: Step, at: int) -> None:
        state = self.session.state
        self.console.say("", f"Step {at + 1} of {REVIEW}: {step.title}. {step.question}")
        self.console.say(*field_lines(step, state))
        for finding in state.findings:
            if step_of(finding.path) is step and finding.severity != "info":
                self.console.say(finding_text(finding))

    def _help(self, step: Step) -> tuple[str, ...]:
        """Return the commands that a step accepts, and its help."""
        state = self.session.state
        below = step.below(state, [f for f in state.findings if step_of(f.path) is step], 76) if step.below else []
        return (*HELP, *(" ".join(row.text.split()) for row in below if row.text.strip()))


def field_lines(step: Step, state: State) -> Iterator[str]:
    """Yield the settings of a step that can be changed, each with its number, and the others grouped by the reason."""
    closed: dict[str, list[str]] = {}
    title = ""
    for number, field in enumerate(fields_of(step, state), 1):
        title = field.title or title
        if why := why_fixed(field, state):
            closed.setdefault(why, []).append(f"{number} {field.label}")
            continue
        if title:
            yield f"{title}:"
        title = ""
        yield f"  {number}. {describe(field, state)}"
    yield from (f"Cannot be set, {why}: {', '.join(labels)}" for why, labels in closed.items())


def fields_of(step: Step, state: State) -> tuple[Field, ...]:
    """Return the fields of a step that can be asked for in lines. Grids of slots are left out: include and exclude set the same."""
    return tuple(field for field in step.fields(state) if field.kind != "grid")


Way = tuple[str, Callable[[], Opened]]
"""The text of an option, and the function that opens it."""


def ask_start(console: Console, machine: Machine, script: str) -> Opened:
    """Ask until a start could be opened. `script`: the script that the user named, if any."""
    ways = list(_ways(machine, script))
    while True:
        chosen = console.choose("What do you want to start from?", [label for label, _ in ways], 0)
        try:
            return ways[chosen][1]()
        except (FileProblem, PlanError) as problem:
            console.say(str(problem))


def _ways(machine: Machine, script: str) -> Iterator[Way]:
    from dstui.adopt.recipes import recipes

    found = scan_folder(script)
    for draft in found.drafts:
        yield f"the unsaved edits of {time.strftime('%Y-%m-%d %H:%M', time.localtime(draft.at))}", partial(_open_draft, draft)
    if found.scripts:
        first = found.scripts[0]
        for name in found.configurations:
            yield f"{first.name} with {name}", partial(plan_of_both, name, first.name)
        for recipe in recipes(first, machine):
            yield f"{first.name} with {recipe.name}: {recipe.says}", partial(_open_text, recipe.text)
    for name in found.documents:
        yield f"the file {name}", partial(open_document, name)
    shipped = [(f"the shipped Plan {name}: {purpose}", partial(open_document, name)) for name, purpose in SHIPPED.items()]
    yield shipped[0]  # what trains anywhere is what Enter takes in an empty folder
    yield "a blank Plan", partial(_open_text, BLANK_PLAN)
    yield from shipped[1:]


def _open_text(text: str) -> Opened:
    return Opened(load_layered(text, "plan.yaml", str(Path.cwd())), None)


def _open_draft(draft: Draft) -> Opened:
    """Open the Plan of a draft. From then on, this session keeps the draft."""
    plan = load_layered(draft.text, draft.source, draft.base)
    draft.forget()
    return Opened(plan, None)
