"""The supervisor of one job: a small process of its own that starts the launcher, watches the ranks and tells the truth about them.

    python -m dstui.jobs.supervisor FOLDER [LOCK_FD]

It goes on when the terminal is gone, and the job goes on without it: whoever looks next starts another one, which takes over where this
one was. It sleeps in sigtimedwait, looks a few times a second, and costs under 0.1 % of a core.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

from dstui.base.regular_files import open_regular
from dstui.jobs.rank.shim import prctl
from dstui.jobs.store.cleanup import OpBuilds, build_root
from dstui.jobs.store.folder import FULL, JobFolder
from dstui.jobs.store.ownership import NotOwn, own_tag
from dstui.jobs.store.processes import SUPERVISES, Process, descendants, find, reap, tagged
from dstui.jobs.store.ranks import Rank, Ranks
from dstui.jobs.store.records import JobStatus, LaunchRecord, ProcessRecord
from dstui.jobs.store.status import HEARTBEAT, asked_for, finish, ranks_of
from dstui.jobs.supervisor.escalation import escalate, rank_processes, until_gone
from dstui.jobs.supervisor.launch_command import command, environment
from dstui.jobs.supervisor.resource_facts import ResourceFacts
from dstui.jobs.supervisor.restart import restart_arguments
from dstui.jobs.supervisor.silence import SilenceWatch
from dstui.logs.arrival_index import ArrivalWriter

PR_SET_CHILD_SUBREAPER = 36
POLL, LONGEST_POLL, FEW = 0.2, 1.0, 100
"""Seconds between two looks; the death of the launcher and a request to stop wake it at once. Looking at a rank takes 20 µs: for more than
a few the pause grows with their number, so that 100 and 500 ranks cost 1 % of a core alike."""
LINGER, LINGER_FAILED = 3.0, 1.0
"""Seconds that the launcher and helpers of the ranks get to end by themselves after the last rank; after a failure somebody waits."""
STUCK = 30.0
"""Seconds after a failure, or after the death of the launcher, in which the rest must have ended or started."""
LATE = 60.0
"""Seconds after which ranks that have not started are named."""
STOPPED_BY = {signal.SIGTERM: 128 + signal.SIGTERM, signal.SIGINT: 128 + signal.SIGINT}
OWNER_GONE = 128 + signal.SIGTERM
APPEND = os.O_WRONLY | os.O_CREAT | os.O_APPEND


class Supervisor:
    """Looks after the job in one folder, from whatever point it is at to its end."""

    def __init__(self, folder: JobFolder, tag: str) -> None:
        """`tag`: of the job, by the user's own index."""
        self.folder, self.tag = folder, tag
        self.status = replace(folder.read_status() or JobStatus("running"), tag=tag)
        self.record = folder.read_launch() or LaunchRecord(missing="keys")
        if self.record.missing:
            self.record = LaunchRecord(missing=self.record.missing)
        self.owner = self.status.owner.here if self.status.owner else None
        self.launcher = self.status.launcher.here if self.status.launcher else None
        self.builds = OpBuilds(build_root({**os.environ, **self.record.env}))
        self.ranks = ranks_of(folder, self.status)
        self.arrivals = ArrivalWriter(folder)
        self.facts = ResourceFacts((folder.path, Path(self.record.workdir or folder.path)))
        self.locks: list[int | None] = []
        """Held until the end, beside the one that we were born with: of folders that were deleted."""
        self.asked: int | None = None
        self.silence = SilenceWatch(folder, self.record.silence)
        self._unwritten = self._named_late = False
        self._since: dict[str, float] = {}

    def run(self) -> None:
        """Until the job has ended and nothing of it is left."""
        prctl(PR_SET_CHILD_SUBREAPER, 1)  # what the launcher orphans becomes our child: it is seen, and reaped
        me = find(os.getpid())
        self.note_in_status(supervisor=ProcessRecord.of(me) if me else None)
        if self.fresh:
            with suppress(OSError):
                self.folder.keep_reserve(self.status)
            self.launch()
        for number, rank in self.ranks.ranks.items():  # what happened while nobody looked
            if rank.state != (known.state if (known := self.status.ranks.get(number)) else "waiting"):
                self.rank_event(number, rank)
        self.write()
        while True:
            while not self.through():
                self.sleep()
                self.poll()
            self.clear()
            if not self.again():
                break
        self.end()

    @property
    def fresh(self) -> bool:
        """Whether nothing has been started yet."""
        return self.status.state == "starting" and not self.launcher and not tagged(self.tag)

    @property
    def bereft(self) -> bool:
        """Whether no launcher is left that could start ranks."""
        return self.launcher is None or not self.launcher.alive

    def launch(self, more: Sequence[str] = ()) -> None:
        """Start the launcher; an interpreter that cannot be started is a job without ranks."""
        self.launcher = None
        self.note_in_status(launcher=None)
        self.event("facts", attempt=self.ranks.attempt, **self.facts.now())
        with os.fdopen(open_regular(self.folder.launcher_log, APPEND), "ab") as log:
            if child := self._launched(more, log):
                child.returncode = 0  # reap() collects it, and what becomes of it is the ranks' to tell
                self.launcher = find(child.pid)
                self.note_in_status(launcher=ProcessRecord.of(self.launcher) if self.launcher else None)

    def _launched(self, more: Sequence[str], log: BinaryIO) -> subprocess.Popen[bytes] | None:
        """The launcher; None where it cannot be started, which its log says."""
        if self.record.missing:
            log.write(f"dstui: cannot start the job: {self.folder.launch_file} does not say its {self.record.missing}\n".encode())
            return None
        try:
            argv = command(self.record, self.folder, self.tag, self.ranks.attempt, more)
            self.note_in_status(command=tuple(argv))
            return subprocess.Popen(
                argv,
                cwd=self.record.workdir,
                env=environment(self.record, self.folder, self.tag),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=default_signals,  # noqa: PLW1509 - there are no threads here
            )
        except OSError as error:
            log.write(f"dstui: cannot start {self.record.python} in {self.record.workdir}: {error.strerror}\n".encode())
        return None

    @property
    def pause(self) -> float:
        """Seconds until the next look."""
        return min(POLL * max(len(self.ranks.ranks) / FEW, 1.0), LONGEST_POLL)

    def sleep(self) -> None:
        """Until the next look, a dead child or a signal."""
        self.hear_signals(self.pause)

    def hear_signals(self, pause: float) -> None:
        """Wait so long for a signal; one that asks for the job's end is such a request."""
        news = signal.sigtimedwait((signal.SIGCHLD, signal.SIGUSR1, *STOPPED_BY), pause)
        if news and news.si_signo in STOPPED_BY and self.asked is None:
            self.asked = STOPPED_BY[signal.Signals(news.si_signo)]
            sender = Process(news.si_pid, 0).describe()
            self.note(f"{signal.Signals(news.si_signo).name} from process {sender}: the job is stopped", stops=True)

    def poll(self) -> None:
        """Bring everything up to date: requests to stop, the ranks, what is noted of them, and status.json where anything has changed."""
        reap()
        self.hear_requests()
        changed = self.ranks.update(time.time())
        if changed or self.every("arrivals", 1.0):
            self.arrivals.update(time.time(), self.ranks.attempt)  # first, so that a rank's last lines come before its end
        for number in changed:
            self.rank_event(number, self.ranks.ranks[number])
        self.note_facts(changed)
        if self.status.state == "starting" and len(self.ranks.waiting) < len(self.ranks.ranks):
            self.note_in_status(state="running")
        if self.every("folder", 1.0):
            self.keep_folder()
        if self.every("heartbeat", HEARTBEAT):
            with suppress(OSError):
                self.folder.beat()
        if self.asked is not None or self.every("builds", 1.0):  # a lock is known by its holder, who ends soon
            self.note_builds()
        self.name_the_late()
        self.note_silence()
        if changed or self._unwritten:
            self.write()

    def hear_requests(self) -> None:
        """Whether somebody asks for the job's end: a stop.json, or the end of the process that the job belongs to."""
        if self.asked is None:
            self.asked = asked_for(self.folder)
        if self.asked is None and self.owner and not self.owner.alive:
            self.note("the terminal or command that this job belongs to is gone: the job is stopped", stops=True)
            self.asked = OWNER_GONE

    def note_builds(self) -> None:
        """Which ranks compile an op of DeepSpeed, or wait for one that does."""
        if self.ranks.unseen:
            return  # they build on hosts of their own
        for news in self.builds.poll({number: self.ranks.ranks[number].pid or 0 for number in self.ranks.living}):
            self.event("notice", text=news.text, about=news.folder, lasts=news.lasts)

    def keep_folder(self) -> None:
        """Bring back a folder that was deleted under the job: without it nobody could find the job, or stop it."""
        folder = self.folder
        if folder.lock_file.exists():
            return
        with suppress(OSError):
            folder.prepare(self.ranks.attempt)
            folder.write_json(folder.launch_file, self.record.as_json())
            for number, rank in self.ranks.ranks.items():
                if rank.pid is not None:
                    folder.write_json(folder.record(number, self.ranks.attempt), rank.as_record(number, self.tag))
            self.locks.append(folder.lock())
            self.write()
            self.note("the job folder was deleted while the job runs: what the ranks have written, and will write, is lost")

    def note_facts(self, changed: Sequence[int]) -> None:
        """What may explain an end: written down when a rank has ended, its least looked for all the time."""
        ranks = self.ranks.ranks
        for number in changed:
            here = ranks[number].host == os.uname().nodename and not self.ranks.unseen
            if ranks[number].state == "started" and ranks[number].pid and here:
                self.facts.began(number, ranks[number].pid or 0)
        if ended := [number for number in changed if ranks[number].over]:
            self.event("facts", attempt=self.ranks.attempt, **self.facts.ended(ended))
        elif self.every("facts", 1.0):
            self.facts.now()
            self.note_full_disk(self.facts.full_disk())

    def note_full_disk(self, place: Path | None) -> None:
        """Put into the status on which disk of the job there is no room: ranks that cannot write may end without a word."""
        if place is not None and not self.status.disk_full:
            self.note_in_status(disk_full=str(place))
            self._unwritten = True

    def through(self) -> bool:
        """Whether the job is over: asked to stop, all ranks ended, none can start any more, or it is stuck after a failure."""
        if self.asked is not None or self.ranks.over:
            return True
        bereft = self.bereft
        if bereft and self.every("members", 1.0) and not self.members():
            return True
        failed = self.ranks.first_failure is not None
        return self.lasting("stuck", failed or (bereft and bool(self.ranks.waiting))) > STUCK

    def clear(self) -> None:
        """Leave nothing of this attempt behind."""
        by_itself = self.ranks.over and self.asked is None
        linger = LINGER_FAILED if self.ranks.exit_code() else LINGER
        left = until_gone(self.members, linger, self.poll) if by_itself else self.members()
        if left:
            left = escalate(self.members, [] if by_itself else rank_processes(self.ranks, left), self.poll)
        self.poll()
        for process in left:
            self.note(f"process {process.describe()} could not be ended")
        self.builds.remove_locks()
        if by_itself:
            self.asked = None  # who asks while the last processes end comes too late

    def again(self) -> bool:
        """Start a further attempt after a failure, where the Plan wants that; False where the job is over.

        A job of which no rank ever started would fail in the same way again.
        """
        allowed, attempt = self.record.restarts, self.ranks.attempt
        code = self.ranks.exit_code()
        if self.asked is not None or code == 0 or attempt > allowed.max or self.ranks.first_failure is None:
            return False
        self.note(f"attempt {attempt} ended with exit status {code} (rank {self.ranks.first_failure} first)")
        pause = time.monotonic() + allowed.backoff
        self.note_in_status(next_attempt=time.time() + allowed.backoff)
        self.write()
        while time.monotonic() < pause and self.asked is None:
            self.sleep()
            self.poll()
        self.note_in_status(next_attempt=None)
        if self.asked is not None:
            return False
        more, how = restart_arguments(self.record, self.status.started or 0.0)
        self.note(f"attempt {attempt + 1} of {allowed.max + 1} starts {how}")
        try:
            self.begin(attempt + 1, more)
        except OSError as error:
            self.note(f"attempt {attempt + 1} could not start: {error}")
            return False
        return True

    def begin(self, attempt: int, more: Sequence[str]) -> None:
        """The ranks anew, in a folder of their own."""
        self.folder.prepare(attempt)
        self.ranks = Ranks.expected(self.folder, {number: rank.host for number, rank in self.ranks.ranks.items()}, attempt, self.tag)
        self.ranks.unseen = bool(self.status.hosts)
        self.note_in_status(attempt=attempt, state="starting")
        self._since.clear()
        self._named_late = False
        self.silence = SilenceWatch(self.folder, self.record.silence)
        self.launch(more)
        self.write()

    def end(self) -> None:
        """The last word."""
        self.arrivals.update(time.time(), self.ranks.attempt)
        self.note_full_disk(self.facts.full_disk())
        self.status = finish(self.folder, self.status, self.ranks, self.asked)
        with suppress(OSError):
            self.folder.reserve.unlink(missing_ok=True)
        if self.record.on_end:
            from dstui.jobs.supervisor.notify import announce  # urllib would cost every job 20 ms

            if problem := announce(self.record, self.folder, self.status, self.ranks):
                self.note(problem)
        if self.folder.names_model:
            from dstui.jobs.watch.taken import keep  # the forecast would cost every job a tenth of a second

            keep(self.folder)

    def members(self) -> set[Process]:
        """Every process of the job: by its tag, and by descent where one has thrown its environment away."""
        return tagged(self.tag) | descendants(os.getpid())

    def name_the_late(self) -> None:
        """Say once which ranks have not started."""
        waiting = self.ranks.waiting
        if self.lasting("late", bool(waiting)) > LATE and not self._named_late:
            self._named_late = True
            named = ", ".join(f"rank {number} on {self.ranks.ranks[number].host}" for number in waiting)
            self.note(f"after {LATE:.0f} s not yet started: {named}")

    def note_silence(self) -> None:
        """Write down when no rank says anything any more, and when they go on; nothing while a host is out of sight."""
        if any(host.state == "unreachable" for host in self.status.hosts.values()) or not self.every("silence", self.silence.pace):
            return
        if news := self.silence.news(self.ranks, time.time()):
            name, facts = news
            self.event(name, attempt=self.ranks.attempt, **facts)

    def every(self, what: str, seconds: float) -> bool:
        """True at most once in so many seconds."""
        now = time.monotonic()
        if now - self._since.get(what, 0.0) < seconds:
            return False
        self._since[what] = now
        return True

    def lasting(self, what: str, holds: bool) -> float:
        """For how many seconds something has held without a break."""
        if not holds:
            self._since.pop(what, None)
            return 0.0
        return time.monotonic() - self._since.setdefault(what, time.monotonic())

    def rank_event(self, number: int, rank: Rank) -> None:
        """One line for a rank that has started, ended or got lost."""
        self.event("rank", rank=number, host=rank.host, state=rank.state, exit_code=rank.exit_code)

    def note(self, text: str, *, stops: bool = False) -> None:
        """One line for a person; `stops`: it says why the job is stopped."""
        self.event("notice", text=text, **({"stops": True} if stops else {}))

    def event(self, event: str, **facts: Any) -> None:
        """A line of events.jsonl; a full disk must not end the supervision."""
        try:
            self.folder.append_event(time.time(), event, **facts)
        except OSError as error:
            self._meet(error)

    def note_in_status(self, **changes: Any) -> None:
        """Change fields of the status; `write` puts it on the disk."""
        self.status = replace(self.status, **changes)

    def write(self) -> None:
        """status.json; where that fails now, at the next look."""
        self.note_in_status(ranks=self.ranks.statuses())
        try:
            self.folder.write_status(self.status)
            self._unwritten = False
        except OSError as error:
            self._meet(error)
            self._unwritten = True

    def _meet(self, error: OSError) -> None:
        """A record could not be written: a full disk is noted, and must not end the supervision."""
        if error.errno in FULL:
            self.note_full_disk(self.folder.path)


def default_signals() -> None:
    """In the launcher: nothing blocked, nothing ignored, whatever the shell that dstui came from had set (nohup, `&`)."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])


def main(argv: list[str]) -> int:
    """Become the supervisor of a job folder, unless it has one."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGCHLD, signal.SIGUSR1, *STOPPED_BY))
    folder = JobFolder(argv[0])
    try:
        # Who starts us with the lock in our hands has looked whose job it is.
        tag = os.environ[SUPERVISES] if len(argv) > 1 else own_tag(folder, folder.read_status())
    except NotOwn as why:
        print(f"{folder.path} {why}", file=sys.stderr)
        return 1
    lock = int(argv[1]) if len(argv) > 1 else folder.lock()
    if lock is None:
        print(f"{folder.path} has a supervisor already", file=sys.stderr)
        return 1
    os.set_inheritable(lock, False)
    _supervisor(folder, tag).run()
    return 0


def _supervisor(folder: JobFolder, tag: str) -> Supervisor:
    """The one for the job: for this host alone, or for several."""
    record = folder.read_launch()
    if record is None or record.missing or record.cluster is None:
        return Supervisor(folder, tag)
    from dstui.jobs.supervisor.cluster_supervisor import ClusterSupervisor  # a job of one host needs none of it

    return ClusterSupervisor(folder, tag, record.cluster)
