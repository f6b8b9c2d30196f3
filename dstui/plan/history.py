"""Undo and redo over immutable Plans."""

from __future__ import annotations

from dstui.plan.plan import Plan


class History:
    """The states of a session: the current Plan, those before it, and those that were undone."""

    def __init__(self, plan: Plan) -> None:
        self._past, self._future, self.current = list[Plan](), list[Plan](), plan

    def push(self, plan: Plan) -> None:
        """Add a state and forget the undone ones."""
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
        """Return the previous state; None at the beginning."""
        return self._move(self._past, self._future)

    def redo(self) -> Plan | None:
        """Return the state that was undone last; None if there is none."""
        return self._move(self._future, self._past)

    def _move(self, source: list[Plan], target: list[Plan]) -> Plan | None:
        if not source:
            return None
        target.append(self.current)
        self.current = source.pop()
        return self.current
