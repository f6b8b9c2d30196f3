"""The records of a job as typed values: JobStatus is status.json, LaunchRecord is launch.json.

    value = JobStatus.from_json(found)     None where it has not the form that this version knows
    value.as_json()                        what is written: the keys as they were read, and over them what has changed

Older versions of dstui have written fewer keys, so each has a default; keys of newer ones are written back as they were. What each key may
hold is in record_forms.py. Times are seconds since the epoch by the clock of the supervisor's host; in the files they are ISO 8601, UTC.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from dstui.jobs.store.processes import Process, boot, started
from dstui.jobs.store.record_forms import LAUNCH, STATUS, sound
from dstui.logs.log_folder import FINAL
from dstui.logs.time_parsing import format_iso, parse_iso

VERSION = 1
"""Of both records. A record of a later version is read as far as it has the form that is known here, and never acted on."""

JobState = Literal["queued", "starting", "running", "succeeded", "failed", "stopped", "lost"]
STATE_GLYPHS: Mapping[str, str] = {
    "queued": "◌",
    "starting": "○",
    "running": "●",
    "succeeded": "✔",
    "failed": "✖",
    "stopped": "■",
    "lost": "✖",
}
"""One sign for a job's state on every face."""
RankState = Literal["waiting", "started", "ended", "lost"]
"""waiting: not started yet; ended: with an exit status; lost: gone without one, so it was killed, or its host went down."""
HostState = Literal["starting", "reached", "unreachable", "ended"]
"""starting: not connected yet; reached: connected, and the job looked after; unreachable: no connection now, which says nothing of the
ranks there; ended: nothing of the job is left there, and everything that it wrote was brought home."""

NEW_STATUS: Mapping[str, Any] = {
    "state": "starting",
    "ranks": {},
    "version": VERSION,
    "supervisor": None,
    "front": None,
    "attempt": 1,
    "started": None,
    "ended": None,
    "exit_code": None,
    "command": [],
    "tag": None,
    "launcher": None,
}
"""The keys that a new status.json has, in this order."""


@dataclass(frozen=True, slots=True)
class ProcessRecord:
    """A process of one host; `ticks` and `boot` tell it from a later one with the same pid."""

    pid: int
    host: str | None
    """As os.uname().nodename names it."""
    started: str
    """When it started, ISO 8601 in UTC; for people to read."""
    ticks: int
    """When it started, in clock ticks since the host's boot."""
    boot: str | None
    """The boot id of the host's kernel then."""

    @classmethod
    def of(cls, process: Process) -> ProcessRecord:
        """Return a process of this host."""
        return cls(process.pid, os.uname().nodename, format_iso(started(process)), process.ticks, boot())

    @classmethod
    def from_json(cls, found: Mapping[str, Any] | None) -> ProcessRecord | None:
        """As a status has it; None where it names none."""
        if not found:
            return None
        return cls(found.get("pid") or 0, found.get("host"), found.get("started") or "", found.get("ticks") or 0, found.get("boot"))

    def as_json(self) -> dict[str, Any]:
        return {"pid": self.pid, "host": self.host, "started": self.started, "ticks": self.ticks, "boot": self.boot}

    @property
    def here(self) -> Process | None:
        """The process itself, dead or alive; None where it is one of another host, or of before this host's last start."""
        if self.host != os.uname().nodename or self.boot not in (boot(), None):
            return None
        return Process(self.pid, self.ticks)


@dataclass(frozen=True, slots=True)
class RankStatus:
    """One rank of the current attempt."""

    host: str
    pid: int | None = None
    """On that host; None until it has started."""
    state: RankState = "waiting"
    exit_code: int | None = None
    """128 + n for signal n."""
    killed_after: int | None = None
    """The rank that had failed first, where this one was then ended by a signal, as launchers do; only then is the key in the file."""

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> RankStatus:
        pid, code, culprit = found.get("pid"), found.get("exit_code"), found.get("killed_after")
        return cls(str(found.get("host")), pid, found.get("state") or "waiting", code, culprit)

    def as_json(self) -> dict[str, Any]:
        victim = {} if self.killed_after is None else {"killed_after": self.killed_after}
        return {"host": self.host, "pid": self.pid, "state": self.state, "exit_code": self.exit_code, **victim}


@dataclass(frozen=True, slots=True)
class HostStatus:
    """One host of a job that runs on other hosts than the supervisor's alone. A job has ended everywhere where every host has."""

    state: HostState = "starting"
    since: float | None = None
    """When it came into this state, seconds since the epoch."""
    problem: str | None = None
    """Why it is unreachable, or what went wrong there; a sentence without a full stop."""
    exit_code: int | None = None
    """Of the host's own launcher, where it has one, once it has ended: 128 + n for signal n. The job's follows from its ranks alone."""
    folder: str | None = None
    """Where the job's files lie there; None until the host has said so. Older versions of dstui did not ask."""

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> HostStatus:
        facts = (found.get(name) for name in ("problem", "exit_code", "folder"))
        return cls(found.get("state") or "starting", parse_iso(found.get("since")), *facts)

    def as_json(self) -> dict[str, Any]:
        since = None if self.since is None else format_iso(self.since)
        place = {} if self.folder is None else {"folder": self.folder}
        return {"state": self.state, "since": since, "problem": self.problem, "exit_code": self.exit_code, **place}


@dataclass(frozen=True, slots=True)
class JobStatus:
    """What status.json says of a job."""

    state: JobState = "starting"
    tag: str | None = None
    """What every process of the job carries in its environment (processes.TAG); None in records of old."""
    attempt: int = 1
    """From 1 on; each restart is one more."""
    started: float | None = None
    """When the job was started (its first attempt), seconds since the epoch."""
    ended: float | None = None
    """When its last rank ended, or the stop was through; seconds since the epoch. None until then."""
    exit_code: int | None = None
    """The job's: of the rank that failed first, or what a stop asked for. None until the end."""
    supervisor: ProcessRecord | None = None
    """Who looks after the job, or did so last."""
    owner: ProcessRecord | None = None
    """The command or terminal with which the job ends (key "front"); None of a detached job."""
    launcher: ProcessRecord | None = None
    """`python -m deepspeed.launcher.runner` of the current attempt."""
    launcher_exit: int | None = None
    """The exit status of that launcher, once it has ended by itself: the job's own follows from its ranks alone."""
    command: tuple[str, ...] = ()
    """The launcher's argv, of the current attempt."""
    ranks: Mapping[int, RankStatus] = field(default_factory=dict)
    hosts: Mapping[str, HostStatus] = field(default_factory=dict)
    """By the hosts' names in the Plan; empty where all ranks run on the supervisor's host, started by it."""
    next_attempt: float | None = None
    """When the next attempt starts, while the pause before it lasts; seconds since the epoch."""
    disk_full: str | None = None
    """The folder of the job on whose disk there was no room left while it ran."""
    slurm_job: str | None = None
    """SLURM's number of the job, where it was queued; only then is the key in the file."""
    version: int = VERSION
    waits: str = ""
    """What SLURM says of a queued job, in words; not in the file."""
    foreign: str = ""
    """Why the job is not this user's own, as the end of a sentence; not in the file."""
    unheard: float | None = None
    """Seconds since its supervisor, on another host, gave its last sign of life, where that is too long ago; not in the file."""
    orphaned: bool = False
    """Whether its supervisor was killed, so that nobody looks after the job; not in the file."""
    source: Mapping[str, Any] = field(default_factory=lambda: NEW_STATUS, repr=False, compare=False)
    """The object that this was read from."""

    @property
    def final(self) -> bool:
        """Whether the job has ended."""
        return self.state in FINAL

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> JobStatus | None:
        """Return none where it has no state, or another form than STATUS."""
        return cls(**_status_values(found), source=found) if found.get("state") and sound(found, STATUS) else None

    def as_json(self) -> dict[str, Any]:
        """As status.json has it."""
        read = _status_values(self.source)
        changed = [(name, value) for name in read if (value := getattr(self, name)) != read[name]]
        return {**self.source, **{KEYS.get(name, name): _encoded(name, value) for name, value in changed}}


KEYS = {"owner": "front"}
"""Fields of JobStatus that the file calls otherwise."""
TIMES = ("started", "ended", "next_attempt")


def _status_values(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of JobStatus that status.json holds."""
    return {
        "state": found["state"],
        "tag": found.get("tag"),
        "attempt": found.get("attempt") or 1,
        **{name: parse_iso(found.get(name)) for name in TIMES},
        "exit_code": found.get("exit_code"),
        **{name: ProcessRecord.from_json(found.get(KEYS.get(name, name))) for name in ("supervisor", "owner", "launcher")},
        "command": tuple(found.get("command") or ()),
        "ranks": {int(number): RankStatus.from_json(rank) for number, rank in (found.get("ranks") or {}).items()},
        "hosts": {name: HostStatus.from_json(host) for name, host in (found.get("hosts") or {}).items()},
        "launcher_exit": found.get("launcher_exit"),
        "disk_full": found.get("disk_full"),
        "slurm_job": found.get("slurm_job"),
        "version": found.get("version") or VERSION,
    }


def _encoded(name: str, value: Any) -> Any:
    """Return one field as JSON has it."""
    if name == "ranks":
        return {str(number): rank.as_json() for number, rank in sorted(value.items())}
    if name == "hosts":
        return {host: status.as_json() for host, status in value.items()}
    if isinstance(value, ProcessRecord):
        return value.as_json()
    if name in TIMES and value is not None:
        return format_iso(value)
    return list(value) if isinstance(value, tuple) else value


@dataclass(frozen=True, slots=True)
class RestartPolicy:
    """How often a job that has failed is started again."""

    max: int = 0
    """Attempts after the first."""
    backoff: float = 0.0
    """Seconds before each."""
    args: tuple[str, ...] = ()
    """What the script's arguments get appended then; {checkpoint} stands for the folder of the latest checkpoint."""


@dataclass(frozen=True, slots=True)
class HostLaunch:
    """How one host of a job starts its ranks."""

    command: tuple[str, ...] | None
    """The words of the host's own launcher, up to the script; None where one launcher beside the supervisor starts the ranks of all."""
    env: Mapping[str, str]
    """What is added to the environment there."""

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> HostLaunch:
        words = found.get("command")
        return cls(None if words is None else tuple(words), found["env"])


@dataclass(frozen=True, slots=True)
class ClusterRecord:
    """How a job is started on several hosts: key "cluster" of launch.json."""

    reach: Literal["ssh", "srun", "here"]
    """What connects to a host's agent."""
    folder: str
    """What the commands call the folder of the job's files on every host; where it is, each host says itself (HostStatus)."""
    hosts: Mapping[str, HostLaunch]
    """By the hosts' names in the Plan, rank 0's first."""
    port: int
    """Where the ranks meet, on the first host."""
    allocation: str = ""
    """The number of the SLURM allocation in which it was started; "" where there was none, and in older records."""

    @property
    def each_host_starts(self) -> bool:
        """Whether each host has a launcher of its own."""
        return all(host.command is not None for host in self.hosts.values())

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> ClusterRecord:
        hosts = {
            name: HostLaunch(tuple(host["command"]) if host.get("command") else None, host["env"]) for name, host in found["hosts"].items()
        }
        return cls(found["reach"], found["folder"], hosts, found["port"], found.get("allocation") or "")

    @property
    def makes_allocations(self) -> bool:
        """Whether what reaches its hosts makes allocations of SLURM, which are to be released."""
        return self.reach == "srun" and not self.allocation


@dataclass(frozen=True, slots=True)
class LaunchRecord:
    """What launch.json says: what the supervisor starts, at every attempt, and how the run is watched."""

    python: str = ""
    """The interpreter that runs the launcher and the ranks."""
    options: tuple[str, ...] = ()
    """The launcher's."""
    script: tuple[str, ...] = ()
    """The script, or -m and a module."""
    args: tuple[str, ...] = ()
    """The script's."""
    env: Mapping[str, str] = field(default_factory=dict)
    """What the Plan adds to the environment."""
    workdir: str = ""
    bind: str | None = None
    """The file by which each rank binds itself to its cores; None where it does not."""
    restarts: RestartPolicy = RestartPolicy()
    """What happens after a failure."""
    silence: float | None = None
    """Seconds without a line after which a rank is called silent; None for the default."""
    host_lost: float = 0.0
    """Seconds after which an unreachable host ends the job; 0, as in older records, for never."""
    metrics: Mapping[str, str] = field(default_factory=dict)
    """Numbers of the user's own: name -> regular expression."""
    on_end: str | None = None
    """A shell command or URL to notify."""
    observe: str = "off"
    """How much the hook in each rank reports: engine, process or off (in older records); probe-N ends the rank once N engines are made."""
    base: str | None = None
    """The folder that relative paths of the Plan start from; older records have none."""
    cluster: ClusterRecord | None = None
    """None where all ranks run on the supervisor's host, started by it."""
    missing: str = ""
    """The first key of NEEDED that the file does not have: nothing more is started by it."""
    source: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)
    """The object that this was read from."""

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> LaunchRecord | None:
        """Return none where it is empty, of a later version, or has another form than LAUNCH."""
        if not found or (found.get("version") or VERSION) != VERSION or not sound(found, LAUNCH):
            return None
        values = {name: value for name, value in found.items() if name in LAUNCH and name != "version" and value is not None}
        values |= {name: tuple(values[name]) for name in ("options", "script", "args") if name in values}
        if restarts := values.get("restarts"):
            values["restarts"] = RestartPolicy(restarts["max"], restarts["backoff"], tuple(restarts["args"]))
        if cluster := values.get("cluster"):
            values["cluster"] = ClusterRecord.from_json(cluster)
        return cls(**values, missing=next((name for name in NEEDED if name not in values), ""), source=found)

    def as_json(self) -> dict[str, Any]:
        """As launch.json has it."""
        return dict(self.source)


NEEDED = ("python", "options", "script", "args", "env", "workdir", "restarts")
"""What launch.json must say, or nothing more is started by it."""
