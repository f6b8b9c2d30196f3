"""The machine: looked at once in a thread; its GPUs' load by the second, for as long as somebody looks at it."""

from __future__ import annotations

from functools import partial
from threading import Event

from textual.message_pump import MessagePump

from dstui.tui.kit.threads import in_thread
from dstui.tui.session.messages import GpusRefreshed, Probed
from dstui.tui.session.state import State

INTERVAL = 1.0
"""Seconds between two looks at the GPUs."""


class Probe:
    """Looks at this machine once, unless the session has a recorded one."""

    def __init__(self, owner: MessagePump) -> None:
        self._owner = owner

    def start(self, state: State) -> None:
        """Probe, where no machine is known."""
        if state.machine is None:
            in_thread(self._owner, self._probe)

    def _probe(self) -> None:
        from dstui.machine.probe import probe

        self._owner.post_message(Probed(probe()))

    def changed(self, before: State, now: State) -> None:
        """Nothing depends on the Plan."""

    def close(self) -> None:
        """A probe that still runs finds nobody to tell."""


class LiveGpus:
    """The GPUs' load, once a second, while it is followed. A child process keeps NVML open meanwhile."""

    def __init__(self, owner: MessagePump) -> None:
        self._owner = owner
        self._over: Event | None = None

    def follow(self, wanted: bool) -> None:
        """From now on, or no longer."""
        if wanted and self._over is None:
            self._over = Event()
            in_thread(self._owner, partial(self._poll, self._over))
        elif not wanted and self._over is not None:
            self._over.set()
            self._over = None

    def _poll(self, over: Event) -> None:
        from dstui.machine.live import Live

        with Live() as live:
            while not over.wait(INTERVAL):
                if states := live.poll():
                    self._owner.post_message(GpusRefreshed(states))

    def start(self, state: State) -> None:
        """Only `follow` begins it."""

    def changed(self, before: State, now: State) -> None:
        """Nothing depends on the Plan."""

    def close(self) -> None:
        """No child outlives the app: it ends with this process too."""
        self.follow(False)
