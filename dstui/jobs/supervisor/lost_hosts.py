"""Unreachable hosts of a job: reported once a minute, and given up after `run.host_lost` if no other host makes progress."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dstui.jobs.hosts.job_host import JobHost
    from dstui.jobs.hosts.job_hosts import JobHosts
    from dstui.jobs.hosts.mirror import Mirror
    from dstui.jobs.store.ranks import Ranks
    from dstui.jobs.store.records import HostStatus

REMINDER = 60.0
"""Seconds between two reminders of an unreachable host."""


class LostHosts:
    """Watches for unreachable hosts of a job."""

    def __init__(self, limit: float, cluster: JobHosts, mirror: Mirror, tell: Callable[..., None]) -> None:
        """Prepare to watch. `limit`: seconds until a host is given up, 0 for never; `tell` writes an event of the job."""
        self.limit, self.cluster, self.mirror, self.tell = limit, cluster, mirror, tell
        self.given_up: dict[str, str] = {}
        """Host -> why it was given up, if that has ended the job."""

    def remind(self) -> None:
        """Report once a minute which hosts are still unreachable."""
        now = time.monotonic()
        for host in self.cluster.living:
            seconds = host.unreachable_for(now)
            if seconds < REMINDER * (host.reminders + 1) or host.name in self.given_up:
                continue
            host.reminders = int(seconds // REMINDER)
            after = _duration(self.limit) if self.limit else ""
            then = f". The job fails after {after}, unless a rank elsewhere writes a line (run.host_lost)" if after else ""
            text = f"{host.name} has been unreachable for {_duration(seconds)}: {host.why}{then}"
            self.tell("host", host=host.name, state="unreachable", seconds=round(seconds, 1), text=text)

    def beyond_limit(self, ranks: Ranks) -> list[JobHost]:
        """Return the hosts that are unreachable for too long, unless a rank of another host has written a line in that time.

        If only the connection to a healthy training is cut, some reachable rank makes progress.
        """
        if not self.limit:
            return []
        now = time.monotonic()
        working = {rank.host for rank in ranks.ranks.values() if not rank.over}
        lost = [host for host in self.cluster.living if host.name in working and host.unreachable_for(now) > self.limit]
        heard = any(now - host.spoke <= self.limit for host in self.cluster.hosts.values() if host not in lost)
        return [] if heard else lost

    def give_up(self, hosts: list[JobHost]) -> None:
        """Fail the job because of lost hosts: their ranks count as lost since the last message of their hosts."""
        for host in hosts:
            seconds = host.unreachable_for(time.monotonic())
            self.given_up[host.name] = f"given up after {_duration(seconds)} (run.host_lost)"
            with suppress(OSError):
                self.mirror.lose(host.name, time.time() - seconds)
            text = f"{host.name} has been unreachable for {_duration(seconds)}, and no rank elsewhere has written a line since"
            self.tell("host", host=host.name, state="lost", seconds=round(seconds, 1), text=f"{text}: the job has failed ({host.why})")

    def statuses(self) -> dict[str, HostStatus]:
        """Return the status of each host, with the reason for one that was given up and is still unreachable."""
        hosts = dict(self.cluster.statuses)
        for name, why in self.given_up.items():
            if hosts[name].state == "unreachable":
                hosts[name] = replace(hosts[name], problem=f"{why}: {hosts[name].problem}")
        return hosts


def _duration(seconds: float) -> str:
    """Format a duration: `12 min 5 s`."""
    from dstui.jobs.watch.summary import duration_text  # only a job with a lost host needs these imports

    return duration_text(seconds)
