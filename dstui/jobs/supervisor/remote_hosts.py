"""The hosts of a job that runs on several: an agent on each observes and acts for the supervisor (dstui/hosts/agent.py).

All hosts are connected before anything starts, so that missing requirements are reported first. An unreachable host is not a failure of the
job: it is reported once a minute, and given up after `run.host_lost` if no other host makes progress. The end is confirmed by each host, or
reported as unconfirmed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from dstui.hosts.connection import release
from dstui.jobs.hosts.job_host import JobHost
from dstui.jobs.hosts.mirror import Mirror
from dstui.jobs.store.processes import Process, descendants, tagged
from dstui.jobs.store.ranks import ranks_in_words
from dstui.jobs.store.records import ClusterRecord
from dstui.jobs.supervisor.host_orders import cluster_of, start_order
from dstui.jobs.supervisor.supervised_job import STUCK, SupervisedJob, ThisHost

if TYPE_CHECKING:
    from dstui.jobs.hosts.job_host import JobHost
    from dstui.jobs.hosts.job_hosts import JobHosts
    from dstui.jobs.hosts.mirror import Mirror
    from dstui.jobs.store.ranks import Ranks
    from dstui.jobs.store.records import HostStatus

REACHING = 60.0
"""Seconds for reaching the hosts before anything is started."""
ANSWERING = 3.0
"""Seconds for hosts that are being connected when the job is given up: their folder may just have been created."""
ALONE = 8.0
"""Seconds after a failure in which ranks of other hosts may fail or end by themselves, since no launcher ends them."""
FAR_LINGER, FAR_LINGER_FAILED = 6.0, 1.0
"""Seconds for launchers to end by themselves after the last rank: three for DeepSpeed's own, plus network delays. Less after a failure,
when the user waits."""
ASKED = 0.5
"""Seconds between two looks for a request of stacks."""
SETTLE = 3.0
"""Seconds after the end of the launchers in which the last output of the ranks arrives."""


class RemoteHosts(ThisHost):
    """The ranks' hosts, with the interface that the supervisor uses."""

    def __init__(self, job: SupervisedJob, cluster: ClusterRecord) -> None:
        super().__init__(job)
        self.plan = cluster
        self.mirror = Mirror(job.folder, job.tag, job.status)
        self.cluster = cluster_of(job.record, self.mirror, job.status)
        self._more: Sequence[str] = ()
        self._started = self._refused = self._to_launch = False
        self._cut = any(host.state == "unreachable" for host in self.job.status.hosts.values())
        """True if a host was unreachable during this attempt."""
        self._stacks_asked = job.folder.stacks_asked()
        self.lost = LostHosts(self.job.record.host_lost, self.cluster, self.mirror, self.job.event)

    @property
    def is_unstarted(self) -> bool:
        """Return whether a start is safe. It always is if agents start the launchers, because each agent does it only once per attempt."""
        return self.plan.each_host_starts or super().is_unstarted

    def launch(self, more: Sequence[str] = ()) -> None:
        """Begin an attempt. It starts when every host is connected."""
        self._more, self._started, self._to_launch, self._cut = more, False, True, False
        self.mirror.attempt = self.job.ranks.attempt
        for host in self.cluster.hosts.values():
            host.code, host.left, host.stopped = None, None, False

    def poll(self) -> None:
        """Process messages of the hosts, and start the ranks once every host is connected."""
        self.cluster.pump(0.0)
        self._hear_hosts()
        self.lost.remind()
        if not self._started and not self._refused and self.job.asked is None:
            self._go()
        if self.job.every("stacks asked", ASKED) and (asked := self.job.folder.stacks_asked()) > self._stacks_asked:
            self._stacks_asked = asked
            self.cluster.ask_for_stacks(asked)

    def wait(self, pause: float) -> float:
        """Wait until a host sends something, or the pause is over."""
        self.cluster.pump(pause)
        return 0.0

    def _hear_hosts(self) -> None:
        """Write an event for each host whose state has changed, and update the status."""
        for host, state, text in self.cluster.take_news():
            self.job.event("host", host=host.name, state=state, text=text)
            self._cut = self._cut or state == "unreachable"
            if state == "reached" and not host.there and self.job.status.state == "running":
                self._vanished(host)
        if (statuses := self.cluster.statuses) != self.job.status.hosts:
            self.job.note_in_status(hosts=statuses)
            self.job.unwritten = True

    def _vanished(self, host: JobHost) -> None:
        """Mark the ranks of a host as lost if the host has lost the job's folder, as after a reboot."""
        lost = self.mirror.lose(host.name, time.time())
        host.code = host.code if host.code is not None else 1
        self.job.note(f"{host.name} no longer runs any process of the job ({ranks_in_words(lost)}): was it restarted?")

    def _go(self) -> None:
        """Start the ranks once every host is connected and has what the job needs."""
        begun = self.job.status.state != "starting" or not self._to_launch
        if not begun and (self.cluster.lacking or self.job.lasting("reaching", bool(self.cluster.unreached)) > REACHING):
            self._refuse()
        elif begun or not self.cluster.unreached:
            self._started = True
            self.cluster.start({name: start_order(self.job.record, name, self.mirror, self._more) for name in self.plan.hosts})
            if self._to_launch and not self.plan.each_host_starts:
                self.job.start_launcher(self._more)
            elif self._to_launch:
                self.job.event("facts", attempt=self.job.ranks.attempt, **self.job.facts.now())
            self._to_launch = False

    def _refuse(self) -> None:
        """Start nothing, and report which host cannot take part."""
        self._refused = True
        for host in self.cluster.lacking or self.cluster.unreached:
            for problem in host.lacks or (host.why,):
                self.job.note(f"{host.name}: {problem}: nothing was started")

    @property
    def launcher_gone(self) -> bool:
        """Return whether no launcher is left on any host that could start ranks."""
        if not self._started:
            return False
        return all(host.code is not None for host in self.cluster.hosts.values()) if self.plan.each_host_starts else self.job.launcher_gone

    def over(self) -> bool:
        """Return whether the job cannot continue: a host lacks something or is lost, no launcher is left, or a failure left it stuck."""
        if self._refused:
            return True
        if self._started and (lost := self.lost.beyond_limit(self.job.ranks)):
            self.lost.give_up(lost)
            return True
        settled = self.launcher_gone and not self.job.ranks.living and not self.cluster.unreached
        if self.job.lasting("settled", settled) > SETTLE:
            return True
        if self.job.lasting("orphans", self._orphans()) > ALONE:
            self.job.note(f"the launcher has ended, but {ranks_in_words(self.job.ranks.living)} have not: they are stopped")
            return True
        failed = self.job.ranks.first_failure is not None or bool(self._without_launcher())
        return (
            self.job.lasting("failed", failed) > ALONE
            or self.job.lasting("stuck", self.launcher_gone and bool(self.job.ranks.waiting)) > STUCK
        )

    def _orphans(self) -> bool:
        """Return whether the single launcher of all hosts ended before the ranks, which ends the job even if it leaves them running.

        A launcher whose hosts are unreachable ends too; its ranks go on there and are left alone.
        """
        return self.launcher_gone and bool(self.job.ranks.living) and not self.plan.each_host_starts and not self._cut

    def _without_launcher(self) -> list[int]:
        """Return the ranks that have not started and whose host's launcher has ended."""
        ended = {host.name for host in self.cluster.hosts.values() if host.code is not None}
        return [number for number in self.job.ranks.waiting if self.job.ranks.ranks[number].host in ended]

    def stop(self, by_itself: bool, turn: Callable[[], None]) -> None:
        """End what is left of this attempt on the hosts. A launcher of all hosts, which runs here, ends last."""
        _until(lambda: self.job.lasting("answering", bool(self.cluster.starting)) > ANSWERING or not self.cluster.starting, turn)
        for host in self.cluster.starting:  # nothing can be running there
            host.enter("ended", host.status.problem)
            host.close()
        linger = (FAR_LINGER_FAILED if self.job.ranks.exit_code() else FAR_LINGER) if by_itself else 0.0
        self.cluster.stop(linger=linger, ask=not by_itself)
        _until(lambda: not self.cluster.stopping, turn)
        for sentence in self.cluster.unconfirmed:
            self.job.note(sentence)

    @property
    def may_restart(self) -> bool:
        """Return whether a further attempt can be started, which requires every host."""
        return not self._refused and all(host.left == () for host in self.cluster.hosts.values())

    def close(self, turn: Callable[[], None]) -> None:
        """Remove the job's folders from the hosts, and record the result."""
        self.cluster.clean()
        _until(lambda: not self.cluster.cleaning, turn)
        self.poll()
        for number in self.job.ranks.update(time.time()):
            self.job.rank_event(number, self.job.ranks.ranks[number])
        self.cluster.close()
        self.job.note_in_status(hosts=self.lost.statuses())
        if self.plan.makes_allocations and (problem := release(self.job.tag)):
            self.job.note(problem)

    def members(self) -> set[Process]:
        """Return the job's processes on this host, without the connections to the other hosts."""
        launcher = self.job.launcher
        return tagged(self.job.tag) | (descendants(launcher.pid) if launcher else set())


def _until(reached: Callable[[], bool], turn: Callable[[], None]) -> None:
    while not reached():
        turn()


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
