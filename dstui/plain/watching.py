"""A job as lines: its state every half minute, its events as they happen, and at the end the cause if it failed."""

from __future__ import annotations

import shlex
import time
from typing import TYPE_CHECKING

from dstui.base.files import FileProblem
from dstui.jobs.control.take_over import take_over
from dstui.jobs.store.events import Event, Exited, HostChange, Notice, RankState
from dstui.jobs.watch.follow import Follower
from dstui.jobs.watch.summary import duration_text, rate_text, summary
from dstui.plain.console import Back, Ended, Leave

if TYPE_CHECKING:
    from dstui.jobs.store.folder import JobFolder
    from dstui.plain.console import Console
    from dstui.plan.finding import Fix

EVERY = 30.0
"""The number of seconds between two lines of state."""
GLANCE = 0.2
"""The number of seconds between two looks at the job."""
BACKLOG = 1 << 20
"""The maximum number of bytes read of each existing log of a running job."""
COMMANDS = "Enter prints the state, s stops the job, q leaves it running."


def watch(console: Console, folder: JobFolder) -> tuple[Fix, ...]:
    """Report until the job ends or the user leaves. Return the fixes for the cause of a failure."""
    follower = Follower(folder, BACKLOG, lines=False, status_of=take_over)
    name = shlex.quote(folder.name)
    console.say(f"Job folder {folder.path}", f"One line of state every {EVERY:.0f} seconds. {COMMANDS}")
    try:
        return _watch(console, folder, follower)
    except KeyboardInterrupt:
        console.say("", f"The job continues: dstui attach {name} shows it again, dstui stop {name} stops it.")
        raise
    finally:
        follower.close()


def _watch(console: Console, folder: JobFolder, follower: Follower) -> tuple[Fix, ...]:
    told, state = time.monotonic(), ""
    while True:
        events = follower.poll()
        console.say(*(line for event in events if (line := event_text(event))))
        if any(isinstance(event, Exited) for event in events):
            console.say(summary(follower))
            return _diagnosis(console, folder, follower.state)
        answer = None if events else _answer(console)
        if answer in ("q", "b"):
            console.say(f"The job continues: dstui attach {shlex.quote(folder.name)} shows it again.")
            return ()
        if answer == "s":
            _stop(console, folder)
        elif answer:
            console.say(COMMANDS)
        if answer == "" or follower.state != state or time.monotonic() - told >= EVERY:
            told, state = time.monotonic(), follower.state
            console.say(state_line(follower))


def _answer(console: Console) -> str | None:
    """Return the line that was typed within a moment, or None. After the end of standard input, do not wait for it any more."""
    if not console.ended:
        try:
            return console.read(GLANCE)
        except Ended:
            return None
    time.sleep(GLANCE)
    return None


def state_line(follower: Follower) -> str:
    """Return the job's progress as one line: state, duration, step, loss, speed, remaining time."""
    words = [f"{time.strftime('%H:%M:%S')} {follower.state}", duration_text(follower.duration)]
    if follower.progress is not None:
        words.append("step {:,} of {:,}".format(*follower.progress))
    else:
        words += [f"step {view.step:,}" for _, view in sorted(follower.ranks.items()) if view.step is not None][:1]
    if (loss := follower.latest.get("loss")) is not None:
        words.append(f"loss {loss:.4g}")
    words += [f"{rate_text(value)} {name}" for name, value in follower.rates.items()]
    if follower.remaining is not None:
        words.append(f"about {duration_text(follower.remaining)} left")
    ended = sum(view.state not in ("waiting", "started") for view in follower.ranks.values())
    words.append(f"{len(follower.ranks)} ranks" + (f", {ended} ended" if ended else ""))
    return ", ".join(words)


def event_text(event: Event) -> str:
    """Return the line for an event, or "" if the line of state reports it."""
    if isinstance(event, (Notice, HostChange)):
        return event.text
    if isinstance(event, RankState) and event.exit_code:
        cause = "" if event.killed_after is None else f": it was killed after rank {event.killed_after} had failed"
        return f"rank {event.rank} on {event.host} ended with {event.exit_code}{cause}"
    return ""


def _stop(console: Console, folder: JobFolder) -> None:
    from dstui.jobs.control.stop import stop

    try:
        if not console.agrees("Stop the job?"):
            return
    except (Back, Leave, Ended):
        return
    report = stop(folder)
    console.say(f"Not stopped: {report.refused}" if report.refused else "Stopped.", *report.left)


def _diagnosis(console: Console, folder: JobFolder, state: str) -> tuple[Fix, ...]:
    """Print why a job failed; return the fixes for its Plan."""
    from dstui.diagnosis import diagnose_job, report, unread_configuration

    try:
        why = diagnose_job(folder) if state in ("failed", "lost") else unread_configuration(folder)
    except FileProblem as error:
        console.say(f"No diagnosis: {error}")
        return ()
    if why is None:
        return ()
    console.say("", report(why))
    return tuple(fix for fix in why.fixes if fix.patch)
