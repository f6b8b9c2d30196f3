"""The supervisor of a job on several hosts: the same, with an agent on every host for eyes and hands (dstui/hosts/agent.py).

What it adds: the hosts are connected before anything is started, so that what one of them lacks is said first; a host that cannot be
reached is no failure of the job; and the end is proven on each host, or said to be not confirmed there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from dstui.hosts.srun import release
from dstui.jobs.hosts.job_host import JobHost
from dstui.jobs.hosts.mirror import Mirror
from dstui.jobs.store.folder import JobFolder
from dstui.jobs.store.processes import Process, descendants, tagged
from dstui.jobs.store.ranks import ranks_in_words
from dstui.jobs.store.records import ClusterRecord
from dstui.jobs.supervisor.host_orders import cluster_of, start_order
from dstui.jobs.supervisor.lost_hosts import LostHosts
from dstui.jobs.supervisor.supervisor import LINGER_FAILED, STUCK, Supervisor

REACHING = 60.0
"""Seconds that hosts get to be reached before anything is started."""
ANSWERING = 3.0
"""Seconds that hosts which are being reached when the job is given up get to answer: the folder may have been made there just then."""
ALONE = 8.0
"""Seconds after a failure in which the ranks of other hosts may fail or end by themselves: no launcher ends them."""
FAR_LINGER = 6.0
"""Seconds that launchers get to end by themselves after the last rank: three of DeepSpeed's own, and their way home."""
SETTLE = 3.0
"""Seconds after the end of the launchers in which the ranks' last words come."""


class ClusterSupervisor(Supervisor):
    """Looks after a job on several hosts."""

    def __init__(self, folder: JobFolder, tag: str, cluster: ClusterRecord) -> None:
        super().__init__(folder, tag)
        self.plan = cluster
        self.mirror = Mirror(folder, tag, self.status)
        self.cluster = cluster_of(self.record, self.mirror, self.status)
        self._more: Sequence[str] = ()
        self._started = self._refused = self._to_launch = False
        self._cut = any(host.state == "unreachable" for host in self.status.hosts.values())
        """Whether a host was unreachable during this attempt."""
        self.lost = LostHosts(self.record.host_lost, self.cluster, self.mirror, self.event)

    @property
    def fresh(self) -> bool:
        """An agent starts its host's launcher once, however often it is asked to; one that we start ourselves is not like that."""
        return self.plan.each_host_starts or super().fresh

    def launch(self, more: Sequence[str] = ()) -> None:
        """Begin an attempt: it starts when every host is there."""
        self._more, self._started, self._to_launch, self._cut = more, False, True, False
        self.mirror.attempt = self.ranks.attempt
        for host in self.cluster.hosts.values():
            host.code, host.left, host.stopped = None, None, False

    def poll(self) -> None:
        """Everything, and the hosts."""
        self.cluster.pump(0.0)
        self._hear_hosts()
        self.lost.remind()
        if not self._started and not self._refused and self.asked is None:
            self._go()
        super().poll()

    def sleep(self) -> None:
        """Until something comes from a host, or the next look."""
        self.cluster.pump(self.pause)
        self.hear_signals(0.0)

    def _hear_hosts(self) -> None:
        """What has become of the hosts: an event each, and status.json."""
        for host, state, text in self.cluster.take_news():
            self.event("host", host=host.name, state=state, text=text)
            self._cut = self._cut or state == "unreachable"
            if state == "reached" and not host.there and self.status.state == "running":
                self._vanished(host)
        if (statuses := self.cluster.statuses) != self.status.hosts:
            self.note_in_status(hosts=statuses)
            self._unwritten = True

    def _vanished(self, host: JobHost) -> None:
        """A host that has lost the job's folder has lost the job: it was started anew."""
        lost = self.mirror.lose(host.name, time.time())
        host.code = host.code if host.code is not None else 1
        self.note(f"{host.name} has nothing of the job any more ({ranks_in_words(lost)}): was it started anew?")

    def _go(self) -> None:
        """Start the ranks, once every host is there and has what the job needs."""
        begun = self.status.state != "starting" or not self._to_launch
        if not begun and (self.cluster.lacking or self.lasting("reaching", bool(self.cluster.unreached)) > REACHING):
            self._refuse()
        elif begun or not self.cluster.unreached:
            self._started = True
            self.cluster.start({name: start_order(self.record, name, self.mirror, self._more) for name in self.plan.hosts})
            if self._to_launch and not self.plan.each_host_starts:
                super().launch(self._more)
            elif self._to_launch:
                self.event("facts", attempt=self.ranks.attempt, **self.facts.now())
            self._to_launch = False

    def _refuse(self) -> None:
        """Nothing is started where one host cannot take part."""
        self._refused = True
        for host in self.cluster.lacking or self.cluster.unreached:
            for problem in host.lacks or (host.why,):
                self.note(f"{host.name}: {problem}: nothing was started")

    @property
    def bereft(self) -> bool:
        """Whether no launcher is left that could start ranks."""
        if not self._started:
            return False
        return all(host.code is not None for host in self.cluster.hosts.values()) if self.plan.each_host_starts else super().bereft

    def through(self) -> bool:
        """Whether the job is over: asked to stop, all ranks ended, none can start any more, or it is stuck after a failure."""
        if self.asked is not None or self.ranks.over or self._refused:
            return True
        if self._started and (lost := self.lost.beyond_limit(self.ranks)):
            self.lost.give_up(lost)
            return True
        settled = self.bereft and not self.ranks.living and not self.cluster.unreached
        if self.lasting("settled", settled) > SETTLE:
            return True
        if self.lasting("orphans", self._orphans()) > ALONE:
            self.note(f"the launcher has ended, but {ranks_in_words(self.ranks.living)} have not: they are stopped")
            return True
        failed = self.ranks.first_failure is not None or bool(self._without_launcher())
        return self.lasting("failed", failed) > ALONE or self.lasting("stuck", self.bereft and bool(self.ranks.waiting)) > STUCK

    def _orphans(self) -> bool:
        """Whether the one launcher of all hosts was ended before the ranks, which is to end the job, whether or not it takes them along.

        One whose hosts cannot be reached ends too; the ranks go on there, and may.
        """
        return self.bereft and bool(self.ranks.living) and not self.plan.each_host_starts and not self._cut

    def _without_launcher(self) -> list[int]:
        """The ranks that have not started and whose host's launcher has ended."""
        ended = {host.name for host in self.cluster.hosts.values() if host.code is not None}
        return [number for number in self.ranks.waiting if self.ranks.ranks[number].host in ended]

    def clear(self) -> None:
        """Leave nothing of this attempt behind, on any host; what runs here, a launcher of all hosts, ends last."""
        by_itself = self.ranks.over and self.asked is None
        self._until(lambda: self.lasting("answering", bool(self.cluster.starting)) > ANSWERING or not self.cluster.starting)
        for host in self.cluster.starting:  # nothing can be there
            host.enter("ended", host.status.problem)
            host.close()
        linger = (LINGER_FAILED if self.ranks.exit_code() else FAR_LINGER) if by_itself else 0.0
        self.cluster.stop(linger=linger, ask=not by_itself)
        self._until(lambda: not self.cluster.stopping)
        for sentence in self.cluster.unconfirmed:
            self.note(sentence)
        super().clear()

    def _until(self, reached: Callable[[], bool]) -> None:
        while not reached():
            self.sleep()
            self.poll()

    def again(self) -> bool:
        """A further attempt needs every host."""
        if self._refused or any(host.left != () for host in self.cluster.hosts.values()):
            return False
        return super().again()

    def end(self) -> None:
        """Take the job's folders away from the hosts, and say the last word."""
        self.cluster.clean()
        self._until(lambda: not self.cluster.cleaning)
        self.poll()
        self.cluster.close()
        self.note_in_status(hosts=self.lost.statuses())
        if self.plan.makes_allocations and (problem := release(self.tag)):
            self.note(problem)
        super().end()

    def members(self) -> set[Process]:
        """What of the job runs here: not what reaches the hosts."""
        return tagged(self.tag) | (descendants(self.launcher.pid) if self.launcher else set())
