"""Launch, relaunch, repair and stop jobs. A job never depends on the app."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING

from textual.app import App

from dstui.tui.dialogs.dialog import Answer, Ask
from dstui.tui.flows.consent import question
from dstui.tui.kit.keys import key_of
from dstui.tui.kit.tools import in_thread, say
from dstui.tui.session.messages import FixApplied, Launched
from dstui.tui.session.session import Session
from dstui.tui.session.settings import setting
from dstui.tui.session.trust import reasons, remember_consent

if TYPE_CHECKING:
    from dstui.jobs.store.folder import JobFolder
    from dstui.plan import Plan
    from dstui.plan.finding import Fix
    from dstui.render.target import Target
    from dstui.tui.dialogs.preflight import Preflight
    from dstui.tui.run.watched_job import WatchedJob


FRESH = 0.7
"""Seconds after which a key counts as another press: a held key repeats after 0.66 s at the latest, and then continuously."""


class Launching:
    """Start jobs from a Plan, and relaunch jobs that have failed. Posts Launched and FixApplied."""

    def __init__(
        self, app: App[int], session: Session, once_known: Callable[[Callable[[], object]], object], show_review: Callable[[], object]
    ) -> None:
        """Create it. `once_known` calls a function as soon as the machine is probed and the Plan is checked."""
        self._app, self._session, self._once_known, self._show_review = app, session, once_known, show_review
        self._pressed = 0.0
        self._agreed: set[tuple[str, str]] = set()
        """Source and text of Plans from other users' job folders that the user agreed to launch in this session."""

    def led_to_review(self) -> None:
        """Note that the launch key has just led to Review: while it is held down, nothing is launched."""
        self._pressed = monotonic()

    def launch_reviewed(self) -> None:
        """Launch what Review shows, unless the key is still held from the press that led there."""
        fresh = monotonic() - self._pressed >= FRESH
        self._pressed = monotonic()
        if fresh:
            self.launch()
        else:
            say(self._app, "Nothing is launched while a key is held; press it again to launch.")

    def launch(self, beside: WatchedJob | None = None) -> None:
        """Start the job, detached; if there are errors, show them and start nothing. `beside`: a job in view that may still be running."""
        self._once_agreed(partial(self._launch_beside, beside))

    def probe(self) -> None:
        """Run the ranks up to the end of deepspeed.initialize, after the questions of a launch, and show what was resolved."""
        self._once_agreed(self._probe_soon)

    def _once_agreed(self, then: Callable[[], object]) -> None:
        plan = self._session.state.plan
        first = next((f for f in self._session.state.findings if f.severity == "error"), None)
        if first is not None:
            say(self._app, f"Not launched: {first.message}", "error")
        elif (plan.source, plan.text) not in self._agreed and (why := reasons(plan)):
            self._show_review()
            dialog = question(why, self._session.state.launch_target())
            self._app.call_later(self._app.push_screen, dialog, partial(self._answered, plan, then))
        else:
            then()

    def _answered(self, plan: Plan, then: Callable[[], object], yes: bool | None) -> None:
        """Remember a yes: to an interpreter permanently, to a Plan of another user's folder while neither it nor the session changes."""
        if not yes:
            say(self._app, "Nothing was started.")
            return
        remember_consent(plan)
        self._agreed.add((plan.source, plan.text))
        then()

    def _launch_beside(self, beside: WatchedJob | None) -> None:
        if beside is not None and beside.alive and setting("confirm_beside"):
            answers = [Answer("n", "no", False), Answer("y", "launch another one as well", True)]
            self._app.push_screen(Ask("A job is running", f"{beside.name} has not ended.", answers), self._launch)
        else:
            self._launch(True)

    def _launch(self, yes: bool | None) -> None:
        if not yes:
            return
        target = self._session.state.launch_target()
        if hosts := remote_hosts(target):
            examine_first(self._app, target, hosts, self._start_soon)
        else:
            self._start_soon()

    def _start_soon(self) -> None:
        say(self._app, "Starting…")
        in_thread(self._app, self._start)

    def _start(self) -> None:
        from dstui.jobs.control.start import LaunchError, start

        try:
            folder = start(self._session.state.launch_target())
        except LaunchError as error:
            self._app.call_later(say, self._app, f"Not launched: {error}", "error")
        else:
            self._app.post_message(Launched(folder))

    def _probe_soon(self) -> None:
        say(self._app, "Probing: the ranks run up to the end of deepspeed.initialize; nothing is trained or saved.")
        in_thread(self._app, self._probe)

    def _probe(self) -> None:
        from dstui.jobs.control.probing import DEADLINE, probe_plan
        from dstui.jobs.control.start import LaunchError
        from dstui.tui.dialogs.reading import LinesViewer

        try:
            lines = probe_plan(self._session.state.launch_target(), DEADLINE).lines()
        except LaunchError as error:
            self._app.call_later(say, self._app, f"Not probed: {error}", "error")
        else:
            self._app.call_later(self._app.push_screen, LinesViewer("This Plan as resolved by DeepSpeed", lines))

    # The job in view

    def again(self, job: WatchedJob) -> None:
        """Relaunch a job with its Plan as it is now. If `reasons` has some, Review is shown first and asks."""
        self._with_its_plan(job, partial(self._once_known, partial(self.launch, job)))

    def fix(self, job: WatchedJob, fix: Fix) -> None:
        """Apply the fix of a diagnosis to the Plan of the job."""
        self._with_its_plan(job, partial(self._once_known, partial(self._apply, fix)))

    def _apply(self, fix: Fix) -> None:
        if self._session.apply(fix):
            self._app.post_message(FixApplied(fix.text))
        else:
            say(self._app, f"This Plan cannot be changed so: {self._session.state.refusal[1]}", "error")

    def _with_its_plan(self, job: WatchedJob, then: Callable[[], object]) -> None:
        """Open the Plan of the job, then call a function. Unsaved edits of another Plan are never lost."""
        from dstui.base.files import FileProblem
        from dstui.jobs.store.plan_diff import plan_of, same_document
        from dstui.plan import PlanError

        try:
            plan = plan_of(job.folder)
        except (FileProblem, PlanError) as error:
            say(self._app, f"The Plan of this job cannot be read: {error}", "error")
            return
        open_it = partial(self._open_its_plan, plan, job.name, then)
        if same_document(plan, self._session.state.plan):
            then()
        elif self._session.state.saved:
            open_it()
        else:
            text = f"{job.name} was run from another Plan than the open one, which has unsaved edits."
            answers = [Answer("n", "no, keep this one", False), Answer("o", "open the job's Plan, and discard those edits", True)]
            self._app.push_screen(Ask("Another Plan", text, answers), lambda yes: open_it() if yes else None)

    def _open_its_plan(self, plan: Plan, name: str, then: Callable[[], object]) -> None:
        self._session.open(plan, None)
        say(self._app, f"The Plan is now that of {name}.")
        then()

    # Stop

    def stop(self, job: WatchedJob) -> None:
        """Stop the job, after a question."""
        if not job.stoppable:
            say(self._app, "No job is running here.")
            return
        if not setting("confirm_stop"):
            self._stop(job, True)
            return
        text = "Its ranks get a SIGTERM and 5 s to end; then every process of the job gets one, "
        text += "and after another 5 s SIGKILL."
        if (status := job.folder.read_status()) and status.slurm_job:
            cancelled = f"SLURM job {status.slurm_job} is cancelled (scancel), and not queued again."
            text = cancelled if status.state == "queued" else f"{cancelled} {text}"
        answers = [Answer("n", "let it run", False), Answer("y", "stop it", True)]
        self._app.push_screen(Ask(f"Stop {job.name}?", text, answers), partial(self._stop, job))

    def _stop(self, job: WatchedJob, yes: bool | None) -> None:
        if yes:
            job.stop_asked()
            in_thread(self._app, partial(self._stop_it, job.folder))

    def _stop_it(self, folder: JobFolder) -> None:
        from dstui.jobs.control.stop import stop

        report = stop(folder)
        left = f", but: {'; '.join(map(str, report.left))}. {key_of('stop')} tries again." if report.left else ". No process is left."
        text = f"Not stopped: {folder.name} {report.refused}." if report.refused else f"Stopped{left}"
        self._app.call_later(say, self._app, text, "error" if report.refused or report.left else "information")


def job_lines(folder: JobFolder) -> list[str]:
    """Return a job for the receipt: its folder, and the commands that apply to it now."""
    import shlex

    from dstui.jobs.store.status import current_status

    name, status = shlex.quote(folder.path.name), current_status(folder)
    lives = status is not None and not status.final and not status.foreign
    return [f"job      {folder.path}", f"         dstui attach {name}" + (f"     dstui stop {name}" if lives else "")]


def remote_hosts(target: Target) -> tuple[str, ...]:
    """Return the hosts of a launch on other hosts; empty if it stays here or has no command (the launch reports why)."""
    from dstui.render.launch import RenderError

    try:
        spec = target.launch
    except RenderError:
        return ()
    return () if spec.only_here or target.plan.cluster.submits or not spec.named or spec.launcher == "nossh" else spec.hosts


def examine_first(app: App[int], target: Target, hosts: tuple[str, ...], then: Callable[[], object]) -> None:
    """Check the hosts in a thread, then call `then` if nothing is wrong or the user goes on anyway."""
    from dstui.tui.dialogs.preflight import Preflight

    dialog = Preflight(hosts)

    def answered(yes: bool | None) -> None:
        if yes:
            then()

    app.push_screen(dialog, answered)
    in_thread(app, partial(_examine, app, target, dialog))


def _examine(app: App[int], target: Target, dialog: Preflight) -> None:
    from dstui.doctor.examine import run_preflight
    from dstui.jobs.control.start import LaunchError, check

    try:
        check(target.launch)
    except LaunchError:
        app.call_later(dialog.show, ())  # the launch reports it
        return
    results = run_preflight(target, lambda case: app.call_later(dialog.host_answered, case.host))
    app.call_later(dialog.show, results)
