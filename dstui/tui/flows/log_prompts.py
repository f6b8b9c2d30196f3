"""Questions about the log of a job: a host, a rank, a time or step, a text. Functions check the input."""

from __future__ import annotations

from collections.abc import Collection

from dstui.tui.dialogs.dialog import Prompt
from dstui.tui.kit.tools import say
from dstui.tui.run.host_lines import host_choices
from dstui.tui.run.job_view import JobView
from dstui.tui.run.watched_job import WatchedJob

STEP = r"\bstep\D{{0,3}}{}\b"
"""How log lines name a step."""
FEW_HOSTS = 5
"""Up to this many hosts a key cycles through them; for more there is a list."""


class LogPrompts:
    """Ask, and show the answer in the log of the job."""

    def __init__(self, view: JobView) -> None:
        self._view = view

    def host(self, job: WatchedJob) -> None:
        """Show the next host with its ranks and log; ask for one if there are many."""
        hosts: list[str | None] = [None, *job.hosts]
        if len(hosts) > FEW_HOSTS:
            from dstui.tui.dialogs.pick import Hosts

            self._view.app.push_screen(Hosts(lambda text, width: host_choices(self._view.hosts, text, width)), self._host_chosen)
        elif len(hosts) == 2:
            say(self._view.app, f"All ranks are on {hosts[1]}.")
        else:
            here = self._view.job_log.filter.host
            self._view.show_host(hosts[(hosts.index(here) + 1) % len(hosts)] if here in hosts else None)

    def _host_chosen(self, host: str | None) -> None:
        if host is not None:
            self._view.show_host(host or None)

    def time(self, job: WatchedJob) -> None:
        """Ask for a time or a step, and go there."""
        ask = "14:02 or 14:02:11, 5m for five minutes before the end, or the number of a step:"
        prompt = Prompt("Go to a time or a step", ask, "", lambda text: no_time(text, job.latest))
        self._view.app.push_screen(prompt, lambda text: self._time_typed(text, job.latest))

    def _time_typed(self, text: str | None, latest: float) -> None:
        from dstui.logs.time_parsing import parse_moment

        if text and text.strip().isdecimal():
            self._view.job_log.find(STEP.format(text.strip()), regex=True, own=True, name=f"step {text.strip()}")
        elif text and (goal := parse_moment(text, latest)) is not None:
            self._view.job_log.go_to_time(goal)

    def rank(self, job: WatchedJob) -> None:
        """Ask for the number of a rank."""
        prompt = Prompt("Rank", "Its number:", "", lambda text: no_rank(job.follower.ranks, text))
        self._view.app.push_screen(prompt, lambda text: self._view.show_rank(int(text)) if text else None)


def no_time(text: str, latest: float) -> str:
    """Return why a text is neither a time nor a step, or "". `latest`: the time (seconds since the epoch) that "5m" counts back from."""
    from dstui.logs.time_parsing import parse_moment

    return "" if text.strip().isdecimal() or parse_moment(text, latest) is not None else f"{text or '–'} is neither a time nor a step."


def no_rank(ranks: Collection[int], text: str) -> str:
    """Return why a text is no rank of the job, or ""."""
    if text.strip().isdecimal() and int(text) in ranks:
        return ""
    return f"There is no rank {text or '–'}; this job has {f'0 to {max(ranks)}' if ranks else 'none yet'}."
