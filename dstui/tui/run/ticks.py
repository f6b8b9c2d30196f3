"""The ticks of a view: frequent while something may change, rare at rest."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic

from textual.message_pump import MessagePump
from textual.timer import Timer

POLL = 1 / 12
"""Seconds between two polls of the job. New lines are painted at most this often, however fast the logs grow."""
REST = 2.0
"""Seconds between two polls at rest."""
SETTLED = 2.0
"""Seconds without anything to do, and without a key, after which the ticks are at rest."""


class Ticks:
    """Calls a function of a widget: every POLL seconds, or every REST seconds while it `rests`."""

    def __init__(self, owner: MessagePump, tick: Callable[[], object]) -> None:
        self._owner, self._tick = owner, tick
        self._timer: Timer | None = None
        self._busy_until = 0.0
        self.rests = False

    def begin(self) -> None:
        """Tick often, from now on."""
        self._set(rests=False)
        self.wake()

    def end(self) -> None:
        """Stop."""
        if self._timer is not None:
            self._timer.stop()
        self._timer, self.rests = None, False

    def wake(self) -> None:
        """Tick often for a while: the user does something, or something has changed."""
        self._busy_until = monotonic() + SETTLED
        if self.rests:
            self._set(rests=False)

    def settle(self, *, busy: bool) -> None:
        """Come to rest if nothing was `busy` for a while."""
        if busy:
            self.wake()
        elif not self.rests and monotonic() > self._busy_until:
            self._set(rests=True)

    def _set(self, *, rests: bool) -> None:
        self.end()
        self.rests = rests
        self._timer = self._owner.set_interval(REST if rests else POLL, self._tick)
