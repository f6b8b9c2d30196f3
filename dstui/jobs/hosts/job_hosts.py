"""All hosts of a job: connected in parallel by one selector without threads, given orders, and reconnected when they are lost.

cluster = JobHosts(job, mirror, statuses, attempt)
cluster.pump(seconds)               process messages for some time
cluster.start(orders)               begin an attempt: each host's own launcher, once
cluster.stop(linger=0, ask=True)    end every process with the job's tag, while `cluster.stopping`
cluster.clean()                     remove the folders on the hosts
"""

from __future__ import annotations

import selectors
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from dstui.hosts.agent import GRACE, STEP
from dstui.jobs.hosts.job_host import JobHost
from dstui.jobs.store.records import HostState, HostStatus

UNREACHED = 10.0
"""Seconds for which a stop tries to reach an unreachable host."""
SWEEP = 3 * STEP + GRACE + 5.0
"""Seconds in which an agent has stopped everything on its host, besides the time for sending logs."""
CLEANING = 5.0
"""Seconds for removing the folders of the job."""

Opening = Callable[[JobHost, bool], dict[str, Any]]
"""Maps a host, and whether a start follows, to the first order for its agent."""


class JobHosts:
    """The hosts of one job."""

    def __init__(self, hosts: Iterable[JobHost], opening: Opening) -> None:
        self.hosts = {host.name: host for host in hosts}
        self.opening = opening
        self._orders: dict[str, Mapping[str, Any]] = {}
        """Host -> the order to send as soon as it is reached."""
        self._selector = selectors.DefaultSelector()
        self._stop_began = self._stop_ends = self._clean_began = 0.0

    @property
    def statuses(self) -> dict[str, HostStatus]:
        """The statuses in the form of status.json."""
        return {name: host.status for name, host in self.hosts.items()}

    @property
    def moved(self) -> float:
        """Return the time at which the last bytes of a log arrived from any host, by the monotonic clock."""
        return max((host.moved for host in self.hosts.values()), default=0.0)

    @property
    def living(self) -> list[JobHost]:
        """The hosts that may still have something of the job."""
        return [host for host in self.hosts.values() if not host.done]

    @property
    def unreached(self) -> list[JobHost]:
        """The hosts that cannot receive orders now."""
        return [host for host in self.living if not host.reached]

    @property
    def starting(self) -> list[JobHost]:
        """The hosts that have not answered since the job was started."""
        return [host for host in self.living if host.status.state == "starting"]

    @property
    def lacking(self) -> list[JobHost]:
        """The hosts where nothing can be started."""
        return [host for host in self.living if host.lacks]

    @property
    def stopping(self) -> list[JobHost]:
        """The hosts that have not reported the result of a stop yet, and are still worth waiting for."""
        now = time.monotonic()
        began, quiet = now - self._stop_began, now - max(self._stop_ends, self.moved)
        return [host for host in self.living if host.left is None and (quiet < SWEEP if host.reached else began < UNREACHED)]

    @property
    def cleaning(self) -> list[JobHost]:
        """The hosts that are removing the job's folder, and are still worth waiting for."""
        late = time.monotonic() - self._clean_began > CLEANING
        return [] if late else [host for host in self.living if host.left == () and host.reached]

    def take_news(self) -> list[tuple[JobHost, HostState, str]]:
        """Return the state changes since the last call: host, state, and a sentence or ""."""
        found = [(host, state, text) for host in self.hosts.values() for state, text in host.news]
        for host in self.hosts.values():
            host.news.clear()
        return found

    @property
    def unconfirmed(self) -> list[str]:
        """Return what is left on the hosts, or may be, as sentences."""
        silent = [f"not confirmed on {host.name} that nothing is left: {host.why}" for host in self.living if host.left is None]
        return silent + [f"process {process} on {host.name} could not be ended" for host in self.living for process in host.left or ()]

    def start(self, orders: Mapping[str, Mapping[str, Any]]) -> None:
        """Let each host begin the attempt; unreachable ones as soon as they are reached."""
        self._tell(orders)

    def stop(self, *, linger: float = 0.0, ask: bool = True) -> None:
        """End the job on every host: processes that end by themselves get `linger` seconds; with `ask` the ranks may end first."""
        self._stop_began = time.monotonic()
        self._stop_ends = self._stop_began + linger
        for host in self.hosts.values():
            host.left, host.stopped = None, not linger
            host.retry_at = 0.0
        self._tell({name: {"do": "stop", "linger": linger, "ask": ask} for name in self.hosts})

    def clean(self) -> None:
        """Remove the job's folder from every host where nothing is left."""
        self._clean_began = time.monotonic()
        self._tell({host.name: {"do": "clean"} for host in self.living if host.left == ()})

    def ask_for_stacks(self, at: float) -> None:
        """Let the ranks write their Python stacks, on every host that is reached now. `at`: the time of the request."""
        for host in self.living:
            if host.reached:
                host.tell({"do": "stacks", "at": at})
                self._await_write(host)

    def _tell(self, orders: Mapping[str, Mapping[str, Any]]) -> None:
        self._orders = dict(orders)
        for host in self.living:
            self._bring(host)

    def _bring(self, host: JobHost) -> None:
        if host.reached and host.name in self._orders:
            host.tell(self._orders[host.name])

    def pump(self, seconds: float) -> None:
        """Process messages for `seconds`, or until something has changed that the caller must handle."""
        deadline = time.monotonic() + seconds
        while True:
            self._reconnect()
            for key, events in self._selector.select(max(min(deadline - time.monotonic(), 0.2), 0.0)):
                self._serve(key.data, key.fd, events)
            now = time.monotonic()
            for host in self.living:
                self._with(host, partial(host.judge, now))
            if now >= deadline or any(host.news for host in self.hosts.values()):
                return

    def _serve(self, host: JobHost, fd: int, events: int) -> None:
        connection = host.connection
        if connection is None:
            return
        if fd == connection.errors:
            if not connection.read_errors():
                self._selector.unregister(fd)
        elif events & selectors.EVENT_WRITE:
            connection.write()
            if not connection.unsent:
                self._selector.unregister(fd)
        else:
            self._with(host, host.listen)
            self._bring(host)
            self._await_write(host)

    def _with(self, host: JobHost, act: Callable[[], None]) -> None:
        """Run an action on a host; an error drops its connection."""
        before = host.connection
        fds = (before.input, before.output, before.errors) if before else ()
        act()
        if before is not None and host.connection is not before:
            self._forget(fds)

    def _forget(self, fds: tuple[int, ...]) -> None:
        for fd in fds:
            with suppress(KeyError):
                self._selector.unregister(fd)

    def _reconnect(self) -> None:
        now = time.monotonic()
        for host in self.living:
            if host.connection is None and now >= host.retry_at:
                host.connect(self.opening(host, host.status.state == "starting"))
                if host.connection:
                    self._selector.register(host.connection.output, selectors.EVENT_READ, host)
                    self._selector.register(host.connection.errors, selectors.EVENT_READ, host)
                    self._await_write(host)

    def _await_write(self, host: JobHost) -> None:
        if host.connection and host.connection.unsent and host.connection.input not in self._selector.get_map():
            self._selector.register(host.connection.input, selectors.EVENT_WRITE, host)

    def close(self) -> None:
        """Close all connections; the job continues."""
        for host in self.hosts.values():
            self._with(host, host.close)
        self._selector.close()
