"""Undo and redo over immutable Plans."""

from __future__ import annotations

from dstui.plan.plan import Plan


class History:
    """Where a session has been. The current Plan is always there; the past is as long as the session."""

    def __init__(self, plan: Plan) -> None:
        self._past, self._future, self.current = list[Plan](), list[Plan](), plan

    def push(self, plan: Plan) -> None:
        """Add a state and forget what had been undone."""
        if plan.text != self.current.text:
            self._past.append(self.current)
            self._future.clear()
            self.current = plan

    @property
    def can_undo(self) -> bool:
        return bool(self._past)

    @property
    def can_redo(self) -> bool:
        return bool(self._future)

    def undo(self) -> Plan | None:
        """Return the previous state, None at the beginning."""
        return self._move(self._past, self._future)

    def redo(self) -> Plan | None:
        """Return the state that was undone last, None where there is none."""
        return self._move(self._future, self._past)

    def _move(self, source: list[Plan], target: list[Plan]) -> Plan | None:
        if not source:
            return None
        target.append(self.current)
        self.current = source.pop()
        return self.current
