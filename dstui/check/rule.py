"""Rules: small functions that yield problems, with a stable code and the consequence.

@rule("DS051", "error", when="parse", says="bfloat16 and fp16 modes cannot be simultaneously enabled", source="runtime/config.py:511")
def both_16_bit_types(c: Context) -> Problems:
    "fp16 and bf16 are both on."
    if c.on("fp16.enabled") and c.on("bf16.enabled"):
        yield c.problem("bf16.enabled", "fp16 and bf16 are both enabled: one of them", fix=c.put("fp16.enabled", False, "turn fp16 off"))
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from types import ModuleType

from dstui.base.dataclass import dataclass
from dstui.base.limits import MAX_LISTED
from dstui.check.context import Context, Problem
from dstui.plan.catalogue import NEWEST, RELEASES, version_tuple
from dstui.plan.finding import Finding, Severity, When

Problems = Iterator[Problem]
Evaluate = Callable[[Context], Problems]


@dataclass(frozen=True, slots=True)
class Rule:
    """One thing that can be wrong with a configuration."""

    code: str
    severity: Severity
    title: str
    evaluate: Evaluate
    when: When | None = None
    says: str = ""
    """DeepSpeed's own message, or the constant part of it; empty if it has none."""
    source: str = ""
    """File and line where DeepSpeed (or whoever reads the file) decides it."""
    since: str = RELEASES[0]
    until: str = NEWEST
    readers: tuple[str, ...] = ()
    """The integrations that the rule applies to; empty for all."""

    def applies(self, c: Context) -> bool:
        """Return whether the rule applies to this reader and this release."""
        return (not self.readers or c.integration in self.readers) and (
            (self.since == RELEASES[0] and self.until == NEWEST)
            or version_tuple(self.since) <= version_tuple(c.release.version) <= version_tuple(self.until)
        )

    def _never_comes(self, c: Context, when: When | None) -> bool:
        """Return whether the run would only fail in an engine that, by the analysis of the script, is never created."""
        in_an_engine = when in ("initialize", "run") and not self.source.startswith(BEFORE_AN_ENGINE)
        return in_an_engine and c.facts is not None and c.facts.makes_no_engine and c.integration == "accelerate"

    def findings(self, c: Context) -> Iterator[Finding]:
        """Yield the findings of the rule; of too many problems only the first ones."""
        for count, p in enumerate(self.evaluate(c)):
            if count == MAX_LISTED:
                yield Finding(
                    self.code, "info", c.root.rstrip("."), f"more findings of this kind ({self.code}) are not listed: fix these first"
                )
                return
            severity = p.severity or self.severity
            why = p.why or (f"DeepSpeed: {quote_excerpt(p.says or self.says)}" if p.says or self.says else "")
            if severity == "error" and self._never_comes(c, p.when or self.when):
                severity, why = "warning", f"{why} (once the script prepares a model: it does not)".strip()
            when = (p.when or self.when) if severity == "error" else None
            path = p.path[1:] if p.path.startswith("^") else (c.root + p.path).rstrip(".")
            yield Finding(self.code, severity, path, p.message, why, when, p.line or c.lines(path), fix=p.fix)


BEFORE_AN_ENGINE = ("accelerate/utils", "accelerate/state")
"""The sources of rules about what Accelerator() itself refuses."""
MID_SENTENCE = re.compile(r"\b(?:be|between instances of|by|multiple of|with|to|requires?|at least one)$")
BEGUN = re.compile(r"(?:are|cannot|got|has|is|must|not|requires)\b")


def quote_excerpt(says: str) -> str:
    """Quote a part of a message, with an ellipsis if it is cut."""
    return ("… " if BEGUN.match(says) else "") + says + (" …" if MID_SENTENCE.search(says) else "")


def rule(  # noqa: PLR0913 - all but the first are named
    code: str,
    severity: Severity,
    *,
    when: When | None = None,
    says: str = "",
    source: str = "",
    since: str = RELEASES[0],
    until: str = NEWEST,
    readers: tuple[str, ...] = (),
) -> Callable[[Evaluate], Rule]:
    """Make a rule of a function, whose docstring is the title. An error must say `when` the run would fail."""

    def made(evaluate: Evaluate) -> Rule:
        return Rule(code, severity, title_of(evaluate), evaluate, when, says, source, since, until, readers)

    return made


def title_of(function: Callable[..., object]) -> str:
    """Return the first line of a rule's docstring."""
    return (function.__doc__ or "").strip().splitlines()[0]


def rules_of(*modules: ModuleType) -> dict[str, Rule]:
    """Return the rules of some modules by code, in the order of their definition. Raises ValueError if two have one code."""
    found: dict[str, Rule] = {}
    for one in (value for module in modules for value in vars(module).values() if isinstance(value, Rule)):
        if found.setdefault(one.code, one) is not one:
            raise ValueError(f"the code {one.code} is taken by {found[one.code].title!r}")
    return found
