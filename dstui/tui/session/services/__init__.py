"""Slow work beside the screen. A service knows the Plan that it works on and whom to post to, never a widget or the session."""

from __future__ import annotations

from typing import Protocol

from dstui.tui.session.state import State


class Service(Protocol):
    """What the app starts after the first frame, tells of every change of the state, and closes at its end."""

    def start(self, state: State) -> None:
        """Begin, with the state as it is."""

    def changed(self, before: State, now: State) -> None:
        """The state is another one. Called in the app's thread: hands on what there is to do, and returns at once."""

    def close(self) -> None:
        """Nothing more is wanted. Does not wait for what may never answer."""
