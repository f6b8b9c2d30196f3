"""The result of a check: what is wrong, where, why it matters, when the run would fail, and a fix."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from dstui.base.dataclass import dataclass

Severity = Literal["error", "warning", "info"]
When = Literal["parse", "initialize", "launch", "run"]
Operation = Mapping[str, Any]
"""One operation of a JSON Patch (RFC 6902): `{"op": "add" | "replace" | "remove", "path": "/a/b", "value": …}`, or
`{"op": "move", "from": "/a/b", "path": "/a/c"}`: another name for a key, which keeps its place."""

RANK_OF_SEVERITY: dict[Severity, int] = {"error": 0, "warning": 1, "info": 2}

MOMENTS: dict[When, str] = {
    "parse": "rejected by the parser",
    "initialize": "fails in deepspeed.initialize",
    "launch": "fails at the launcher",
    "run": "dies later",
}
ENGINE_MADE_IN = {"accelerate": "fails in Accelerator() or prepare()", "trainer": "fails in TrainingArguments() or train()"}
"""Integration -> the calls that create its engine. Some of what these two refuse never reaches deepspeed.initialize."""


def describe_moment(when: When, reader: str) -> str:
    """Return in words when a run would die; `reader` is the integration that reads the configuration."""
    return ENGINE_MADE_IN.get(reader, MOMENTS[when]) if when == "initialize" else MOMENTS[when]


@dataclass(frozen=True, slots=True)
class Fix:
    """A proposed change: a sentence, and if possible a patch for the checked file."""

    text: str
    patch: tuple[Operation, ...] | None = None
    rewrite: str | None = None
    """The whole new text of the file, if a patch cannot express it."""
    removes: tuple[str, ...] = ()
    """Files that the fix deletes, if the problem is outside of the Plan; never without the user's consent."""

    drops: str = ""
    """A comment line of the Plan that it takes out, which no patch can name."""

    @property
    def by_key(self) -> bool:
        """Return whether one key press can apply the fix."""
        return self.patch is not None or bool(self.removes or self.drops)


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding. `path` is dotted from the root of the checked file; `line` and `column` count from 1."""

    code: str
    severity: Severity
    path: str
    message: str
    """One sentence: what is wrong."""
    why: str = ""
    """The consequence: what DeepSpeed does, in its own words if it has some."""
    when: When | None = None
    """For an error, the moment at which the run would die."""
    line: int | None = None
    column: int | None = None
    fix: Fix | None = None

    @property
    def instruction(self) -> str:
        """Return what to do, as a line below the message; "" without a fix."""
        return f"\n    do: {self.fix.text}" if self.fix else ""

    def as_json(self) -> dict[str, Any]:
        """Return the object that `dstui check --json` documents."""
        fix = self.fix and {
            "text": self.fix.text,
            "patch": list(self.fix.patch) if self.fix.patch is not None else None,
            "rewrite": self.fix.rewrite,
        }
        return {
            "code": self.code,
            "severity": self.severity,
            "when": self.when,
            "path": self.path,
            "line": self.line,
            "message": self.message,
            "why": self.why,
            "fix": fix,
        }


def sort_findings(findings: list[Finding]) -> list[Finding]:
    """Sort findings by severity, then by line and code."""
    return sorted(findings, key=lambda f: (RANK_OF_SEVERITY[f.severity], f.line or 0, f.code))
