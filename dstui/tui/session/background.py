"""Background services, such as the one that keeps a draft.

A service knows the Plan that it works on and where to post its result, but no widget and no session.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from importlib import import_module
from threading import Event, Thread
from typing import Protocol

from textual.message_pump import MessagePump

from dstui.base.files import FileProblem
from dstui.plan import Plan
from dstui.tui.kit.tools import Latest, afterwards, in_thread
from dstui.tui.session.drafts import Draft
from dstui.tui.session.messages import DraftFailed, GpusRefreshed, LookupsDone, Probed
from dstui.tui.session.session import Session
from dstui.tui.session.state import State


class Service(Protocol):
    """A background service: started after the first frame, told of every change of the state, closed at the end."""

    def start(self, state: State) -> None:
        """Start with the current state."""

    def changed(self, before: State, now: State) -> None:
        """Handle a new state. Called in the app's thread: queue the work and return at once."""

    def close(self) -> None:
        """Stop. Does not wait for anything that may never answer."""


CHECK_MODULES = (
    "dstui.tui.session.file_lookups",
    "dstui.assess",
    "dstui.check.rules.all_rules",
    "dstui.render.jsontext",
    "dstui.render.launch",
)
"""Modules of a check of a Plan with a Machine."""


class Readiness:
    """Start the services once, and call waiting functions when their results are there."""

    def __init__(self, owner: MessagePump, session: Session, services: Sequence[Service]) -> None:
        self._owner, self._session, self._services = owner, session, services
        self._waiting: list[Callable[[], object]] = []
        self.began = False

    def begin(self) -> None:
        """Start the services, and the checks once they are imported; only the first call has an effect."""
        if self.began:
            return
        self.began = True
        for service in self._services:  # services that wait for other processes come first
            service.start(self._session.state)
        for service in self._services:
            self._session.subscribe(service.changed)
        self._session.subscribe(lambda _before, now: self._call(now))
        afterwards(self._owner, _import_checks, lambda _: self._session.begin_checks())

    def once_known(self, act: Callable[[], object]) -> None:
        """Call a function as soon as the machine and the files around the Plan are known; at once if they are."""
        self._waiting.append(act)
        self.begin()
        self._call(self._session.state)

    def _call(self, state: State) -> None:
        if self._waiting and state.checked and state.machine is not None and state.lookups:
            waiting, self._waiting = self._waiting, []
            for act in waiting:
                self._owner.call_later(act)


def _import_checks() -> None:
    """Import what the first check needs: it takes longer than a key may wait."""
    for name in CHECK_MODULES:
        import_module(name)


AFTER = 1.0
"""Seconds from the start until the forecast is imported for a Plan that names no model."""


class Lookups:
    """Look files up after every edit and on request."""

    def __init__(self, owner: MessagePump) -> None:
        self._owner = owner
        self._waiting: Latest[Plan] = Latest()

    def start(self, state: State) -> None:
        """Look for the first time."""
        in_thread(self._owner, self._resolve)
        in_thread(self._owner, self._prepare)
        self.refresh(state.plan)

    def refresh(self, plan: Plan) -> None:
        """Look again; unchanged results have no effect."""
        self._waiting.put(plan)

    def changed(self, before: State, now: State) -> None:
        """Look around the new Plan, whose files may be others."""
        if now.plan is not before.plan:
            self.refresh(now.plan)

    def _resolve(self) -> None:
        from dstui.tui.session.file_lookups import resolve_all
        from dstui.tui.session.model_lookup import FactsOf

        while (plan := self._waiting.take()) is not None and not self._waiting.closed:
            if FactsOf.of(plan).models:
                _import_forecast()  # the session uses it for the results
            self._owner.post_message(LookupsDone(resolve_all(plan)))

    def _prepare(self) -> None:
        """Import the forecast for a Plan that names a model later, after the busy first second."""
        if not self._waiting.closed_within(AFTER):
            _import_forecast()

    def close(self) -> None:
        """Stop looking."""
        self._waiting.close()


def _import_forecast() -> None:
    """Import the forecast. It takes 0.2 s, in which the UI would not respond."""
    from dstui.tui.session import forecasts  # noqa: F401


INTERVAL = 1.0
"""Seconds between two reads of the GPUs' state."""


class Probe:
    """Probe this machine once, unless the session has a recorded one."""

    def __init__(self, owner: MessagePump) -> None:
        self._owner = owner

    def start(self, state: State) -> None:
        """Probe, unless a machine is known."""
        if state.machine is None:
            in_thread(self._owner, self._probe)

    def _probe(self) -> None:
        from dstui.machine.probe import probe

        self._owner.post_message(Probed(probe()))

    def changed(self, before: State, now: State) -> None:
        """Do nothing: the machine does not depend on the Plan."""

    def close(self) -> None:
        """Drop the result of a probe that is still running."""


class LiveGpus:
    """The load of the GPUs once a second while it is followed. A child process keeps NVML open."""

    def __init__(self, owner: MessagePump) -> None:
        self._owner = owner
        self._over: Event | None = None

    def follow(self, wanted: bool) -> None:
        """Start or stop following."""
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
        """Do nothing: `follow` starts it."""

    def changed(self, before: State, now: State) -> None:
        """Do nothing: the load does not depend on the Plan."""

    def close(self) -> None:
        """End the child process, which must not outlive the app."""
        self.follow(False)


KEEP_AFTER = 0.3
"""Seconds from an edit to its draft, which a kill may lose."""
LAST_WRITE = 2.0
"""Seconds that the exit waits for a disk."""


class Autosave:
    """Writes the newest draft shortly after each edit. If nothing is unsaved, there is no draft."""

    def __init__(self, owner: MessagePump, draft: Callable[[], Draft]) -> None:
        """Create it. `draft`: the open document as it is now."""
        self._owner, self._draft = owner, draft
        self._waiting: Latest[Draft] = Latest()
        self._writer: Thread | None = None
        self._failed = False
        """True if a failed write of the draft was reported already."""

    def start(self, state: State) -> None:  # noqa: ARG002  # the opened Plan has no edits yet
        """Start to keep a draft of unsaved edits."""
        self._writer = in_thread(self._owner, self._work)

    def changed(self, before: State, now: State) -> None:
        """Update the draft after a change of the text or of the file on disk."""
        if self._writer is not None and (now.plan is not before.plan or now.saved != before.saved):
            self._waiting.put(self._draft())

    def _work(self) -> None:
        while (draft := self._waiting.take()) is not None:
            self._waiting.closed_within(KEEP_AFTER)
            self._write(self._waiting.newer(draft))

    def _write(self, draft: Draft) -> None:
        try:
            draft.keep()
        except (FileProblem, OSError) as error:
            if not self._failed:
                self._owner.post_message(DraftFailed(str(error)))
            self._failed = True

    def end(self, *, keep: bool) -> None:
        """End the session. `keep`: it ends by a signal or an error, so the user was not asked about unsaved edits."""
        if self._writer is not None:
            draft = self._draft()
            self._waiting.put(draft if keep else replace(draft, text=draft.began))
            self.close()
            self._writer.join(LAST_WRITE)

    def keep_now(self) -> None:
        """Write the draft now, since the app may not exit normally. Thread-safe."""
        if self._writer is not None:
            self._write(self._draft())

    def close(self) -> None:
        """Write a pending draft, and stop."""
        self._waiting.close()
