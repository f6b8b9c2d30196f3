"""One host of a job: its connection, its state, and its pending orders."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import field, replace
from typing import Any

from dstui.base.dataclass import dataclass
from dstui.hosts.connection import Connection
from dstui.hosts.frames import AgentFrame, FrameError
from dstui.hosts.ssh import failure
from dstui.jobs.hosts.mirror import Mirror
from dstui.jobs.store.records import HostState, HostStatus

SILENT = 8.0
"""Seconds without a message after which a host is unreachable; its agent sends one every two."""
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 15.0
"""Seconds between two attempts to connect, doubled each time."""
LASTING = 10.0
"""Seconds that a connection must have lasted for the next attempt to come soon."""
CONNECTING = 40.0
"""Seconds for a connection until its agent answers."""
HOPELESS = ("allocation", "key-changed", "key-unknown", "login", "name", "no-python", "no-ssh", "old-python")
"""Failures of ssh (dstui/hosts/ssh.py) that waiting does not repair."""


@dataclass
class JobHost:
    """One host of a job."""

    name: str
    command: list[str]
    """The command that connects to its agent."""
    mirror: Mirror
    status: HostStatus = field(default_factory=HostStatus)
    news: list[tuple[HostState, str]] = field(default_factory=list)
    """Changes of its state that were not reported yet, each with a sentence, or ""."""
    connection: Connection | None = None
    greeted: bool = False
    """True if the agent of this connection is ready for orders."""
    there: bool = False
    """True if the host has a folder of the job."""
    lacks: tuple[str, ...] = ()
    """Reasons why nothing can be started there, as sentences."""
    left: tuple[str, ...] | None = None
    """Processes that a stop could not end there; None until it is finished."""
    code: int | None = None
    """The exit status of the host's own launcher in the current attempt."""
    stopped: bool = False
    """True if it was told to stop: the end of its launcher is then not reported."""
    orders: list[str] = field(default_factory=list)
    """The orders given to the agent of this connection."""
    skew: float = float("-inf")
    """The minimum number of seconds by which its clock is ahead of ours: messages take time."""
    retry_at: float = 0.0
    pause: float = FIRST_PAUSE
    heard: float = field(default_factory=time.monotonic)
    """The time of its last message, by the monotonic clock."""
    began: float = 0.0
    """The begin of its connection, by the monotonic clock."""
    moved: float = 0.0
    """The time at which it last sent a piece of any log, by the monotonic clock."""
    spoke: float = field(default_factory=time.monotonic)
    """The time at which it last sent a piece of a rank's log, by the monotonic clock; initially the start of listening."""
    changed: float = field(default_factory=time.monotonic)
    """The time at which it entered its state, as far as this supervisor knows, by the monotonic clock."""
    reminders: int = 0
    """The number of reports that it is still unreachable."""
    _complaint: str = ""

    @property
    def done(self) -> bool:
        """Return whether nothing of the job is left there."""
        return self.status.state == "ended"

    @property
    def reached(self) -> bool:
        """Return whether its agent can receive orders."""
        return self.connection is not None and self.greeted

    def unreachable_for(self, now: float) -> float:
        """Return for how many seconds it has been unreachable, as far as this supervisor knows. `now`: by the monotonic clock."""
        return now - self.changed if self.status.state == "unreachable" else 0.0

    @property
    def why(self) -> str:
        """Return why it does not answer."""
        return self.status.problem or "it does not answer"

    def enter(self, state: HostState, problem: str | None = None, text: str = "") -> None:
        """Change its state; nothing happens if it is the same.

        A change of only the problem is not reported, because events.jsonl would grow with whatever a host says.
        """
        if state != self.status.state:
            self.changed, self.reminders = time.monotonic(), 0
            self.status = replace(self.status, state=state, since=time.time(), problem=problem)
            self.news.append((state, text))
        elif problem != self.status.problem:
            self.status = replace(self.status, problem=problem)

    def connect(self, opening: Mapping[str, Any]) -> None:
        """Start a connection."""
        self.greeted, self.orders, self.heard, self.began = False, [], time.monotonic(), time.monotonic()
        try:
            self.connection = Connection(self.command, opening)
        except OSError as error:
            self.drop(f"{self.command[0]} cannot be started: {error.strerror}")

    def tell(self, order: Mapping[str, Any]) -> None:
        """Send an order, once per connection."""
        key = str(order)
        if self.connection and key not in self.orders:
            self.orders.append(key)
            self.connection.tell(order)

    def listen(self) -> None:
        """Process received messages."""
        try:
            for frame in self.connection.read() if self.connection else ():
                self.heard = time.monotonic()
                self._take(frame)
        except FrameError as why:
            self.drop(str(why))
        except OSError as error:
            self.drop(f"its output cannot be written here: {error.strerror}")
        if self.connection and self.connection.ended:
            self.drop("")

    def _take(self, frame: AgentFrame) -> None:
        facts = frame.facts
        if frame.kind in ("hello", "beat"):
            self.skew = max(self.skew, facts["time"] - time.time())
        match frame.kind:
            case "hello":
                self._greet(facts)
            case "refused":
                self.lacks = (facts["text"],)
                self.drop(facts["text"])
            case "log":
                self.moved = self.heard
                if "logs/" in facts["file"]:
                    self.spoke = self.heard
                self.mirror.log(self.name, facts["file"], facts["at"], frame.data)
            case "record" | "state":
                self.mirror.record(self.name, facts["file"], frame.data, self.skew)
            case "gpus":
                self.mirror.gpus(self.name, frame.data)
            case "ended":
                self.code = facts["exit_code"]
                if not self.stopped:
                    self.status = replace(self.status, exit_code=self.code)
                if facts["text"]:
                    self.lacks = (facts["text"],)
            case "swept":
                self.left = tuple(facts["left"])
            case "bye":
                self.enter("ended", "; ".join(self.left or ()) or None)
                self.close()

    def _greet(self, facts: Mapping[str, Any]) -> None:
        """Record that the agent is ready. Raises FrameError if it said so before on this connection."""
        if self.greeted:
            raise FrameError("its agent repeats its greeting")
        self.greeted = True
        self.there, self.lacks = facts["there"], tuple(facts["lacks"])
        self.status = replace(self.status, folder=facts["folder"])
        again = self.status.state == "unreachable"
        self.enter("reached", "; ".join(self.lacks) or None, f"{self.name} is reached again" if again else "")

    def judge(self, now: float) -> None:
        """Drop a connection that is silent."""
        patience = SILENT if self.greeted else CONNECTING
        if self.connection and now - self.heard > patience:
            self.drop(f"no sign of life for {patience:.0f} s")

    def drop(self, problem: str) -> None:
        """Drop the connection; another one is tried later. `problem`: the reason, if ssh does not print one."""
        complaint = ""
        if self.connection:
            lasted = time.monotonic() - self.began
            self.pause = FIRST_PAUSE if self.greeted and lasted > LASTING else self.pause
            self.close()
            complaint = self._complaint
        found = failure(self.name, complaint) if complaint.strip() else None
        reason = problem or (found.problem if found else "the connection was closed")
        if found and found.id in HOPELESS and self.status.state == "starting":
            self.lacks = (f"{reason} ({found.fix})",)
        self.retry_at = time.monotonic() + self.pause
        self.pause = min(2 * self.pause, LONGEST_PAUSE)
        if self.status.state == "starting":
            self.enter("starting", reason)
        elif not self.done:
            self.enter(
                "unreachable", reason, f"{self.name} is unreachable: {reason}. Its ranks may continue; the connection is tried again"
            )

    def close(self) -> None:
        """Close the connection."""
        if self.connection:
            self.connection.close()
            self._complaint = self.connection.complaint
        self.connection, self.greeted = None, False
