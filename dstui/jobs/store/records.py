"""The records of a job as typed values: JobStatus is status.json, LaunchRecord is launch.json.

    value = JobStatus.from_json(found)     None if it has an unknown form
    value.as_json()                        the keys as they were read, updated with the changes
Older versions of dstui wrote fewer keys, so each has a default; keys of newer ones are preserved. The valid values of each key are in
record_forms.py. Times are seconds since the epoch by the clock of the supervisor's host; in the files they are ISO 8601, UTC.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import field
from typing import Any, Literal

from dstui.base.dataclass import dataclass
from dstui.jobs.store.processes import Process, boot, started
from dstui.jobs.store.record_forms import LAUNCH, STATUS, sound
from dstui.logs.log_folder import FINAL
from dstui.logs.time_parsing import format_iso, parse_iso

VERSION = 1
"""The version of both records. A record of a later version is read if its known keys are valid, but nothing acts on it."""

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
"""A symbol for each state of a job, the same in all faces."""
RankState = Literal["waiting", "started", "ended", "lost"]
"""waiting: not started yet; ended: with an exit status; lost: gone without one, because it was killed or its host went down."""
HostState = Literal["starting", "reached", "unreachable", "ended"]
"""starting: not connected yet; reached: connected, and the job supervised; unreachable: no connection now, which says nothing about the
ranks there; ended: nothing of the job is left there, and everything that it wrote was fetched."""

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
"""The keys of a new status.json, in order."""


@dataclass(frozen=True, slots=True)
class ProcessRecord:
    """A process of one host. `ticks` and `boot` distinguish it from a later one with the same pid."""

    pid: int
    host: str | None
    """The host's name from os.uname().nodename."""
    started: str
    """The time of its start, ISO 8601 in UTC, for information only."""
    ticks: int
    """The time of its start, in clock ticks since the host's boot."""
    boot: str | None
    """The boot id of the host's kernel at that time."""

    @classmethod
    def of(cls, process: Process) -> ProcessRecord:
        """Return the record of a process on this host."""
        return cls(process.pid, os.uname().nodename, format_iso(started(process)), process.ticks, boot())

    @classmethod
    def from_json(cls, found: Mapping[str, Any] | None) -> ProcessRecord | None:
        """Parse a record; None if it names no process."""
        if not found:
            return None
        return cls(found.get("pid") or 0, found.get("host"), found.get("started") or "", found.get("ticks") or 0, found.get("boot"))

    def as_json(self) -> dict[str, Any]:
        return {"pid": self.pid, "host": self.host, "started": self.started, "ticks": self.ticks, "boot": self.boot}

    @property
    def here(self) -> Process | None:
        """Return the process itself, dead or alive; None if it belongs to another host or an earlier boot."""
        if self.host != os.uname().nodename or self.boot not in (boot(), None):
            return None
        return Process(self.pid, self.ticks)


@dataclass(frozen=True, slots=True)
class RankStatus:
    """One rank of the current attempt."""

    host: str
    pid: int | None = None
    """Its pid on that host; None until it has started."""
    state: RankState = "waiting"
    exit_code: int | None = None
    """128 + n for signal n."""
    killed_after: int | None = None
    """The rank that had failed first, if the launcher then ended this one by a signal. The key is in the file only then."""

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> RankStatus:
        pid, code, culprit = found.get("pid"), found.get("exit_code"), found.get("killed_after")
        return cls(str(found.get("host")), pid, found.get("state") or "waiting", code, culprit)

    def as_json(self) -> dict[str, Any]:
        victim = {} if self.killed_after is None else {"killed_after": self.killed_after}
        return {"host": self.host, "pid": self.pid, "state": self.state, "exit_code": self.exit_code, **victim}


@dataclass(frozen=True, slots=True)
class HostStatus:
    """One host of a job that also runs on other hosts than the supervisor's. The job has ended everywhere when every host has ended."""

    state: HostState = "starting"
    since: float | None = None
    """The time at which it entered this state, seconds since the epoch."""
    problem: str | None = None
    """The reason why it is unreachable, or what went wrong there, as a sentence without a full stop."""
    exit_code: int | None = None
    """The exit status of the host's own launcher if it has one: 128 + n for signal n. The job's exit status depends only on its ranks."""
    folder: str | None = None
    """The folder of the job's files there; None until the host has reported it. Older versions of dstui did not ask."""

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
    """The content of status.json."""

    state: JobState = "starting"
    tag: str | None = None
    """The value of processes.TAG in the environment of every process of the job; None in old records."""
    attempt: int = 1
    """Counted from 1; each restart adds one."""
    started: float | None = None
    """The time of the job's start (its first attempt), seconds since the epoch."""
    ended: float | None = None
    """The time at which its last rank ended, or the stop was finished, seconds since the epoch. None until then."""
    exit_code: int | None = None
    """The job's exit status: that of the rank that failed first, or one requested with a stop. None until the end."""
    supervisor: ProcessRecord | None = None
    """The present or last supervisor of the job."""
    owner: ProcessRecord | None = None
    """The command or terminal that the job ends with (key "front"); None for a detached job."""
    launcher: ProcessRecord | None = None
    """`python -m deepspeed.launcher.runner` of the current attempt."""
    launcher_exit: int | None = None
    """The exit status of that launcher if it has ended by itself. The job's exit status depends only on its ranks."""
    command: tuple[str, ...] = ()
    """The launcher's argv in the current attempt."""
    ranks: Mapping[int, RankStatus] = field(default_factory=dict)
    hosts: Mapping[str, HostStatus] = field(default_factory=dict)
    """By the hosts' names in the Plan; empty if all ranks run on the supervisor's host, started by the supervisor."""
    next_attempt: float | None = None
    """The time of the next attempt, during the pause before it; seconds since the epoch."""
    disk_full: str | None = None
    """The folder of the job whose disk was full while the job ran."""
    slurm_job: str | None = None
    """SLURM's number of the job if it was queued. The key is in the file only then."""
    version: int = VERSION
    waits: str = ""
    """SLURM's description of a queued job; not in the file."""
    foreign: str = ""
    """The reason why the job is not the user's own, as the end of a sentence; not in the file."""
    unheard: float | None = None
    """Seconds since the last sign of life of a supervisor on another host, if that is too long ago; not in the file."""
    orphaned: bool = False
    """True if its supervisor was killed, so that nothing supervises the job; not in the file."""
    source: Mapping[str, Any] = field(default_factory=lambda: NEW_STATUS, repr=False, compare=False)
    """The object that this was read from."""

    @property
    def unwatched(self) -> bool:
        """Return whether the ranks run in pods of Kubernetes: they have no supervisor, and only their own records tell their state."""
        return self.state == "running" and self.supervisor is None and bool(self.hosts)

    @property
    def final(self) -> bool:
        """Return whether the job has ended."""
        return self.state in FINAL

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> JobStatus | None:
        """Parse status.json; None if it has no state or is not of the form STATUS."""
        return cls(**_status_values(found), source=found) if found.get("state") and sound(found, STATUS) else None

    def as_json(self) -> dict[str, Any]:
        """Return the object for status.json."""
        read = _status_values(self.source)
        changed = [(name, value) for name in read if (value := getattr(self, name)) != read[name]]
        return {**self.source, **{KEYS.get(name, name): _encoded(name, value) for name, value in changed}}


KEYS = {"owner": "front"}
"""Fields of JobStatus with other names in the file."""
TIMES = ("started", "ended", "next_attempt")


def _status_values(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of JobStatus from status.json."""
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
    """Return one field in its JSON form."""
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
    """The restarts of a failed job: how many, after which pause, with which arguments."""

    max: int = 0
    """Attempts after the first."""
    backoff: float = 0.0
    """Seconds before each attempt."""
    args: tuple[str, ...] = ()
    """Arguments appended for the script; {checkpoint} is the folder of the latest checkpoint."""


@dataclass(frozen=True, slots=True)
class HostLaunch:
    """The start of the ranks on one host of a job."""

    command: tuple[str, ...] | None
    """The words of the host's own launcher, up to the script; None if one launcher on the supervisor's host starts all ranks."""
    env: Mapping[str, str]
    """Additions to the environment there."""

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> HostLaunch:
        words = found.get("command")
        return cls(None if words is None else tuple(words), found["env"])


@dataclass(frozen=True, slots=True)
class ClusterRecord:
    """The start of a job on several hosts: key "cluster" of launch.json."""

    reach: Literal["ssh", "srun", "here"]
    """The connection to a host's agent."""
    folder: str
    """The placeholder for the folder of the job's files in commands. Each host reports the real path (HostStatus)."""
    hosts: Mapping[str, HostLaunch]
    """By the hosts' names in the Plan, rank 0's first."""
    port: int
    """The rendezvous port on the first host."""
    allocation: str = ""
    """The number of the SLURM allocation in which it was started; "" if there was none, and in older records."""

    @property
    def each_host_starts(self) -> bool:
        """Return whether each host has a launcher of its own."""
        return all(host.command is not None for host in self.hosts.values())

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> ClusterRecord:
        hosts = {
            name: HostLaunch(tuple(host["command"]) if host.get("command") else None, host["env"]) for name, host in found["hosts"].items()
        }
        return cls(found["reach"], found["folder"], hosts, found["port"], found.get("allocation") or "")

    @property
    def makes_allocations(self) -> bool:
        """Return whether the connections to its hosts make SLURM allocations, which must be released."""
        return self.reach == "srun" and not self.allocation


@dataclass(frozen=True, slots=True)
class LaunchRecord:
    """The content of launch.json: what the supervisor starts at every attempt, and how the run is watched."""

    python: str = ""
    """The interpreter that runs the launcher and the ranks."""
    options: tuple[str, ...] = ()
    """The launcher's options."""
    script: tuple[str, ...] = ()
    """The script, or -m and a module."""
    args: tuple[str, ...] = ()
    """The script's arguments."""
    env: Mapping[str, str] = field(default_factory=dict)
    """The Plan's additions to the environment."""
    workdir: str = ""
    bind: str | None = None
    """The file with which each rank binds itself to its cores; None without binding."""
    restarts: RestartPolicy = RestartPolicy()
    """The restarts after a failure."""
    silence: float | None = None
    """Seconds without a line after which a rank counts as silent; None for the default."""
    host_lost: float = 0.0
    """Seconds after which an unreachable host ends the job; 0 (as in older records) for never."""
    metrics: Mapping[str, str] = field(default_factory=dict)
    """The user's own metrics: name -> regular expression."""
    on_end: str | None = None
    """A shell command or URL to notify."""
    observe: str = "off"
    """Reports of the hook in each rank: engine, process or off (in older records); probe-N ends the rank after N engines are made."""
    base: str | None = None
    """The folder from which relative paths of the Plan start; missing in older records."""
    cluster: ClusterRecord | None = None
    """None if all ranks run on the supervisor's host, started by the supervisor."""
    missing: str = ""
    """The first key of NEEDED that is missing in the file: then it starts nothing."""
    source: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)
    """The object that this was read from."""

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> LaunchRecord | None:
        """Parse launch.json; None if it is empty, of a later version, or not of the form LAUNCH."""
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
        """Return the object for launch.json."""
        return dict(self.source)


NEEDED = ("python", "options", "script", "args", "env", "workdir", "restarts")
"""The keys of launch.json without which nothing is started by it."""
