"""Launch the reviewed Plan after the same questions as in the TUI. The job does not depend on this process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dstui.tui.session.trust import reasons, remember_consent

if TYPE_CHECKING:
    from dstui.jobs.store.folder import JobFolder
    from dstui.plain.console import Console
    from dstui.render.target import Target
    from dstui.tui.session.session import Session


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
