"""The immutable state of a session, from which everything visible is drawn: the Plan, the Machine, and what follows from both.

Undo and redo are lists of immutable Plans.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from dstui.base.dataclass import dataclass
from dstui.plan.plan import Plan
from dstui.tui.kit.text_row import GLYPHS

if TYPE_CHECKING:
    from dstui.check.reference import ReferenceVerdict
    from dstui.machine.snapshot import Gpu, Machine
    from dstui.plan import Plan
    from dstui.plan.finding import Finding
    from dstui.render.jsontext import JsonLine
    from dstui.render.target import Target
    from dstui.tui.session.file_lookups import Lookup
    from dstui.tui.session.forecasts import Outlook


class _Unset(Enum):
    UNSET = "not written in the Plan"


UNSET: Final = _Unset.UNSET
"""As a value: the key is not in the Plan, or is to be removed."""

Edit = tuple[str, Any]
"""A dotted path of the Plan and its new value, or UNSET."""


@dataclass(frozen=True, slots=True)
class State:
    """One state of the session. `changed`: the numbers of the preview lines that the last edit changed."""

    plan: Plan
    machine: Machine | None = None
    """None before the probe. Its module alone takes a tenth of the first frame, which does not need it."""
    findings: tuple[Finding, ...] = ()
    checked: bool = False
    lines: tuple[JsonLine, ...] = ()
    changed: frozenset[int] = frozenset()
    saved: bool = True
    ranks: int | None = None
    target: Target | None = None
    """The Plan with the machine and the hostfile: what is launched and what the review shows. None before the first check."""
    unlaunchable: str = ""
    """The reason why the target has no command; "" if it has one."""
    lookups: Mapping[Lookup, Any] = field(default_factory=dict)
    """The results of look-ups of files around the Plan."""
    outlook: Outlook | None = None
    """The forecast; None if no model is named or the look-up is not finished."""
    run: str = ""
    """The state of the job in a word: running, succeeded, failed…"""
    validated: str = ""
    """The text of the Plan that DeepSpeed's own parser has judged last."""
    verdict: ReferenceVerdict | None = None
    """Its verdict on that text; None before the first one."""
    refusal: tuple[str, str] = ("", "")
    """The path and the message of a refused edit; removed by the next edit."""

    @property
    def gpus(self) -> tuple[Gpu, ...]:
        """Return the GPUs that are known."""
        return self.machine.gpus if self.machine is not None else ()

    @property
    def known_machine(self) -> Machine:
        """Return the machine, or one whose facts are all unknown."""
        from dstui.machine.snapshot import Machine

        return self.machine or Machine.unprobed()

    def launch_target(self) -> Target:
        """Return the target; without the hostfile's hosts before the first check."""
        from dstui.render.target import Target

        return self.target or Target(self.plan.unfocused, self.known_machine)

    def counted(self, severity: str) -> int:
        """Return the number of findings of this severity."""
        return sum(f.severity == severity for f in self.findings)

    def deepspeeds_word(self) -> str:
        """Return DeepSpeed's verdict in a few cells: its release and a glyph, · before it has judged this text."""
        if self.verdict is None:
            return ""
        glyph = GLYPHS["unknown" if self.validated != self.plan.text else "ok" if self.verdict.ok else "error"]
        return f"{self.verdict.name} {glyph}"

    def finding_at(self, path: str) -> Finding | None:
        """Return the most severe finding on exactly this path."""
        absolute = self.plan.absolute(path)
        return next((f for f in self.findings if f.path == absolute and f.severity != "info"), None)


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
