"""Which interpreter looks for a Plan: that of its ranks (`job.python`), where the user agreed to that once, else dstui's own.

A Plan may have come from anywhere, and with it the program that it names. What was agreed holds for this file of a Plan and this
interpreter, as long as nobody replaces the one or the other's program; it is kept in the user's state folder.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from dstui.files import FileProblem, read_text, write_atomic
from dstui.limits import parse_json
from dstui.plan import Plan
from dstui.render.launch import interpreter

MOST = 1000
"""Answers that are remembered; the oldest are forgotten first."""
OPTION = "--trust-python"
"""What a command without dialogs takes for a yes."""
HELP = "let the interpreter that a Plan names (job.python) look too, now and later"


def probe_python(plan: Plan) -> str:
    """The interpreter that looks for this Plan: that of its ranks where it is dstui's own or was agreed to, else dstui's own."""
    python = interpreter(plan)
    return sys.executable if own(plan) or not answer(plan) else python if "/" in python else _place(python)


def own(plan: Plan) -> bool:
    """Whether the ranks of a Plan run under dstui's own interpreter (that of another virtual environment is another one)."""
    mine, theirs = Path(_place(sys.executable)), Path(_place(interpreter(plan)))
    return mine.parent == theirs.parent and mine.resolve() == theirs.resolve()


def to_be_asked(plan: Plan) -> bool:
    """Whether there is something to ask: another interpreter, which is there, and about which nothing was said yet."""
    return not own(plan) and answer(plan) is None and Path(_place(interpreter(plan))).is_file()


def answer(plan: Plan) -> bool | None:
    """What the user said about the interpreter of this Plan; None where that was not asked yet, or of another program in its place."""
    entry = _entry(plan)
    answers = [known.get("yes") for known in _remembered() if {**known, "yes": None} == {**entry, "yes": None}]
    return answers[-1] is True if answers else None


def remember(plan: Plan, yes: bool) -> None:
    """Keep the user's answer. A state folder that cannot be written costs the memory, nothing else."""
    entry = _entry(plan)
    others = [known for known in _remembered() if (known.get("plan"), known.get("python")) != (entry["plan"], entry["python"])]
    with suppress(FileProblem, OSError):
        state_file().parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_atomic(state_file(), json.dumps([*others, {**entry, "yes": yes}][-MOST:], indent=1) + "\n", replace=True)


def state_file() -> Path:
    """Where the answers lie."""
    from platformdirs import user_state_path

    return user_state_path("dstui") / "interpreters.json"


def _entry(plan: Plan) -> dict[str, Any]:
    """A Plan's file and its interpreter: the path, what stands there, and what a link there leads to."""
    python = _place(interpreter(plan))
    return {"plan": os.path.realpath(plan.source), "python": python, "file": [_identity(python, link) for link in (False, True)]}


def _place(python: str) -> str:
    """An interpreter's path with every link in it followed but the last, which is what makes a virtual environment; a bare name is
    looked for on the PATH."""
    found = Path(python if "/" in python else shutil.which(python) or python)
    return str(Path(os.path.realpath(found.parent), found.name))


def _identity(path: str, follow: bool) -> list[int]:
    """What changes when a file is replaced or written to; empty where there is none."""
    with suppress(OSError, ValueError):
        found = Path(path).stat(follow_symlinks=follow)
        return [found.st_ino, found.st_mtime_ns, found.st_size]
    return []


def _remembered() -> list[dict[str, Any]]:
    with suppress(FileProblem, OSError, ValueError):
        found = parse_json(read_text(state_file()))
        return [entry for entry in found if isinstance(entry, dict)] if isinstance(found, list) else []
    return []
