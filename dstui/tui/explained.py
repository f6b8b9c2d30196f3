"""What the app does with the reason of an end: all of it, its lines in the log, the fix and the next launch; stacks; a report to send."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING

from textual import on

from dstui.tui.dialogs.dialog import Answer, Ask
from dstui.tui.dialogs.text_viewer import WIDTH, Reading
from dstui.tui.forms.steps.review_run import REVIEW
from dstui.tui.jobs import Jobs
from dstui.tui.kit.row_list import RowList
from dstui.tui.kit.threads import in_thread
from dstui.tui.run.diagnosis_pane import DiagnosisPane
from dstui.tui.run.diagnosis_rows import WHOLE, stack_rows, whole_rows

if TYPE_CHECKING:
    from dstui.plan import Plan
    from dstui.plan.finding import Fix
    from dstui.run.diagnosis import Evidence
    from dstui.run.jobs.folder import JobFolder
    from dstui.run.observe.stacks import Stack
    from dstui.tui.forms.steps import Step


class Explained(Jobs):
    """The part of the app that concerns why a job ended, or whom its ranks wait for."""

    @property
    def why(self) -> DiagnosisPane | None:
        """The pane under the log of the job that is looked at."""
        return self.run_pane.why if self.run_pane is not None and self.run_pane.folder is not None else None

    def explained(self) -> bool:
        """Whether there is a diagnosis."""
        return self.why is not None and self.why.diagnosis is not None

    @property
    def _room(self) -> int:
        """Cells for the text of a dialog."""
        return min(WIDTH, self.size.width - 10)

    # The diagnosis

    def action_reason(self) -> None:
        """The whole diagnosis."""
        diagnosis = self.why.diagnosis if self.why is not None else None
        if diagnosis is not None:
            self.push_screen(Reading("Why it ended", whole_rows(diagnosis, self._room)), self._line_wanted)

    @on(RowList.Chosen, "#why")
    def _reason_chosen(self, event: RowList.Chosen) -> None:
        if event.key == WHOLE:
            self.action_reason()
        else:
            self._line_wanted(event.key)  # type: ignore[arg-type]  # the other keys of this pane are evidence

    def _line_wanted(self, evidence: Evidence | None) -> None:
        """Show a line of evidence where it stands in the log."""
        pane = self.run_pane
        if evidence is None or pane is None or pane.folder is None:
            return
        if Path(evidence.file).suffix != ".log":
            self.say(f"{evidence.file}, line {evidence.line}")
            return
        pane.show_rank(evidence.rank if evidence.file.endswith(f"rank_{evidence.rank}.log") else None)
        pane.log_view.find(evidence.text.strip())
        pane.log_view.focus()

    # The last run

    def open_pane(self, step: Step) -> None:
        """Show the pane of a step that has no form; the review also says what has changed since the last run."""
        super().open_pane(step)
        if step.pane == "review":
            in_thread(self, partial(self._find_last_run, self.store.state.plan))

    def _find_last_run(self, plan: Plan) -> None:
        from dstui.run.jobs.index import folders
        from dstui.run.jobs.plan_diff import last_run

        found = last_run(plan, folders())
        self.call_later(self._last_run_found, (found[0].name, found[1]) if found else None)

    def _last_run_found(self, last: tuple[str, Plan] | None) -> None:
        if self.review is not None:
            self.review.last = last
            self.redraw_all()

    # The stacks

    def action_stacks(self) -> None:
        """Ask py-spy where each rank is; the ranks are stopped for milliseconds."""
        folder = self.run_pane.folder if self.run_pane is not None else None
        if folder is not None:
            self.say("Looking where the ranks are…")
            in_thread(self, partial(self._read_stacks, folder))

    def _read_stacks(self, folder: JobFolder) -> None:
        from dstui.run.observe.stacks import stacks

        self.call_later(self._show_stacks, folder, stacks(folder))

    def _show_stacks(self, folder: JobFolder, found: list[Stack]) -> None:
        from dstui.run.observe.hang_analysis import grouped

        self.clear_notifications()
        if not found:
            self.say("No rank runs now.")
        elif self.why is not None and self.why.folder == folder:
            self.why.stand(grouped(found))
            self.push_screen(Reading("Where the ranks are", stack_rows(found, self._room)))

    # The report

    def action_bundle(self) -> None:
        """Write a zip for a bug report into the current folder."""
        folder = self.run_pane.folder if self.run_pane is not None else None
        if folder is not None:
            in_thread(self, partial(self._write_bundle, folder))

    def _write_bundle(self, folder: JobFolder) -> None:
        from dstui.files import FileProblem
        from dstui.run.report.bundle import bundle

        try:
            written = bundle(folder, _free_name(Path.cwd() / f"{folder.name}-bundle.zip"))
        except FileProblem as problem:
            self.call_later(self.say, str(problem), "error")
        else:
            self.call_later(self._bundle_written, written)

    def _bundle_written(self, written: Path) -> None:
        self._note(f"written  {written}")
        self.say(f"{written}: what looked like a secret is masked; look through it before you hand it on.")

    # The fix, and the next launch

    def fix_the_plan(self) -> None:
        """Apply the diagnosis' fix to the Plan of the job, and show what will be run next."""
        fix = self.run_pane.fix if self.run_pane is not None else None
        if fix is not None:
            self.with_its_plan(partial(self._apply, fix))

    def _apply(self, fix: Fix) -> None:
        if self.store.apply(fix):
            self.show_step(REVIEW)
            self.say(f"{fix.text}. l launches it, z takes it back.")
        else:
            self.say(f"This Plan cannot take it: {self.store.state.refusal[1]}", "error")

    def action_launch(self) -> None:
        """Start the job; on the run, the job that is looked at once more. Elsewhere go to Review: nothing is launched unseen."""
        if self.step.pane == "review":
            super().action_launch()
        elif self.watching():
            self.action_again()
        else:
            self.show_step(REVIEW)
            self.say("l once more launches this.")

    def action_again(self) -> None:
        """Start the job that is looked at once more, with its Plan as it is now."""
        self.with_its_plan(super().action_launch)

    def with_its_plan(self, then: Callable[[], object]) -> None:
        """Do something once the Plan of the job that is looked at is the open one. Edits of another Plan are never lost."""
        from dstui.files import FileProblem
        from dstui.plan import PlanError
        from dstui.run.jobs.plan_diff import plan_of, same_document

        folder = self.run_pane.folder if self.run_pane is not None else None
        if folder is None:
            return
        try:
            plan = plan_of(folder)
        except (FileProblem, PlanError) as error:
            self.say(f"The Plan of this job cannot be read: {error}", "error")
            return
        if same_document(plan, self.store.state.plan):
            then()
        elif self.store.state.saved:
            self._open_its_plan(plan, then)
        else:
            text = f"{self.run_pane.name_of_job if self.run_pane else ''} was run from another Plan than the one that is open, "
            text += "which has edits that are not saved."
            answers = [Answer("o", "open the job's Plan, and drop those edits", True), Answer("n", "no, stay with this one", False)]
            self.push_screen(Ask("Another Plan", text, answers), lambda yes: self._open_its_plan(plan, then) if yes else None)

    def _open_its_plan(self, plan: Plan, then: Callable[[], object]) -> None:
        self.store.open(plan, None)
        self.say(f"The Plan is now that of {self.run_pane.name_of_job if self.run_pane is not None else 'the job'}.")
        then()


def _free_name(path: Path) -> Path:
    """The path, with -2, -3 and so on where it is taken."""
    names = (path.with_stem(f"{path.stem}-{number}") for number in count(2))
    return next(name for name in chain((path,), names) if not name.exists())
