"""The Plan that a command is given: any file that people have, opened as one."""

from __future__ import annotations

from collections.abc import Sequence

from dstui.base.output import say
from dstui.documents.open import open_document
from dstui.plan import Plan


def plan_of(name: str, sets: Sequence[str] = ()) -> Plan:
    """Open a file or a shipped Plan, and say what was changed where it is made of another kind of file. Raises FileProblem or PlanError."""
    opened = open_document(name, sets)
    for note in opened.notes:
        say(note)
    return opened.plan
