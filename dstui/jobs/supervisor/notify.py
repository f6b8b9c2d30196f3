"""Notify the user of a job's end by a shell command or a webhook.

The notification comes after the final status, has ten seconds, and cannot change the status. A URL is sent only to its own host, because
the address of a webhook is a secret.

The supervisor sends it. If the supervisor was killed, the process that writes the final status starts `python -m
dstui.jobs.supervisor.notify FOLDER`.
"""

from __future__ import annotations

import json
import math
import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from tempfile import TemporaryFile
from typing import Any
from urllib.parse import urlsplit

from dstui.base.text import sanitise
from dstui.jobs.metrics.line_patterns import scan
from dstui.jobs.store.folder import JobFolder
from dstui.jobs.store.ownership import NotOwn, own_tag
from dstui.jobs.store.processes import SUPERVISES
from dstui.jobs.store.ranks import Ranks
from dstui.jobs.store.records import JobStatus, LaunchRecord
from dstui.jobs.store.status import ranks_of
from dstui.jobs.watch.summary import duration_text
from dstui.logs.decode import LONGEST
from dstui.logs.log_file import LogFile

DEADLINE = 10.0
"""Seconds for a command or a server."""
LAST_LINES = 200
"""Lines of a log that are searched for the last loss."""
URL = re.compile(r"https?://\S+", re.IGNORECASE)
PREFIX = "DSTUI_"
"""Prefix of the facts in a command's environment: DSTUI_NAME, DSTUI_STATE, …"""


def facts_of(folder: JobFolder, status: JobStatus, ranks: Ranks) -> dict[str, Any]:
    """Return the facts about an ended job; null for unknown ones."""
    began, ended = status.started, status.ended
    state, code = status.state, status.exit_code
    first = ranks.first_failure if state == "failed" else None  # ranks that a stop has ended did not fail
    duration = round(ended - began, 3) if began and ended else None
    text = f"{folder.name} {state} with exit status {code}"
    text += f" after {duration_text(duration)}" if duration is not None else ""
    text += f"; rank {first} on {ranks.ranks[first].host} failed first" if first is not None else ""
    return {
        "name": folder.name,
        "state": state,
        "exit_code": code,
        "duration": duration,
        "folder": str(folder.path),
        "first_failing_rank": first,
        "last_loss": last_loss(ranks),
        "text": text,  # shown by Slack and Mattermost
        "content": text,  # shown by Discord
    }


def last_loss(ranks: Ranks) -> float | None:
    """Return the last loss printed by the first rank that has one; None if it is not a number."""
    for number in sorted(ranks.ranks):
        log = LogFile(ranks.folder.log(number, ranks.attempt))
        losses = [found["loss"] for line in log.tail(LAST_LINES) if "loss" in (found := scan(line))]
        log.close()
        if losses:
            return losses[-1] if math.isfinite(losses[-1]) else None
    return None


def announce(launch: LaunchRecord | None, folder: JobFolder, status: JobStatus, ranks: Ranks) -> str | None:
    """Send the notification that launch.json asks for, if any. Return a sentence for events.jsonl if that failed."""
    if launch is None or not launch.on_end:
        return None
    return notify(launch.on_end, facts_of(folder, status, ranks), launch.workdir or str(folder.path))


def main(argv: list[str]) -> int:
    """Notify of the end of the job in a folder. A failure becomes a line of its events."""
    folder = JobFolder(argv[0])
    status = folder.read_status()
    try:
        own_tag(folder, status)
    except NotOwn:
        return 1
    problem = announce(folder.read_launch(), folder, status, ranks_of(folder, status)) if status else None
    if problem:
        folder.append_event(time.time(), "notice", text=problem)
    return 1 if problem else 0


def notify(target: str, facts: Mapping[str, Any], workdir: str, deadline: float = DEADLINE) -> str | None:
    """Run the command in `workdir`, or POST the facts as JSON to the URL. Return a sentence if that failed.

    Never raises, and never takes longer than `deadline` seconds.
    """
    target = target.strip()
    try:
        problem = _post(target, facts, deadline) if URL.fullmatch(target) else _execute(target, facts, workdir, deadline)
    except Exception as error:  # whatever a user's URL or command raises, the job's end is unchanged
        problem = f"nobody could be notified: {error}"
    return f"run.on_end: {sanitise(problem)}" if problem else None


def _execute(command: str, facts: Mapping[str, Any], workdir: str, deadline: float) -> str | None:
    """Run a shell command in a session of its own, with the facts in its environment."""
    reported = {PREFIX + name.upper(): "" if value is None else str(value) for name, value in facts.items()}
    env = {name: value for name, value in os.environ.items() if name != SUPERVISES}
    with TemporaryFile() as output:  # not a pipe, which a background process of the command would keep open
        child = subprocess.Popen(
            command,
            shell=True,
            env={**env, **reported},
            cwd=workdir,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            preexec_fn=_unblocked,  # noqa: PLW1509 - the supervisor, who calls this, has no threads
        )
        try:
            code = child.wait(deadline)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()
            return f"the command was not through after {deadline:g} s and was ended"
        if code == 0:
            return None
        output.seek(max(output.seek(0, os.SEEK_END) - LONGEST, 0))
        stderr_text = output.read().decode(errors="replace").strip().rpartition("\n")[2]
    status = f"signal {-code}" if code < 0 else f"exit status {code}"
    return f"the command failed ({status}){': ' + stderr_text if stderr_text else ''}"


def _unblocked() -> None:
    """Unblock all signals in the command, since the supervisor blocks them."""
    signal.pthread_sigmask(signal.SIG_SETMASK, [])


def _post(url: str, facts: Mapping[str, Any], deadline: float) -> str | None:
    """POST the facts. The thread is abandoned at the deadline: resolving a name has no time-out."""
    result: list[str | None] = []
    thread = threading.Thread(target=lambda: result.append(_answer(url, facts, deadline)), daemon=True)
    thread.start()
    thread.join(deadline)
    return result[0] if result else f"{urlsplit(url).hostname} did not answer in {deadline:g} s"


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Refuses redirects: a redirected POST would arrive as a GET without the facts."""

    def redirect_request(self, *_args: Any) -> None:
        return None


def _answer(url: str, facts: Mapping[str, Any], deadline: float) -> str | None:
    host = urlsplit(url).hostname
    request = urllib.request.Request(url, json.dumps(facts).encode(), {"Content-Type": "application/json", "User-Agent": "dstui"})
    try:
        with urllib.request.build_opener(_NoRedirect).open(request, timeout=deadline):
            return None
    except urllib.error.HTTPError as error:
        return f"{host} answered {error.code} {error.reason}"
    except Exception as error:
        why = error.reason if isinstance(error, urllib.error.URLError) else error
        return f"{host} could not be notified: {why}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
