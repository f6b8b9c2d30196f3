"""Inspect a checkpoint and convert it to fp32 weights or a universal checkpoint: `dstui checkpoint` in the UI."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING, Literal

from textual.app import App

from dstui.base.files import FileProblem, is_there, typed_path
from dstui.base.text import sanitise
from dstui.tui.dialogs.dialog import Answer, Ask, Prompt
from dstui.tui.flows.saving import folder_problem
from dstui.tui.kit.keys import key_of
from dstui.tui.kit.tools import in_thread, say
from dstui.tui.session.session import Session

if TYPE_CHECKING:
    from dstui.checkpoints.checkpoint import Checkpoint
    from dstui.checkpoints.convert import ConversionCost, Kind
    from dstui.plan.finding import Finding
    from dstui.tui.dialogs.checkpoint import Converting

ELSEWHERE = ""
WHAT = {"fp32": "Whole 32-bit weights", "universal": "A universal checkpoint"}
PATIENCE = 5.0
"""Seconds for a cancelled conversion to end. Its child is then killed, and its output is removed."""


class CancelledByUser(Exception):
    """The user has cancelled a conversion."""


class Checkpoints:
    """Ask for a checkpoint, show its contents, convert it. Disk access and DeepSpeed's tools run in threads."""

    def __init__(self, app: App[int], session: Session, show_review: Callable[[], object]) -> None:
        self._app, self._session, self._show_review = app, session, show_review
        self._cancelled = Event()
        self._work: Thread | None = None

    def ask(self) -> None:
        """Ask for a checkpoint, offering those in the folders around."""
        in_thread(self._app, self._search)

    def _search(self) -> None:
        from dstui.checkpoints.resume import checkpoints_near

        plan = self._session.state.plan
        self._app.call_later(self._offer, checkpoints_near(dict.fromkeys((Path.cwd(), Path(plan.place(plan.job.workdir))))))

    def _offer(self, found: list[Path]) -> None:
        if not found:
            self._ask_path(ELSEWHERE)
            return
        answers = [Answer(str(number), _short(path), str(path)) for number, path in enumerate(found, 1)]
        answers.append(Answer("o", "another folder", ELSEWHERE))
        self._app.push_screen(Ask("Checkpoints", "Which one to look into? Looking changes nothing.", answers), self._chosen)

    def _chosen(self, path: str | None) -> None:
        if path == ELSEWHERE:
            self._ask_path(path)
        elif path:
            self._inspect(Path(path))

    def _ask_path(self, path: str) -> None:
        text = "The folder that holds `latest`, or the folder of one tag. Looking changes nothing."
        self._app.push_screen(
            Prompt("Which checkpoint?", text, path, folder_problem), lambda given: self._inspect(typed_path(given)) if given else None
        )

    def _inspect(self, path: Path, tag: str | None = None) -> None:
        in_thread(self._app, partial(self._read, path, tag))

    def _read(self, path: Path, tag: str | None) -> None:
        from dstui.checkpoints.checkpoint import read_checkpoint
        from dstui.checkpoints.resume import resume_arguments, resume_findings
        from dstui.documents.training_script import script_facts_of

        state = self._session.state
        try:
            found = read_checkpoint(path, tag)
        except FileProblem as problem:
            self._app.call_later(say, self._app, sanitise(str(problem)), "error")
            return
        arguments = resume_arguments(state.plan, script_facts_of(state.plan), str(found.folder.absolute()))
        self._app.call_later(self._show, found, list(resume_findings(found, state.plan, state.ranks)), arguments)

    def _show(self, found: Checkpoint, resume: list[Finding], arguments: Sequence[str]) -> None:
        from dstui.checkpoints.resume import resume_line
        from dstui.tui.dialogs.checkpoint import CheckpointDialog

        dialog = CheckpointDialog(found, resume, arguments, resume_line(self._session.state.plan, str(found.folder.absolute())))
        self._app.push_screen(dialog, partial(self._wanted, found, arguments))

    def _go_on(self, found: Checkpoint, arguments: Sequence[str]) -> None:
        """Write the arguments into the Plan, and show what would be launched."""
        from dstui.checkpoints.resume import with_arguments

        if self._session.edit(("job.args", with_arguments(self._session.state.plan.job.args, arguments))):
            self._show_review()
            say(
                self._app,
                f"The next launch resumes from step {found.step}. {key_of('launch')} launches it, {key_of('undo')} undoes it.",
            )
        else:
            say(self._app, self._session.state.refusal[1], "error")

    def _wanted(self, found: Checkpoint, arguments: Sequence[str], what: Kind | Literal["tag", "go on"] | None) -> None:
        if what == "go on":
            self._go_on(found, arguments)
        elif what == "tag":
            answers = [Answer(str(number) if number < 10 else "", tag, tag) for number, tag in enumerate(reversed(found.tags[-40:]), 1)]
            self._app.push_screen(
                Ask("Which one?", str(found.folder), answers), lambda tag: self._inspect(found.folder, tag) if tag else None
            )
        elif what is not None:
            target = f"{found.folder}-fp32" if what == "fp32" else f"{found.folder}/{found.tag}_universal"
            text = f"{WHAT[what]}, written to a folder that does not exist yet:"
            prompt = Prompt("Where to?", text, target, _target_problem)
            self._app.push_screen(prompt, partial(self._tell_cost, what, found))

    # Converting

    def _tell_cost(self, kind: Kind, found: Checkpoint, target: str | None) -> None:
        if target:
            in_thread(self._app, partial(self._work_out_cost, kind, found, typed_path(target)))

    def _work_out_cost(self, kind: Kind, found: Checkpoint, target: Path) -> None:
        from dstui.checkpoints.convert import estimate_cost

        self._app.call_later(self._ask_begin, kind, found, target, estimate_cost(kind, found, target))

    def _ask_begin(self, kind: Kind, found: Checkpoint, target: Path, cost: ConversionCost) -> None:
        from dstui.tui.dialogs.checkpoint import cost_text

        begin = Answer("y", "try anyway" if cost.too_much else "begin", True)
        dialog = Ask(f"{WHAT[kind]}?", cost_text(cost, str(target)), [begin, Answer("n", "no", False)])
        self._app.push_screen(dialog, lambda yes: self._begin(kind, found, target, cost) if yes else None)

    def _begin(self, kind: Kind, found: Checkpoint, target: Path, cost: ConversionCost) -> None:
        from dstui.tui.dialogs.checkpoint import Converting

        if self._work is not None and self._work.is_alive():
            say(self._app, "A conversion is running already.", "warning")
            return
        cancelled = self._cancelled = Event()
        dialog = Converting(WHAT[kind], cost.disk, cancelled.set)
        self._app.push_screen(dialog)
        self._work = in_thread(self._app, partial(self._convert, kind, found, target, dialog, cancelled))

    def _convert(self, kind: Kind, found: Checkpoint, target: Path, dialog: Converting, cancelled: Event) -> None:
        from dstui.checkpoints.convert import Conversion, convert

        def progress(line: str, written: int) -> None:
            if cancelled.is_set():
                raise CancelledByUser
            self._app.call_later(dialog.show, line, written)

        try:
            convert(Conversion(kind), found, target, progress)
        except CancelledByUser:
            self._app.call_later(say, self._app, "Cancelled: nothing was written.")
        except FileProblem as problem:
            self._app.call_later(dialog.end, "error", f"{problem} Nothing was written.")
        else:
            self._session.note(f"written  {target}")
            self._app.call_later(dialog.end, "ok", f"Written: {target}")

    def close(self) -> None:
        """Cancel a running conversion: the app exits, and its child process must not outlive it. Thread-safe."""
        self._cancelled.set()
        if self._work is not None:
            self._work.join(PATIENCE)


def _short(path: Path) -> str:
    """Return a path relative to the current or home folder, if it is in one of these."""
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


def _target_problem(text: str) -> str:
    """Return why nothing can be written to a path, or ""."""
    path = typed_path(text)
    return f"{text} exists: nothing is replaced." if is_there(path) else "" if text.strip() else "Name a folder."
