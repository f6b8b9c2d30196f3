"""Hosts that cannot be reached: told once a minute, and given up after `run.host_lost` where nobody else is at work."""

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
"""Seconds between two lines that say that a host is still unreachable."""


class LostHosts:
    """Watches the hosts of a job that do not answer."""

    def __init__(self, limit: float, cluster: JobHosts, mirror: Mirror, tell: Callable[..., None]) -> None:
        """`limit`: seconds until a host is given up; 0 never does. `tell` writes an event of the job."""
        self.limit, self.cluster, self.mirror, self.tell = limit, cluster, mirror, tell
        self.given_up: dict[str, str] = {}
        """Host -> why it was given up, where that has ended the job."""

    def remind(self) -> None:
        """Tell once a minute which hosts are still unreachable."""
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
        """Return the hosts that are unreachable for too long, where no rank of another host has written a line in that time either.

        A cut connection under a healthy training is no such case: some rank that can be heard goes on.
        """
        if not self.limit:
            return []
        now = time.monotonic()
        working = {rank.host for rank in ranks.ranks.values() if not rank.over}
        lost = [host for host in self.cluster.living if host.name in working and host.unreachable_for(now) > self.limit]
        heard = any(now - host.spoke <= self.limit for host in self.cluster.hosts.values() if host not in lost)
        return [] if heard else lost

    def give_up(self, hosts: list[JobHost]) -> None:
        """Fail the job for hosts that are lost: their ranks count as lost since the hosts were last heard."""
        for host in hosts:
            seconds = host.unreachable_for(time.monotonic())
            self.given_up[host.name] = f"given up after {_duration(seconds)} (run.host_lost)"
            with suppress(OSError):
                self.mirror.lose(host.name, time.time() - seconds)
            text = f"{host.name} has been unreachable for {_duration(seconds)}, and no rank elsewhere has written a line since"
            self.tell("host", host=host.name, state="lost", seconds=round(seconds, 1), text=f"{text}: the job has failed ({host.why})")

    def statuses(self) -> dict[str, HostStatus]:
        """Return the status of each host; of one that was given up and is still unreachable, with the reason."""
        hosts = dict(self.cluster.statuses)
        for name, why in self.given_up.items():
            if hosts[name].state == "unreachable":
                hosts[name] = replace(hosts[name], problem=f"{why}: {hosts[name].problem}")
        return hosts


def _duration(seconds: float) -> str:
    """`12 min 5 s`."""
    from dstui.jobs.watch.summary import duration_text  # only a job with a host that is lost needs what it imports

    return duration_text(seconds)
