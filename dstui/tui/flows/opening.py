"""The beginning of a session: with a file and its draft, or with a choice of what the current folder contains."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from socket import gethostname
from typing import TYPE_CHECKING

from textual.app import App

from dstui.base.files import FileProblem, is_file, read_text, typed_path
from dstui.documents.layers import Template, load_layered
from dstui.documents.plan_files import BLANK_PLAN, find_plan, read_plan
from dstui.plan import Plan, PlanError
from dstui.tui.dialogs.dialog import WIDTH, Answer, Ask, Prompt
from dstui.tui.kit.keys import key_of
from dstui.tui.kit.text_row import BLANK, Row, fit, row
from dstui.tui.kit.tools import afterwards, in_thread, say
from dstui.tui.session.drafts import Draft, document_of, left_behind, take_over
from dstui.tui.session.session import Session
from dstui.tui.session.state import State

if TYPE_CHECKING:
    from dstui.adopt.recipes import Recipe
    from dstui.documents.open import Opened
    from dstui.machine.snapshot import Machine
    from dstui.plan.finding import Finding
    from dstui.tui.dialogs.welcome import Both, Start
    from dstui.tui.session.folder_scan import FolderContents

SHIPPED_PLANS = "shipped Plans"
"""The answer that asks for one of dstui's own Plans."""
LINES = 12
"""Changed lines of a draft that are shown."""
NOTES = 4
"""Remarks about changes in the opened file that are shown."""


def starting_plan() -> Plan:
    """Return the Plan that is shown until one is chosen: the shipped quickstart."""
    return read_plan(find_plan("quickstart"))


class Opening:
    """Ask what to start from, open it, and offer the unsaved edits that an earlier session left."""

    def __init__(
        self,
        app: App[int],
        session: Session,
        begun: Callable[[], object],
        script: str = "",
        show_forms: Callable[[], object] = lambda: None,
    ) -> None:
        """`begun` is called as soon as something was chosen; `script`: the one that was named, of all in the folder."""
        self._script, self._show_forms = script, show_forms
        self._app, self._session, self._begun = app, session, begun
        self._start: Start | None = None
        self._found: FolderContents | None = None
        self._noted: Path | None = None
        session.subscribe(self._note)

    def _note(self, _before: State, _now: State) -> None:
        """Remember the file that is open, once."""
        path = self._session.path
        if path is not None and path != self._noted:
            from dstui.tui.session.drafts import note_plan

            self._noted = path
            in_thread(self._app, partial(note_plan, path.absolute()))

    def ask_what_to_open(self) -> None:
        """Scan the folder for what can be opened, and ask; for a session without a file."""
        in_thread(self._app, self._scan_folder)

    def _scan_folder(self) -> None:
        from dstui.tui.session.folder_scan import scan_folder  # imports the machine's module, which the first frame does not need

        self._app.call_later(self._ask, scan_folder(self._script))

    def _ask(self, found: FolderContents) -> None:
        from dstui.tui.dialogs.welcome import Start

        self._found = found
        self._start = Start(found, self._session.state.machine)
        self._app.push_screen(self._start, self._open)

    def machine_probed(self, machine: Machine) -> None:
        """Update the recipes, which depend on the machine."""
        if self._start is not None and self._app.screen is self._start:
            self._start.show(machine)

    def _open(self, chosen: str | Both | Recipe | Draft | Template | None) -> None:
        """Open what was chosen on the start screen; keep the quickstart if nothing was."""
        if chosen is None:
            return
        if chosen == SHIPPED_PLANS:
            self._ask_which_shipped()
            return
        self._begun()
        if chosen == "quickstart":
            return
        try:
            opened = opened_as(chosen)
        except (FileProblem, PlanError) as error:
            say(self._app, str(error), "error")
            return
        self._session.open(opened.plan, opened.path)
        if isinstance(chosen, Draft):
            tell_of(self._app, opened)
            self._resume(chosen, True)
        else:
            self.begin_with(opened)

    # A file by its name

    def ask_path(self) -> None:
        """Ask for the path of a Plan, a configuration or a script, and open it."""
        text = "A Plan, a ds_config.json, an accelerate YAML or a script, relative to the current folder:"
        self._app.push_screen(Prompt("Open", text, "", _file_problem), lambda name: self.open_file(typed_path(name)) if name else None)

    def open_file(self, path: Path) -> None:
        """Open a file in place of what is open; asks where edits would be lost."""
        if self._session.state.saved:
            self._read(path)
            return
        answers = [Answer("n", "no, keep this one", False), Answer("o", "open it, and discard the edits", True)]
        text = f"The open Plan has unsaved edits; {path} would replace it."
        self._app.push_screen(Ask("Not saved", text, answers), lambda yes: self._read(path) if yes else None)

    def _read(self, path: Path) -> None:
        afterwards(self._app, partial(_opened_or_why, str(path)), self._take)

    def _take(self, opened: Opened | str) -> None:
        if isinstance(opened, str):
            say(self._app, opened, "error")
            return
        self._session.open(opened.plan, opened.path)
        self._show_forms()
        self.begin_with(opened)

    def begin_with(self, opened: Opened) -> None:
        """Ask which of several launches is to be open, tell of what was opened, and offer what an earlier session left."""
        if len(opened.launches) < 2:
            self._tell(opened)
            return
        name, count = opened.plan.source, len(opened.launches)
        answers = [Answer(str(number), fit(one, min(len(one), WIDTH - 6)), number) for number, one in enumerate(opened.launches, 1)]
        text = f"{name} starts {count} trainings, and a Plan is one of them. The first is open; Escape keeps it."
        self._app.push_screen(Ask("Several launches", text, answers), partial(self._take_launch, opened))

    def _take_launch(self, opened: Opened, number: int | None) -> None:
        if number in (None, 1):
            self._tell(opened)
        else:
            afterwards(self._app, partial(_opened_or_why, opened.plan.source, number), self._take_other)

    def _take_other(self, opened: Opened | str) -> None:
        if isinstance(opened, str):
            say(self._app, opened, "error")
            return
        self._session.open(opened.plan, opened.path)
        self._tell(opened)

    def _tell(self, opened: Opened) -> None:
        tell_of(self._app, opened)
        self.offer_drafts()

    def explain(self, finding: Finding) -> None:
        """Show the page of a finding."""
        from dstui.tui.dialogs.reading import FindingPage

        self._app.push_screen(FindingPage(finding))

    def _ask_which_shipped(self) -> None:
        """Ask for a shipped Plan; Escape returns to the start screen."""
        from dstui.tui.dialogs.welcome import Shipped

        found = self._found
        model = next((script.model for script in found.scripts), "") if found is not None else ""

        def choose(name: str | None) -> None:
            if name is not None:
                self._open(name)
            elif found is not None:
                self._ask(found)

        self._app.push_screen(Shipped(self._session.state.machine, model), choose)

    # Drafts

    def offer_drafts(self) -> None:
        """Look for a draft of what is open, and offer it."""
        in_thread(self._app, self._find_drafts)

    def _find_drafts(self) -> None:
        if found := left_behind():
            self._app.call_later(self._offer, found)

    def _offer(self, drafts: Sequence[Draft]) -> None:
        """Offer the newest draft of what is open."""
        document = document_of(self._session.state.plan, self._session.path)
        draft = next((d for d in drafts if d.document == document), None)
        if draft is None:
            return
        changes = changed_lines(self._session.state.plan.text, draft.text)
        if not changes:
            draft.forget()
            return
        answers = [
            Answer("t", f"continue with them ({key_of('undo')} undoes them)", True),
            Answer("d", "discard them", False),
            Answer("l", "later: keep them", None),
        ]
        text = f"{_when(draft)} a session ended with edits of this Plan that were not saved."
        if draft.began != self._session.on_disk:
            text += " The file was changed by another program since: saving the edits would replace that."
        self._app.push_screen(Ask("Unsaved edits", text, answers, _shown(changes)), partial(self._resume, draft))

    def _resume(self, draft: Draft, take: bool | None) -> None:
        if take is False:
            draft.forget()
        elif take:
            try:
                self._session.replace(draft.text)
            except PlanError as error:
                say(self._app, f"The draft is not a valid Plan: {error}. It is kept in {draft.file}", "error")
            else:
                in_thread(self._app, partial(take_over, draft, self._session.draft()))


def _file_problem(text: str) -> str:
    return "" if not text.strip() or is_file(typed_path(text)) else f"{text} is not a file."


def _opened_or_why(name: str, launch: int = 0) -> Opened | str:
    """Return what is in a file, or a sentence that says why it cannot be opened. `launch`: which one of a shell text, from 1."""
    from dstui.documents.open import open_document

    try:
        return open_document(name, launch=launch)
    except (FileProblem, PlanError) as error:
        return str(error)


def tell_of(app: App[int], opened: Opened) -> None:
    """Notify the user of what was changed or is wrong in the opened file."""
    for finding in opened.findings[:NOTES]:
        say(app, f"{finding.code}, line {finding.line}: {finding.message}", finding.severity if finding.severity == "error" else "warning")
    in_the_picker = ("launches in the text; ", *opened.launches)
    notes = [note for note in opened.notes if not any(text in note for text in in_the_picker)]
    for note in notes[:NOTES]:
        say(app, note, "warning")


def opened_as(chosen: str | Both | Recipe | Draft | Template) -> Opened:
    """Return what an answer opens: a draft with its origin, a file, a file with its script, a recipe, a template, or a blank Plan."""
    from dstui.documents.open import Opened, open_document, plan_of_both
    from dstui.tui.dialogs.welcome import Both

    match chosen:
        case Draft():
            return Opened(load_layered(chosen.began, chosen.source, chosen.base), None)
        case Both():
            return plan_of_both(chosen.config, chosen.script)
        case Template():
            return Opened(load_layered(read_text(chosen.path), "plan.yaml", str(Path.cwd())), None)
        case "":
            return Opened(load_layered(BLANK_PLAN, "plan.yaml", str(Path.cwd())), None)
        case str():
            return open_document(chosen)
        case _:
            return Opened(load_layered(chosen.text, "plan.yaml", str(Path.cwd())), None)


def changed_lines(before: str, now: str) -> list[str]:
    """Return the lines that differ, prefixed with + or -."""
    import difflib

    lines = difflib.unified_diff(before.splitlines(), now.splitlines(), lineterm="", n=0)
    return [line for line in list(lines)[2:] if not line.startswith("@@")]


def _shown(changes: Sequence[str]) -> list[Row]:
    rows = [row((fit(line, min(len(line), WIDTH - 4)), "ok" if line.startswith("+") else "error")) for line in changes[:LINES]]
    return [*rows, *([row((f"… and {len(changes) - LINES} more lines", "dim"))] if len(changes) > LINES else []), BLANK]


def _when(draft: Draft) -> str:
    moment = time.strftime("%H:%M" if time.time() - draft.at < 43_200 else "%Y-%m-%d %H:%M", time.localtime(draft.at))
    return f"At {moment}" if draft.host == gethostname() else f"At {moment}, on {draft.host},"
