"""The last step: show findings and forecast, then save, launch or leave. A launched job is watched from here.

The launch asks the same questions as in the TUI. The job does not depend on this process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from dstui.machine.report import format_size
from dstui.plain.answers import finding_text
from dstui.plain.console import Back, Console, Leave, number_in
from dstui.plain.saving import save
from dstui.tui.forms.memory_rows import NAMES, needed
from dstui.tui.forms.steps import STEPS
from dstui.tui.session.trust import reasons, remember_consent

if TYPE_CHECKING:
    from dstui.jobs.store.folder import JobFolder
    from dstui.plain.console import Console
    from dstui.plan.finding import Fix
    from dstui.render.target import Target
    from dstui.tui.session.session import Session
    from dstui.tui.session.state import State

AT = sum(step.pane == "form" for step in STEPS)
"""The position of the review among the steps, counted from 0."""
WORDS = {"save": 0, "launch": 1, "files": 2}
"""The words that also select the first answers; their numbers never change."""


class Review:
    """The review of a Plan, as a menu."""

    def __init__(self, console: Console, session: Session) -> None:
        self._console, self._session = console, session

    def ask(self) -> int:
        """Show the findings and the forecast, and do what the user selects. Return the number of the step to go to."""
        console = self._console
        console.say("", "Review", *findings(self._session.state), *forecast(self._session.state))
        acts = self._acts()
        console.say(*(f"  {number}. {label}" for number, (label, _) in enumerate(acts, 1)))
        while True:
            answer = console.ask("A number, or save, launch, files; step and a number goes to that step; b goes back, q leaves:")
            word, _, rest = answer.partition(" ")
            if word == "step" and (step := number_in(rest.strip(), AT)) is not None:
                return step
            if (chosen := WORDS.get(answer, number_in(answer, len(acts)))) is not None:
                acts[chosen][1]()
                return AT
            wrong = f"A number from 1 to {len(acts)}, or one of the commands; l lists the review again."
            console.say("Enter changes nothing; l lists the review again." if not answer else wrong)
            if answer == "l":
                return AT

    def _acts(self) -> list[tuple[str, Callable[[], object]]]:
        """Return the possible actions, each with its text."""
        path = self._session.path
        acts: list[tuple[str, Callable[[], object]]] = [
            (f"save the Plan as {path}" if path else "save the Plan", partial(save, self._console, self._session)),
            ("launch the job", self._launch),
            ("show the files and the command of the launch", self._show_files),
        ]
        fixes = [finding.fix for finding in self._session.state.findings if finding.fix and finding.fix.patch]
        return [*acts, *((f"fix: {fix.text}", partial(self._apply, fix)) for fix in fixes)]

    def _apply(self, fix: Fix) -> None:
        done = self._session.apply(fix)
        self._console.say(fix.text if done else f"This Plan cannot be changed so: {self._session.state.refusal[1]}")

    def _show_files(self) -> None:
        from dstui.render.artifacts import artifacts
        from dstui.render.launch import RenderError

        try:
            for artifact in artifacts(self._session.state.launch_target()):
                self._console.say("", f"{artifact.name}: {artifact.why}", artifact.text)
        except RenderError as error:
            self._console.say(str(error))

    def _launch(self) -> None:
        from dstui.plain.watching import watch

        try:
            folder = launch(self._console, self._session)
            fixes = watch(self._console, folder) if folder is not None else ()
            for fix in fixes:
                if self._console.agrees(f"Fix it in the Plan: {fix.text}?"):
                    self._apply(fix)
        except (Back, Leave):
            return


def findings(state: State) -> Iterator[str]:
    """Yield the findings about the Plan, the most severe first."""
    counted = {name: state.counted(name) for name in ("error", "warning", "info")}
    words = [f"{count} {name}{'s' * (count > 1 and name != 'info')}" for name, count in counted.items() if count]
    yield f"Findings: {', '.join(words) or 'none'}"
    yield from map(finding_text, state.findings)


def forecast(state: State) -> Iterator[str]:
    """Yield whether the run fits into memory, and how fast it would be."""
    if state.outlook is None:
        yield "Forecast: none; first set the model, in step 2 (source or parameters)"
        return
    estimate = state.outlook.forecast
    if estimate.problem:
        yield f"Forecast: none; {estimate.problem}"
        return
    for name, need in needed(estimate).items():
        low, high = need.range
        around = f", between {format_size(low)} and {format_size(high)}" if high > low else ""
        free = f" of {format_size(need.capacity)} free" if need.capacity else ""
        yield f"Forecast: {NAMES[name]} {format_size(need.bytes or 0)}{free}{around}: {need.word}"
    if estimate.speed is not None:
        yield f"Forecast: about {estimate.speed.tokens:,.0f} tokens/s, bound by {estimate.speed.bound_by}"
    yield from (f"Not known: {sentence}" for sentence in estimate.unknown)


def launch(console: Console, session: Session) -> JobFolder | None:
    """Start the job, detached, and return its folder. If nothing was started, say so and return None."""
    from dstui.jobs.control.start import LaunchError, start

    state = session.state
    first = next((finding for finding in state.findings if finding.severity == "error"), None)
    if first is not None:
        console.say(f"Not launched: {first.message}")
        return None
    target = state.launch_target()
    if not _agreed(console, target) or not _ready(console, target):
        console.say("Nothing was started.")
        return None
    console.say("Starting...")
    try:
        folder = start(target)
    except LaunchError as error:
        console.say(f"Not launched: {error}")
        return None
    session.note_job(folder)
    return folder


def _agreed(console: Console, target: Target) -> bool:
    """Ask before programs run that the user has not chosen; return whether they may run."""
    from dstui.render.launch import interpreter

    plan = target.plan
    if not (why := reasons(plan)):
        return True
    script = plan.job.script or f"-m {plan.job.module}"
    console.say(*why, f"interpreter: {interpreter(plan)}", f"folder: {plan.place(plan.job.workdir)}", f"script: {script}")
    if not console.agrees("Start these programs?"):
        return False
    remember_consent(plan)
    return True


def _ready(console: Console, target: Target) -> bool:
    """Examine the other hosts before a launch on them; return whether to start."""
    from dstui.doctor.examine import format_lines, run_preflight
    from dstui.jobs.control.start import LaunchError, check
    from dstui.render.launch import RenderError

    try:
        if target.launch.only_here or target.plan.cluster.submits or not target.launch.named:
            return True
        check(target.launch)
    except (RenderError, LaunchError):
        return True  # the launch reports this problem itself
    console.say("Checking whether the hosts are ready...")
    results = run_preflight(target)
    console.say(*format_lines(results))
    return not any(result.verdict == "fail" for result in results) or console.agrees("Launch anyway?")
