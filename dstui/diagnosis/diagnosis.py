"""The result of a diagnosis: the cause, the confidence, the lines that show it, which rank failed first, and what to do."""

from __future__ import annotations

from dataclasses import field, replace
from typing import Any, Literal

from dstui.base.dataclass import dataclass
from dstui.plan.finding import Fix

Kind = Literal["failure", "stop", "benign", "success"]
Confidence = Literal["high", "medium", "low"]


@dataclass(frozen=True, slots=True)
class Evidence:
    """One line of a log. `line` counts from 1; `rank` and `host` are None if the text does not tell them."""

    file: str
    line: int
    text: str
    rank: int | None = None
    host: str | None = None

    def as_json(self) -> dict[str, Any]:
        """Return the object that `dstui diagnose --json` documents."""
        return {"file": self.file, "line": self.line, "text": self.text, "rank": self.rank, "host": self.host}


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The reason for the end of a run. `cause` is None if nothing shows it: unknown is better than a guess."""

    cause: str | None
    kind: Kind | None
    """None if nothing shows whether it ended well or badly."""
    confidence: Confidence
    title: str
    """The event, in one sentence."""
    why: str = ""
    """The usual reason."""
    evidence: tuple[Evidence, ...] = ()
    first_failing_rank: int | None = None
    ranks: tuple[int, ...] = ()
    """All ranks that show the cause itself, not its consequences."""
    every_rank: bool = field(default=False, kw_only=True)
    """True if all ranks show it: then none of them is to blame."""
    host: str | None = None
    """The host of the cause, if the text distinguishes hosts."""
    confirm: str = ""
    """The fact that would prove it."""
    fixes: tuple[Fix, ...] = ()
    others: tuple[str, ...] = ()
    """Further causes that are independent of the first."""
    could_be: tuple[str, ...] = field(default=(), kw_only=True)
    """Causes with the same text, the likeliest first, if the first is not sure."""
    last_error: Evidence | None = field(default=None, kw_only=True)
    """The last exception of the last run, if it differs from those that show the cause."""
    notes: tuple[str, ...] = field(default=())
    """Remarks, one sentence each: for example, that the launcher's message names another rank, and why that is misleading."""

    @property
    def found(self) -> bool:
        """Return whether there is a cause."""
        return self.cause is not None

    def renamed(self, folder: str, to: str) -> Diagnosis:
        """Return this diagnosis with the folder called `to` in its evidence and notes, for a report that is read elsewhere."""
        evidence = tuple(replace(line, file=line.file.replace(folder, to, 1)) for line in self.evidence)
        return replace(self, evidence=evidence, notes=tuple(note.replace(folder, to) for note in self.notes))

    def as_json(self) -> dict[str, Any]:
        """Return the object that `dstui diagnose --json` documents."""
        return {
            "version": 1,
            "cause": self.cause,
            "kind": self.kind,
            "confidence": self.confidence,
            "title": self.title,
            "why": self.why,
            "evidence": [line.as_json() for line in self.evidence],
            "first_failing_rank": self.first_failing_rank,
            "ranks": list(self.ranks),
            "every_rank": self.every_rank,
            "host": self.host,
            "confirm": self.confirm,
            "fixes": [{"text": fix.text, "patch": list(fix.patch) if fix.patch is not None else None} for fix in self.fixes],
            "others": list(self.others),
            "could_be": list(self.could_be),
            "last_error": self.last_error.as_json() if self.last_error else None,
            "notes": list(self.notes),
        }
