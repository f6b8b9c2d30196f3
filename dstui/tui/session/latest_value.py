"""The newest of something, handed from the app to a thread: what it overtook need not be worked on."""

from __future__ import annotations

from threading import Condition
from typing import Generic, TypeVar

T = TypeVar("T")


class Latest(Generic[T]):
    """A box for one thing. The app puts, a thread takes."""

    def __init__(self) -> None:
        self._changed = Condition()
        self._held: list[T] = []
        self.closed = False

    def put(self, thing: T) -> None:
        """This one next; what was not taken yet is forgotten."""
        with self._changed:
            self._held = [thing]
            self._changed.notify_all()  # one thread may take while another waits for the end

    def close(self) -> None:
        """Nothing will be put any more."""
        with self._changed:
            self.closed = True
            self._changed.notify_all()

    def closed_within(self, seconds: float) -> bool:
        """Wait so long, or until nothing will be put any more, and say whether that is so."""
        with self._changed:
            return self._changed.wait_for(lambda: self.closed, seconds)

    def newer(self, thing: T) -> T:
        """What was put since this was taken; else this."""
        with self._changed:
            return self._held.pop() if self._held else thing

    def take(self) -> T | None:
        """Wait for the next one; None when there will be none. What is there at the end is still handed over."""
        with self._changed:
            self._changed.wait_for(lambda: self.closed or self._held)
            return self._held.pop() if self._held else None
