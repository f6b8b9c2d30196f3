"""Slow work beside the screen. A service knows the Plan that it works on and whom to post to, never a widget or the session."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from threading import Event
from typing import Protocol

from textual.message_pump import MessagePump

from dstui.plan import Plan
from dstui.tui.kit.tools import Latest, in_thread
from dstui.tui.session.messages import GpusRefreshed, LookupsDone, Probed
from dstui.tui.session.session import Session
from dstui.tui.session.state import State


class Service(Protocol):
    """A background service: started after the first frame, told of every change of the state, closed at the end."""

    def start(self, state: State) -> None:
        """Begin, with the state as it is."""

    def changed(self, before: State, now: State) -> None:
        """The state is another one. Called in the app's thread: hands on what there is to do, and returns at once."""

    def close(self) -> None:
        """Nothing more is wanted. Does not wait for what may never answer."""


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


AFTER = 1.0
"""Seconds from the start until the forecast is imported for a Plan that names no model."""


class Lookups:
    """Looks again after every edit, and whenever it is asked to."""

    def __init__(self, owner: MessagePump) -> None:
        self._owner = owner
        self._waiting: Latest[Plan] = Latest()

    def start(self, state: State) -> None:
        """Look for the first time."""
        in_thread(self._owner, self._resolve)
        in_thread(self._owner, self._prepare)
        self.refresh(state.plan)

    def refresh(self, plan: Plan) -> None:
        """Look again; what is the same as before changes nothing."""
        self._waiting.put(plan)

    def changed(self, before: State, now: State) -> None:
        """Another Plan may lie among other files."""
        if now.plan is not before.plan:
            self.refresh(now.plan)

    def _resolve(self) -> None:
        from dstui.tui.session.file_lookups import resolve_all
        from dstui.tui.session.model_lookup import FactsOf

        while (plan := self._waiting.take()) is not None and not self._waiting.closed:
            if FactsOf.of(plan).models:
                _import_forecast()  # the session forecasts what was found
            self._owner.post_message(LookupsDone(resolve_all(plan)))

    def _prepare(self) -> None:
        """For the Plan that names a model later: nobody waits for it, and the first second has more to do."""
        if not self._waiting.closed_within(AFTER):
            _import_forecast()

    def close(self) -> None:
        """Look no more."""
        self._waiting.close()


def _import_forecast() -> None:
    """Takes a fifth of a second, and would stop the screen for so long."""
    from dstui.tui.session import forecasts  # noqa: F401


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
