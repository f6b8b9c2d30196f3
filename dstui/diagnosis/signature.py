"""Signatures: the texts by which a cause is recognised, its role, and its fixes."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Literal

from dstui.base.dataclass import dataclass
from dstui.plan.finding import Operation

if TYPE_CHECKING:
    from dstui.plan.plan import Plan

Role = Literal["root", "symptom", "quiet", "hint", "cascade", "benign", "stop", "success", "performance"]
"""The role of a signature:

    root         it can be the cause of the end
    symptom      a rank reports that it waits for others: the cause only if nothing better is known
    quiet        the run continued, but is not the intended run: reported if nothing failed
    hint         a note beside another cause, never a cause
    cascade      another rank, or the launcher, died first: never a cause
    benign       looks alarming and is harmless
    stop         ended on purpose
    success      ended successfully
    performance  slower than necessary"""

REACH = 500
"""Characters around a sign's literal text in which its regular expression is matched, so that long lines stay cheap."""

PatchMaker = Callable[["Plan"], "list[Operation] | None"]
"""Returns the fix as a JSON Patch for this Plan; None if there is nothing to change."""


_compiled = cache(re.compile)
"""Of hundreds of expressions a log needs only a few. Compiling all would take longer than reading a megabyte."""


@dataclass(frozen=True, slots=True)
class Sign:
    """Text in one line. `text` must be in it literally (which makes the search fast) and, if given, `expression` must match."""

    text: str
    expression: str = ""
    """A regular expression."""

    @property
    def regex(self) -> re.Pattern[str] | None:
        """The expression, compiled at first use."""
        return _compiled(self.expression) if self.expression else None

    def matches(self, line: str) -> bool:
        """Return whether the line has the sign: the literal text, and the expression within REACH characters around it."""
        at = line.find(self.text)
        regex = self.regex if at >= 0 else None
        while at >= 0:
            if regex is None or regex.search(line, max(at - REACH, 0), at + len(self.text) + 2 * REACH):
                return True
            at = line.find(self.text, at + REACH)
        return False


def rx(text: str, expression: str) -> Sign:
    """Return a sign with a regular expression; `text` is a literal part of everything that it matches."""
    return Sign(text, expression)


@dataclass(frozen=True, slots=True)
class Remedy:
    """One fix: in words, and if possible as a change of the Plan."""

    text: str
    patch: PatchMaker | None = None


@dataclass(frozen=True, slots=True)
class Signature:
    """One cause, or another event that logs show."""

    id: str
    role: Role
    title: str
    """The event, as a sentence for the user who started the run."""
    cause: str = ""
    """Its usual reason."""
    signs: tuple[str | Sign, ...] = ()
    """A line with any of them shows it. A plain string means a line that contains it."""
    remedies: tuple[str | Remedy, ...] = ()
    confirm: str = ""
    """The fact that would prove it."""
    explains: tuple[str, ...] = ()
    """Signatures that are only consequences of this one if both are found: they are never reported beside it."""
    launcher: bool = False
    """True if it occurs before any rank has started: no rank failed."""
    sure: bool = True
    """True if the text has no other possible reason."""
    alone: bool = False
    """True if the line alone says that something ended: messages of the kernel or a scheduler need no traceback."""
    only_rank: int | None = None
    """The only rank that can encounter it, if no line says which rank did."""
    in_code: bool = False
    """True if the text is a line of source code in a traceback."""
    alike: tuple[str, ...] = ()
    """Signatures of other causes with the same text, the likeliest first. They are reported beside this one if it is not sure, each with
    its own `confirm`."""
    source: str = ""
    """The origin of the text as FILE:NAME (a file of DeepSpeed 0.19 or of another library, and the function or class in it), or the address
    of the documentation that explains it. Empty for texts of the kernel, the driver or NCCL."""
    answer: str = ""
    """The id under which it is reported, if it is another form of that signature's cause."""

    @property
    def cited(self) -> tuple[str, ...]:
        """The source as an address, or as a file and a name."""
        return (self.source,) if "://" in self.source else tuple(self.source.split(":"))

    def all_signs(self) -> tuple[Sign, ...]:
        """Return the signs, each with its literal text."""
        return tuple(Sign(sign) if isinstance(sign, str) else sign for sign in self.signs)

    def all_remedies(self) -> tuple[Remedy, ...]:
        """Return the fixes."""
        return tuple(Remedy(way) if isinstance(way, str) else way for way in self.remedies)
