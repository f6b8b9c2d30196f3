"""What a signature is: the words by which one cause is known, what role it plays, and what to do about it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Literal

from dstui.plan.finding import Operation

if TYPE_CHECKING:
    from dstui.plan.plan import Plan

Role = Literal["root", "symptom", "quiet", "hint", "cascade", "benign", "stop", "success", "performance"]
"""How a sign counts:

root         it can be the cause of the end
symptom      a rank says that it waits for others: the cause only where nothing better is known
quiet        the run went on, but is not the run that was asked for: named where nothing failed
hint         worth a note beside another cause, never a cause
cascade      another rank, or the launcher, died first: never a cause
benign       frightening and harmless
stop         ended on purpose
success      ended well
performance  slower than need be
"""

REACH = 500
"""Characters around a sign's literal text in which its regular expression is looked for: so no line, however long, makes it slow."""

PatchMaker = Callable[["Plan"], "list[Operation] | None"]
"""The fix as a JSON Patch for this Plan; None where the Plan leaves nothing to change."""


_compiled = cache(re.compile)
"""Hundreds of expressions, of which a log needs a few: to compile them all would take longer than to read a megabyte."""


@dataclass(frozen=True, slots=True)
class Sign:
    """Words in one line. `text` must be in it literally (that is what makes the search fast), `expression` too where there is one."""

    text: str
    expression: str = ""
    """A regular expression."""

    @property
    def regex(self) -> re.Pattern[str] | None:
        """The expression, compiled when it is first asked for."""
        return _compiled(self.expression) if self.expression else None

    def matches(self, line: str) -> bool:
        """Return whether the line has it: the literal text, and the regular expression at most REACH characters around it."""
        at = line.find(self.text)
        regex = self.regex if at >= 0 else None
        while at >= 0:
            if regex is None or regex.search(line, max(at - REACH, 0), at + len(self.text) + 2 * REACH):
                return True
            at = line.find(self.text, at + REACH)
        return False


def rx(text: str, expression: str) -> Sign:
    """Return a sign that needs a regular expression: `text` is a literal part of whatever matches it."""
    return Sign(text, expression)


@dataclass(frozen=True, slots=True)
class Remedy:
    """One way out: in words, and where the Plan can be changed so that it is gone, how."""

    text: str
    patch: PatchMaker | None = None


@dataclass(frozen=True, slots=True)
class Signature:
    """One thing that can be read from logs."""

    id: str
    role: Role
    title: str
    """What happened, a sentence for whoever started the run."""
    cause: str = ""
    """What brings it about."""
    signs: tuple[str | Sign, ...] = ()
    """A line with any of them shows it; a plain string stands for a line that contains it."""
    remedies: tuple[str | Remedy, ...] = ()
    confirm: str = ""
    """The fact that makes it certain."""
    explains: tuple[str, ...] = ()
    """Signatures that only follow from this one where both are found: they are never named beside it."""
    launcher: bool = False
    """Said before any rank has started: no rank failed."""
    sure: bool = True
    """Whether the words allow no other reading."""
    alone: bool = False
    """Whether the line says by itself that something ended: a kernel's or a scheduler's word needs no traceback around it."""
    only_rank: int | None = None
    """The rank that alone can meet it, where no line says which did."""
    in_code: bool = False
    """Whether the words are a line of source code in a traceback."""
    alike: tuple[str, ...] = ()
    """Signatures of other causes that may leave the same words, the likeliest first: told beside this one where it is not sure, each with
    its own `confirm`, which tells them apart."""
    source: str = ""
    """Where the words come from: FILE:NAME, a file of DeepSpeed 0.19 or of a library beside it, and the function or class in it. What the
    kernel, the driver, NCCL or SLURM say has none."""
    answer: str = ""
    """The id under which it is reported, where that is another signature's: the same cause seen in another way."""

    def all_signs(self) -> tuple[Sign, ...]:
        """Return the signs, each with its literal text."""
        return tuple(Sign(sign) if isinstance(sign, str) else sign for sign in self.signs)

    def all_remedies(self) -> tuple[Remedy, ...]:
        """Return the ways out."""
        return tuple(Remedy(way) if isinstance(way, str) else way for way in self.remedies)
