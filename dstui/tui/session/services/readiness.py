"""When what the forms need is begun, and when it is known: probing, look-ups and checks. Who only looks at a job does without."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dstui.tui.session.services import Service
from dstui.tui.session.session import Session
from dstui.tui.session.state import State


class Readiness:
    """Starts the services once, and calls who waits for what they find."""

    def __init__(self, session: Session, services: Sequence[Service], later: Callable[[Callable[[], object]], object]) -> None:
        """`later` calls something once the message that is being handled is."""
        self._session, self._services, self._later = session, services, later
        self._waiting: list[Callable[[], object]] = []
        self.began = False

    def begin(self) -> None:
        """Start what works beside the screen, and check from now on; once, whoever asks how often."""
        if self.began:
            return
        self.began = True
        for service in self._services:  # first the ones that have other processes to wait for
            service.start(self._session.state)
        self._session.begin_checks()
        for service in self._services:
            self._session.subscribe(service.changed)
        self._session.subscribe(lambda _before, now: self._call(now))

    def once_known(self, act: Callable[[], object]) -> None:
        """Do something as soon as the machine and what lies around the Plan are known: at once, where they are."""
        self._waiting.append(act)
        self.begin()
        self._call(self._session.state)

    def _call(self, state: State) -> None:
        if self._waiting and state.checked and state.machine is not None and state.lookups:
            waiting, self._waiting = self._waiting, []
            for act in waiting:
                self._later(act)
