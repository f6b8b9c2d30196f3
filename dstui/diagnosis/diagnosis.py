"""What a diagnosis says: the cause, how sure it is, the lines that show it, who failed first, and what to do."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Literal

from dstui.plan.finding import Fix

Kind = Literal["failure", "stop", "benign", "success"]
Confidence = Literal["high", "medium", "low"]


@dataclass(frozen=True, slots=True)
class Evidence:
    """One line of a log. `line` counts from 1; `rank` and `host` are None where the text does not tell them."""

    file: str
    line: int
    text: str
    rank: int | None = None
    host: str | None = None

    def as_json(self) -> dict[str, Any]:
        """As `dstui diagnose --json` has it."""
        return {"file": self.file, "line": self.line, "text": self.text, "rank": self.rank, "host": self.host}


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Why a run ended. `cause` is None where nothing says it: unknown beats a guess."""

    cause: str | None
    kind: Kind | None
    """None where nothing says how it ended: neither well nor badly."""
    confidence: Confidence
    title: str
    """One sentence: what happened."""
    why: str = ""
    """What brings it about, in general."""
    evidence: tuple[Evidence, ...] = ()
    first_failing_rank: int | None = None
    ranks: tuple[int, ...] = ()
    """All ranks that show the cause themselves, not its consequences."""
    every_rank: bool = field(default=False, kw_only=True)
    """Whether all ranks show it: then none of them is to blame."""
    host: str | None = None
    """Where the cause was, if the text tells one host from others."""
    confirm: str = ""
    """The fact that would make it certain."""
    fixes: tuple[Fix, ...] = ()
    others: tuple[str, ...] = ()
    """Further causes, independent of the first."""
    could_be: tuple[str, ...] = field(default=(), kw_only=True)
    """Causes that may leave the same words, the likeliest first, where the first is not sure."""
    last_error: Evidence | None = field(default=None, kw_only=True)
    """The last exception of the last run, where it is another than those that show the cause."""
    notes: tuple[str, ...] = field(default=())
    """What else should be known, a sentence each: the launcher's line names another rank, and why that is no evidence."""

    @property
    def found(self) -> bool:
        """Whether there is an answer."""
        return self.cause is not None

    def renamed(self, folder: str, to: str) -> Diagnosis:
        """This diagnosis with the folder called `to` in its evidence and notes: for a report that is read elsewhere."""
        evidence = tuple(replace(line, file=line.file.replace(folder, to, 1)) for line in self.evidence)
        return replace(self, evidence=evidence, notes=tuple(note.replace(folder, to) for note in self.notes))

    def as_json(self) -> dict[str, Any]:
        """Return the shape that `dstui diagnose --json` promises."""
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
