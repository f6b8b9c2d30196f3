"""What lies on disk around the Plan, looked up in a thread: a disk may be a network mount that does not answer."""

from __future__ import annotations

from textual.message_pump import MessagePump

from dstui.plan import Plan
from dstui.tui.kit.threads import in_thread
from dstui.tui.session.latest_value import Latest
from dstui.tui.session.messages import LookupsDone
from dstui.tui.session.state import State

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
