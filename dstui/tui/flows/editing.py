"""Edits that need a question: the value of any key, another model, the fix of a finding, a recommended plan, or its measurement."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from textual.app import App, SuspendNotSupported

from dstui.base.files import FileProblem, read_text
from dstui.plan import PlanError
from dstui.plan.another_model import add_model, name_problem
from dstui.plan.load import MAX_MODELS
from dstui.tui.dialogs.dialog import Answer, Ask, Prompt
from dstui.tui.forms.fields import editable_text, format_value, help_for
from dstui.tui.kit.keys import key_of
from dstui.tui.kit.tools import in_thread, lend_terminal, say
from dstui.tui.session.messages import FilesChanged
from dstui.tui.session.session import Session
from dstui.tui.session.state import UNSET

if TYPE_CHECKING:
    from dstui.machine.snapshot import Machine
    from dstui.plan.finding import Finding, Fix
    from dstui.tui.session.forecasts import Outlook


def yaml_value(text: str) -> Any:
    """Parse typed text as YAML does: 5e8 is a number, [1, 2] a list. Raises DocumentError."""
    from dstui.plan.document import Document

    return Document(f"v: {text}").data["v"]


def yaml_problem(text: str) -> str:
    """Return why a text is no YAML value, or ""."""
    from dstui.plan.document import DocumentError

    try:
        yaml_value(text)
    except DocumentError as error:
        return error.message
    return ""


class TypingKeys:
    """Ask for the value of any key of the Plan, and write it."""

    def __init__(self, app: App[int], session: Session) -> None:
        self._app, self._session = app, session

    def ask(self, path: str) -> None:
        """Ask for the value at this dotted path."""
        value = self._session.state.plan.get(path, UNSET)
        text = f"{path.removeprefix('deepspeed.')}\n{help_for(path)}\nA YAML value; empty removes the key:"
        self._app.push_screen(Prompt("Set a key", text, editable_text(value), yaml_problem), partial(self._write, path))

    def _write(self, path: str, text: str | None) -> None:
        if text is None:
            return
        if self._session.edit((path, yaml_value(text) if text.strip() else UNSET)):
            say(self._app, f"{path.removeprefix('deepspeed.')}: {format_value(self._session.state.plan.get(path, UNSET))}")
        else:
            say(self._app, self._session.state.refusal[1], "error")


class FillingHoles:
    """Ask for the value of a hole, and write it wherever the Plan has that hole."""

    def __init__(self, app: App[int], session: Session) -> None:
        self._app, self._session = app, session

    def ask(self, name: str) -> None:
        """Ask for the value of ${name}."""
        from dstui.plan.holes import find_holes

        places = [hole.path for hole in find_holes(self._session.state.plan) if hole.name == name]
        text = f"${{{name}}} is used in {', '.join(places[:PLACES])}. Its value:"
        prompt = Prompt("Fill a hole", text, "", lambda given: "" if given.strip() else "a value, or Esc")
        self._app.push_screen(prompt, partial(self._fill, name))

    def _fill(self, name: str, text: str | None) -> None:
        from dstui.plan.holes import fill_holes

        if text is None:
            return
        try:
            self._session.replace(fill_holes(self._session.state.plan, {name: text.strip()}).text)
        except PlanError as error:
            say(self._app, str(error), "error")


PLACES = 3
"""Places of a hole that are named."""
TITLE = "Add a model"
ROLES = [
    Answer("t", "train it: it has its own optimizer", "train"),
    Answer("i", "inference only, as a teacher: stage 3, no optimizer", "inference"),
]


class AddingModels:
    """Add a model to the Plan, as one undo step."""

    def __init__(self, app: App[Any], session: Session) -> None:
        self._app, self._session = app, session

    def ask(self) -> None:
        """Ask for the names of the models, including that of the present one if it has none."""
        models = self._session.state.plan.models
        if len(models) >= MAX_MODELS:
            say(self._app, f"{MAX_MODELS} models are the limit of one run.", "warning")
        elif models:
            self._ask_name("")
        else:
            text = "Its configuration becomes that of a named model, in its own file. The name of the present model:"
            self._app.push_screen(Prompt(TITLE, text, "student", lambda name: name_problem(name, {})), self._ask_name)

    def _ask_name(self, present: str | None) -> None:
        if present is None:
            return
        taken = dict.fromkeys((present, *self._session.state.plan.models))
        prompt = Prompt(
            TITLE, "The name of the other model:", "" if "teacher" in taken else "teacher", lambda name: name_problem(name, taken)
        )
        self._app.push_screen(prompt, partial(self._ask_role, present))

    def _ask_role(self, present: str, name: str | None) -> None:
        if name is not None:
            self._app.push_screen(Ask(TITLE, f"How is {name} used?", ROLES), partial(self._add, present, name))

    def _add(self, present: str, name: str, role: str | None) -> None:
        if role is None:
            return
        try:
            self._session.replace(add_model(self._session.state.plan, name, role, present).text)
        except PlanError as error:
            say(self._app, str(error), "error")
            return
        self._session.select_model(name)
        say(self._app, f"{name} has its own configuration; O switches to the next model.")


class Fixing:
    """Apply a fix, and tell the user what was changed. Posts FilesChanged if it changed files."""

    def __init__(self, app: App[int], session: Session) -> None:
        self._app, self._session = app, session

    def fix(self, finding: Finding | None) -> None:
        """Apply the fix of a finding; None if no finding has one."""
        if finding is None or finding.fix is None:
            say(self._app, "There is no fix to apply.")
        elif finding.fix.removes:
            in_thread(self._app, partial(self._remove_files, finding.fix))
        elif self._session.apply(finding.fix):
            say(self._app, f"{finding.code}: {finding.fix.text} ({key_of('undo')} undoes it)")
        else:
            say(self._app, f"{finding.fix.text}: do this by hand.")

    def _remove_files(self, fix: Fix) -> None:
        from dstui.jobs.store.op_locks import remove_locks

        self._app.call_later(say, self._app, remove_locks(fix.removes))
        self._app.post_message(FilesChanged())


def machine_by_words(text: str) -> Machine:
    """Return the machine that a description such as `8xH100-80 ib-400` names. Raises HardwareProblem."""
    from dstui.forecast.hardware import named_machine

    gpus, _space, link = text.strip().partition(" ")
    return named_machine(gpus, link=link.strip() or None)


def _hardware_problem(text: str) -> str:
    from dstui.forecast.hardware import HardwareProblem

    try:
        machine_by_words(text) if text.strip() else None
    except HardwareProblem as problem:
        return str(problem)
    return ""


class Forecasting:
    """Shows the forecast in dialogs, or why there is none."""

    def __init__(self, app: App[int], session: Session) -> None:
        self._app, self._session = app, session
        self._here: Machine | None = None
        """This machine, while the Plan is made for another one."""
        self._elsewhere: set[str] = set()
        """The sources of machines that were given by name."""

    def recommend(self) -> None:
        """Show the plans that fit, the best first. The chosen one becomes the Plan in one undo step."""
        if outlook := self._outlook():
            from dstui.tui.dialogs.forecast_dialogs import Recommended

            self._app.push_screen(Recommended(outlook), self._take)

    def _take(self, fix: Fix | str | None) -> None:
        if isinstance(fix, str):
            Measuring(self._app, self._session).ask()
        elif fix is not None and self._session.apply(fix):
            say(self._app, f"{fix.text} ({key_of('undo')} undoes it)")

    def break_down(self) -> None:
        """Show what fills the memory, part by part."""
        if outlook := self._outlook():
            from dstui.tui.dialogs.forecast_dialogs import breakdown

            self._app.push_screen(breakdown(outlook))

    def plan_elsewhere(self) -> None:
        """Ask for hardware by name and plan for it as if it were here. Nothing is launched on it. An empty line returns to this machine."""
        text = "Number and kind of the GPUs of a node, and the network: 8xH100-80 ib-400. Empty: this machine."
        self._app.push_screen(Prompt("Plan for another machine", text, "", _hardware_problem), self._plan_on)

    def _plan_on(self, text: str | None) -> None:
        machine = self._session.state.machine
        if text is None or machine is None:
            return
        if machine.source not in self._elsewhere:
            self._here = machine
        if not text.strip():
            self._session.machine_probed(self._here or machine)
            return
        named = machine_by_words(text)
        self._elsewhere.add(named.source)
        self._session.machine_probed(named)
        say(self._app, f"Planning for {named.source}. H and an empty line return to this machine.")

    def _outlook(self) -> Outlook | None:
        outlook = self._session.state.outlook
        if outlook is None or outlook.forecast.problem:
            say(self._app, outlook.forecast.problem if outlook else "Set the model first (model.source or params, in step 2).", "warning")
        return outlook if outlook and not outlook.forecast.problem else None


ABOUT = (
    "Each of the best plans runs for a few steps as its own job, one after the other, ten minutes at most. The script is started as "
    "it is, and its outputs go elsewhere. Ctrl-C stops; the next time it resumes."
)


class Measuring:
    """Ask, hand the terminal to `dstui tune`, and take the Plan that it found."""

    def __init__(self, app: App[Any], session: Session) -> None:
        self._app, self._session = app, session

    def ask(self) -> None:
        """Ask whether the jobs may start."""
        self._session.settle()
        if self._session.path is None or not self._session.state.saved:
            say(self._app, "Save the Plan first (F2): what is measured is its file.", "warning")
            return
        answers = [Answer("n", "no", False), Answer("y", "start the short jobs", True)]
        self._app.push_screen(Ask("Measure the best plans here", ABOUT, answers), self._measure)

    def _measure(self, yes: bool | None) -> None:
        if not yes or self._session.path is None:
            return
        with tempfile.TemporaryDirectory(prefix="dstui-") as folder:
            won = Path(folder) / self._session.path.name
            command = [sys.executable, "-m", "dstui", "tune", str(self._session.path), "-o", str(won)]
            try:
                with lend_terminal(self._app):
                    ended = subprocess.run(command, check=False).returncode
                    if sys.stdin.isatty():
                        input("Enter goes back to the Plan. ")
                self._take(won, ended)
            except SuspendNotSupported:
                say(self._app, "Measuring needs its own terminal: run dstui tune in a shell.", "warning")
            except (OSError, FileProblem, PlanError, EOFError, KeyboardInterrupt) as error:
                say(self._app, f"The Plan is as it was: {error}", "error")

    def _take(self, won: Path, ended: int) -> None:
        if not won.exists():
            say(self._app, f"Nothing was chosen: dstui tune ended with status {ended}. The Plan is as it was.", "warning")
        elif (text := read_text(won)) == self._session.state.plan.text:
            say(self._app, "The Plan is unchanged: no measured plan is clearly faster.")
        else:
            self._session.replace(text)
            say(self._app, "The Plan is now the fastest measured one (z undoes it).")
