"""The immutable state of a session, from which everything visible is drawn: the Plan, the Machine, and what follows from both."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

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
"""As a value: the key is not in the Plan, or shall be taken out of it."""

Edit = tuple[str, Any]
"""A dotted path of the Plan and its new value, or UNSET."""


@dataclass(frozen=True, slots=True)
class State:
    """One state of the session. `changed`: the numbers of the preview lines that the last edit changed."""

    plan: Plan
    machine: Machine | None = None
    """None until it was looked at. Its module alone costs a tenth of the first frame, which does without."""
    findings: tuple[Finding, ...] = ()
    checked: bool = False
    lines: tuple[JsonLine, ...] = ()
    changed: frozenset[int] = frozenset()
    saved: bool = True
    ranks: int | None = None
    target: Target | None = None
    """The Plan on the machine with what its hostfile holds: what is launched, and what the review shows. None before the first check."""
    lookups: Mapping[Lookup, Any] = field(default_factory=dict)
    """What lies on disk around the Plan, as far as it was looked at."""
    outlook: Outlook | None = None
    """What is forecast; None where no model is named, or nobody has looked at it yet."""
    run: str = ""
    """The state of the job in a word: running, succeeded, failed…"""
    validated: str = ""
    """The text of the Plan that DeepSpeed's own parser answered about last."""
    verdict: ReferenceVerdict | None = None
    """What it said of that text; None before its first answer."""
    refusal: tuple[str, str] = ("", "")
    """The path of an edit that the Plan refused, and its sentence; gone with the next edit."""

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
