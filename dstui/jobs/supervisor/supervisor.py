"""The supervisor of one job: a small process that starts the launcher, watches the ranks and records their state.

    python -m dstui.jobs.supervisor FOLDER [LOCK_FD]
It survives the terminal, and the job survives it: the next command that acts for the job starts another supervisor, which continues from
the job folder. It sleeps in sigtimedwait, polls a few times a second, and takes less than 0.1 % of a core.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from dstui.jobs.rank.shim import prctl
from dstui.jobs.store.cleanup import OpBuilds, build_root
from dstui.jobs.store.folder import JobFolder
from dstui.jobs.store.ownership import NotOwn, own_tag
from dstui.jobs.store.processes import SUPERVISES, Process, find, reap
from dstui.jobs.store.ranks import Ranks
from dstui.jobs.store.records import ProcessRecord
from dstui.jobs.store.status import HEARTBEAT, finish, requested_exit_code
from dstui.jobs.supervisor.escalation import escalate, rank_processes, until_gone
from dstui.jobs.supervisor.hang_stacks import HangStacks
from dstui.jobs.supervisor.restart import Allocation, restart_arguments
from dstui.jobs.supervisor.silence import SilenceWatch
from dstui.jobs.supervisor.supervised_job import SupervisedJob, ThisHost
from dstui.logs.arrival_index import ArrivalWriter

if TYPE_CHECKING:
    from dstui.jobs.watch.usage import Sampler

PR_SET_CHILD_SUBREAPER = 36
POLL, LONGEST_POLL, FEW = 0.2, 1.0, 100
"""Seconds between two polls; the launcher's death and a request to stop wake the supervisor at once. Polling a rank takes 20 µs. With more
than a few ranks the pause grows with their number, so that 100 and 500 ranks both take 1 % of a core."""
LINGER, LINGER_FAILED = 3.0, 1.0
"""Seconds for the launcher and helpers of the ranks to end by themselves after the last rank. Less after a failure, when the user waits."""
LATE = 60.0
"""Seconds after which ranks that have not started are reported."""
USAGE_AFTER = 3.0
"""Seconds after the start from which GPU use is recorded."""
STOPPED_BY = {signal.SIGTERM: 128 + signal.SIGTERM, signal.SIGINT: 128 + signal.SIGINT}
OWNER_GONE = 128 + signal.SIGTERM


class Supervisor:
    """Supervises the job in one folder, from its present state to its end."""

    def __init__(self, job: SupervisedJob, hosts: ThisHost) -> None:
        self.job, self.hosts, self.folder = job, hosts, job.folder
        self.owner = job.status.owner.here if job.status.owner else None
        self.builds = OpBuilds(build_root({**os.environ, **job.record.env}))
        self.arrivals = ArrivalWriter(job.folder)
        self.locks: list[int | None] = []
        """Locks of deleted job folders, held until the end in addition to the inherited one."""
        self.silence = SilenceWatch(job.folder, job.record.silence)
        self.stacks = HangStacks(job.folder)
        self._named_late = False
        self.allocation = Allocation(job, job.status.slurm_job) if job.status.slurm_job else None
        self._usage: Sampler | None = None

    def run(self) -> None:
        """Supervise the job until it has ended and no process of it is left."""
        prctl(PR_SET_CHILD_SUBREAPER, 1)  # processes that the launcher orphans become our children, so that they are seen and reaped
        me = find(os.getpid())
        self.job.note_in_status(supervisor=ProcessRecord.of(me) if me else None)
        if self.hosts.is_unstarted:
            with suppress(OSError):
                self.folder.keep_reserve(self.job.status)
            self.hosts.launch()
        for number, rank in self.job.ranks.ranks.items():  # what happened while no supervisor ran
            if rank.state != (known.state if (known := self.job.status.ranks.get(number)) else "waiting"):
                self.job.rank_event(number, rank)
        self.job.write()
        while True:
            while not self.through():
                self.turn()
            self.clear()
            if not self.again():
                break
        self.end()

    @property
    def pause(self) -> float:
        """The seconds until the next poll."""
        return min(POLL * max(len(self.job.ranks.ranks) / FEW, 1.0), LONGEST_POLL)

    def sleep(self) -> None:
        """Sleep until the next poll, a child's death or a signal."""
        self.hear_signals(self.hosts.wait(self.pause))

    def hear_signals(self, pause: float) -> None:
        """Wait `pause` seconds for a signal. One that asks for the job's end is recorded as a request."""
        news = signal.sigtimedwait((signal.SIGCHLD, signal.SIGUSR1, *STOPPED_BY), pause)
        if (
            news
            and self.allocation
            and self.job.asked is None
            and requested_exit_code(self.folder) is None
            and news.si_signo != signal.SIGCHLD
        ):
            self.job.asked = self.allocation.signalled(news.si_signo)
        elif news and news.si_signo in STOPPED_BY and self.job.asked is None:
            self.job.asked = STOPPED_BY[signal.Signals(news.si_signo)]
            sender = Process(news.si_pid, 0).describe()
            self.job.note(f"{signal.Signals(news.si_signo).name} from process {sender}: the job is stopped", stops=True)

    def poll(self) -> None:
        """Update everything: requests to stop, the ranks, the facts about them, and status.json if anything changed."""
        self.hosts.poll()
        self.job.note_reaped(reap())
        self.hear_requests()
        changed = self.job.ranks.update(time.time())
        if changed or self.job.every("arrivals", 1.0):
            self.arrivals.update(time.time(), self.job.ranks.attempt)  # first, so that a rank's last lines come before its end
        for number in changed:
            self.job.rank_event(number, self.job.ranks.ranks[number])
        self.note_facts(changed)
        if self.job.status.state == "starting" and len(self.job.ranks.waiting) < len(self.job.ranks.ranks):
            self.job.note_in_status(state="running")
        if self.job.every("folder", 1.0):
            self.keep_folder()
        if self.job.every("heartbeat", HEARTBEAT):
            with suppress(OSError):
                self.folder.beat()
        if self.job.asked is not None or self.job.every("builds", 1.0):  # a lock is recognised by its holder, which soon ends
            self.note_builds()
        self.name_the_late()
        self.note_silence()
        self.note_usage()
        if changed or self.job.unwritten:
            self.job.write()

    def hear_requests(self) -> None:
        """Check for requests to end the job: a stop.json, or the end of the process that owns the job."""
        if self.job.asked is None:
            self.job.asked = requested_exit_code(self.folder)
        if self.job.asked is None and self.owner and not self.owner.alive:
            self.job.note("the terminal or command that this job belongs to is gone: the job is stopped", stops=True)
            self.job.asked = OWNER_GONE

    def note_builds(self) -> None:
        """Report which ranks compile an op of DeepSpeed or wait for one."""
        if self.job.ranks.unseen:
            return  # they build on other hosts
        for news in self.builds.poll({number: self.job.ranks.ranks[number].pid or 0 for number in self.job.ranks.living}):
            self.job.event("notice", text=news.text, about=news.folder, lasts=news.lasts)

    def keep_folder(self) -> None:
        """Restore a folder that was deleted while the job runs: without it nobody could find or stop the job."""
        folder = self.folder
        if folder.lock_file.exists():
            return
        with suppress(OSError):
            folder.prepare(self.job.ranks.attempt)
            folder.write_json(folder.launch_file, self.job.record.as_json())
            for number, rank in self.job.ranks.ranks.items():
                if rank.pid is not None:
                    folder.write_json(folder.record(number, self.job.ranks.attempt), rank.as_record(number, self.job.tag))
            self.locks.append(folder.lock())
            self.job.write()
            self.job.note("the job folder was deleted while the job runs: all output of the ranks is lost")

    def note_facts(self, changed: Sequence[int]) -> None:
        """Write facts that may explain an end when a rank has ended. Their minimum is sampled all the time."""
        ranks = self.job.ranks.ranks
        for number in changed:
            here = ranks[number].host == os.uname().nodename and not self.job.ranks.unseen
            if ranks[number].state == "started" and ranks[number].pid and here:
                self.job.facts.began(number, ranks[number].pid or 0)
        if ended := [number for number in changed if ranks[number].over]:
            self.job.event("facts", attempt=self.job.ranks.attempt, **self.job.facts.ended(ended))
        elif self.job.every("facts", 1.0):
            self.job.facts.now()
            self.job.note_full_disk(self.job.facts.full_disk())

    def through(self) -> bool:
        """Return whether the attempt is over: stop requested, all ranks ended, or it cannot continue."""
        return self.job.asked is not None or self.job.ranks.over or self.hosts.over()

    def turn(self) -> None:
        """Wait for the next poll, and poll."""
        self.sleep()
        self.poll()

    def clear(self) -> None:
        """End everything of this attempt, on all hosts."""
        self.stacks.close()
        by_itself = self.job.ranks.over and self.job.asked is None
        self.hosts.stop(by_itself, self.turn)
        linger = LINGER_FAILED if self.job.ranks.exit_code() else LINGER
        left = until_gone(self.hosts.members, linger, self.poll) if by_itself else self.hosts.members()
        if left:
            left = escalate(self.hosts.members, [] if by_itself else rank_processes(self.job.ranks, left), self.poll)
        self.poll()
        for process in left:
            self.job.note(f"process {process.describe()} could not be ended")
        self.builds.remove_locks()
        if by_itself:
            self.job.asked = None  # a request that arrives while the last processes end is too late

    def again(self) -> bool:
        """Start a further attempt after a failure if the Plan wants one. Return False if the job is over.

        A job in which no rank ever started would fail again in the same way.
        """
        if not self.hosts.may_restart:
            return False
        allowed, attempt = self.job.record.restarts, self.job.ranks.attempt
        code = self.job.ranks.exit_code()
        if self.job.asked is not None or code == 0 or attempt > allowed.max or self.job.ranks.first_failure is None:
            return False
        self.job.note(f"attempt {attempt} ended with exit status {code} (rank {self.job.ranks.first_failure} first)")
        pause = time.monotonic() + allowed.backoff
        self.job.note_in_status(next_attempt=time.time() + allowed.backoff)
        self.job.write()
        while time.monotonic() < pause and self.job.asked is None:
            self.turn()
        self.job.note_in_status(next_attempt=None)
        if self.job.asked is not None:
            return False
        more, how = restart_arguments(self.job.record, self.job.status.started or 0.0)
        self.job.note(f"attempt {attempt + 1} of {allowed.max + 1} starts {how}")
        try:
            self.begin(attempt + 1, more)
        except OSError as error:
            self.job.note(f"attempt {attempt + 1} could not start: {error}")
            return False
        return True

    def begin(self, attempt: int, more: Sequence[str]) -> None:
        """Start the ranks of an attempt, which has a folder of its own."""
        self.folder.prepare(attempt)
        hosts = {number: rank.host for number, rank in self.job.ranks.ranks.items()}
        self.job.ranks = Ranks.expected(self.folder, hosts, attempt, self.job.tag)
        self.job.ranks.unseen = bool(self.job.status.hosts)
        self.job.note_in_status(attempt=attempt, state="starting")
        self.job.forget_timers()
        self._named_late = False
        self.silence = SilenceWatch(self.folder, self.job.record.silence)
        self.stacks = HangStacks(self.folder)
        self.hosts.launch(more)
        self.job.write()

    def end(self) -> None:
        """Write how the job ended, and send the notification."""
        if self._usage is not None:
            self._usage.close()
        self.hosts.close(self.turn)
        self.arrivals.update(time.time(), self.job.ranks.attempt)
        self.job.note_full_disk(self.job.facts.full_disk())
        if self.allocation and self.allocation.waits_again():
            return
        end = self.allocation.end if self.allocation else "stopped"
        self.job.status = finish(self.folder, self.job.status, self.job.ranks, self.job.asked, end=end)
        with suppress(OSError):
            self.folder.reserve.unlink(missing_ok=True)
        if self.job.record.on_end:
            from dstui.jobs.supervisor.notify import announce  # importing urllib would cost every job 20 ms

            if problem := announce(self.job.record, self.folder, self.job.status, self.job.ranks):
                self.job.note(problem)
        if self.folder.names_model:
            from dstui.jobs.watch.taken import keep  # importing the forecast would cost every job a tenth of a second

            keep(self.folder)

    def name_the_late(self) -> None:
        """Report once which ranks have not started."""
        waiting = self.job.ranks.waiting
        if self.job.lasting("late", bool(waiting)) > LATE and not self._named_late:
            self._named_late = True
            named = ", ".join(f"rank {number} on {self.job.ranks.ranks[number].host}" for number in waiting)
            self.job.note(f"after {LATE:.0f} s not yet started: {named}")

    def note_usage(self) -> None:
        """Start to record resource use. A job that ends earlier has no history."""
        if self._usage is None and self.job.status.state == "running" and self.job.lasting("usage", True) > USAGE_AFTER:
            # importing psutil and starting NVML's child would cost every job a tenth of a second
            from dstui.jobs.watch.usage import Sampler
            from dstui.jobs.watch.usage_history import EVERY, UsageHistory

            self._usage = Sampler(self.folder, EVERY, UsageHistory(self.folder.path).add)

    def note_silence(self) -> None:
        """Record when all ranks are silent and when they continue; nothing while a host is unreachable."""
        if any(host.state == "unreachable" for host in self.job.status.hosts.values()) or not self.job.every("silence", self.silence.pace):
            return
        if news := self.silence.news(self.job.ranks, time.time()):
            name, facts = news
            self.job.event(name, attempt=self.job.ranks.attempt, **facts)
            if name == "silence":
                self.stacks.take()


def main(argv: list[str]) -> int:
    """Supervise the job in a folder, unless it has a supervisor."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGCHLD, signal.SIGUSR1, *STOPPED_BY))
    folder = JobFolder(argv[0])
    try:
        # A parent that passes the lock has checked the ownership of the job.
        tag = os.environ[SUPERVISES] if len(argv) > 1 else own_tag(folder, folder.read_status())
    except NotOwn as why:
        print(f"{folder.path} {why}", file=sys.stderr)
        return 1
    lock = int(argv[1]) if len(argv) > 1 else folder.lock()
    if lock is None:
        print(f"{folder.path} has a supervisor already", file=sys.stderr)
        return 1
    os.set_inheritable(lock, False)
    job = SupervisedJob(folder, tag)
    Supervisor(job, _hosts_of(job)).run()
    return 0


def _hosts_of(job: SupervisedJob) -> ThisHost:
    """Return this host alone, or the several hosts of a job."""
    if job.record.cluster is None:
        return ThisHost(job)
    from dstui.jobs.supervisor.remote_hosts import RemoteHosts  # not needed for a job of one host

    return RemoteHosts(job, job.record.cluster)
