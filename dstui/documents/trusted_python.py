"""Decide which interpreter may run to inspect a Plan: that of its ranks (`job.python`) if the user agreed to it, else dstui's own.

A Plan, and the program that it names, may come from anywhere. Consent is for an interpreter, whichever Plan names it: for this path and
owner, as long as neither the program nor what it runs at its start is replaced. It is kept in the user's state folder. If others may write
the interpreter's environment, it holds for this process only, and the next one asks again.
"""

from __future__ import annotations

import json
import os
import pwd
import shutil
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from dstui.base.files import FileProblem, read_text, write_atomic
from dstui.base.limits import parse_json
from dstui.base.regular_files import others_may_write
from dstui.plan import Plan
from dstui.render.launch import interpreter

MAX_ANSWERS = 1000
"""Answers that are remembered; the oldest are forgotten first."""
OPTION = "--trust-python"
"""The option by which a command without dialogs gives consent."""
HELP = "let checks run the interpreter that a Plan names (job.python), now and later"
AT_START = ("sitecustomize*", "usercustomize*", "*.pth")
"""Files in site-packages that an interpreter runs at its start."""

_of_this_process: list[dict[str, Any]] = []
"""Answers given to this process. Only these count if others may write the environment or nothing can be stored."""


def probe_python(plan: Plan) -> str:
    """Return the interpreter that inspects this Plan: that of its ranks if it is dstui's own or has consent, else dstui's own."""
    python = interpreter(plan)
    return sys.executable if is_own_interpreter(plan) or not answer(plan) else python if "/" in python else _place(python)


def is_own_interpreter(plan: Plan) -> bool:
    """Return whether the ranks of a Plan run under dstui's own interpreter. Another virtual environment is another interpreter."""
    mine, theirs = Path(_place(sys.executable)), Path(_place(interpreter(plan)))
    return mine.parent == theirs.parent and mine.resolve() == theirs.resolve()


def needs_consent(plan: Plan) -> bool:
    """Return whether to ask for consent: the ranks have another interpreter, it exists, and the user has not answered yet."""
    return not is_own_interpreter(plan) and answer(plan) is None and Path(_place(interpreter(plan))).is_file()


def answer(plan: Plan) -> bool | None:
    """Return the user's answer about the interpreter of this Plan; None if there is none yet or the interpreter does not exist any more."""
    python = _place(interpreter(plan))
    known = [*([] if writable_by_others(python) else _remembered()), *_of_this_process]
    entry = {**_entry(python), "yes": None}
    answers = [given.get("yes") for given in known if {**given, "yes": None} == entry]
    return answers[-1] is True if answers else None


def remember(plan: Plan, yes: bool) -> None:
    """Store the user's answer. If the state folder is not writable, it is only kept in memory."""
    python = _place(interpreter(plan))
    entry = {**_entry(python), "yes": yes}
    _of_this_process.append(entry)
    if writable_by_others(python):
        return
    others = [known for known in _remembered() if known.get("python") != entry["python"]]
    with suppress(FileProblem, OSError):
        state_file().parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_atomic(state_file(), json.dumps([*others, entry][-MAX_ANSWERS:], indent=1) + "\n", replace=True)


def describe_interpreter(plan: Plan) -> str:
    """Describe the interpreter of a Plan for the question: its owner, and who else may write its environment."""
    python = _place(interpreter(plan))
    found, owner = [], _owner(python)
    if owner not in (None, 0, os.geteuid()):
        found.append(f"It belongs to {_user(owner)}.")
    if place := writable_by_others(python):
        found.append(f"Others may write {place}, so this is asked in each session.")
    return " ".join(found)


def state_file() -> Path:
    """Return the path of the file with the answers."""
    from platformdirs import user_state_path

    return user_state_path("dstui") / "interpreters.json"


def writable_by_others(python: str) -> str:
    """Return the first path by which others than its owner could change what an interpreter runs; "" if there is none."""
    programs = {python, os.path.realpath(python)}
    for path in (*programs, *_environment(python)):
        for place in (Path(path), *Path(path).parents):
            with suppress(OSError):
                if others_may_write(place.stat()):
                    return str(place)
    return ""


def _environment(python: str) -> Iterator[str]:
    """Yield the package folders of an interpreter, its pyvenv.cfg, and the files that it runs at its start."""
    prefix = Path(python).parent.parent
    if (prefix / "pyvenv.cfg").is_file():
        yield str(prefix / "pyvenv.cfg")
    for folder in sorted({*prefix.glob("lib*/python3*/site-packages"), *prefix.glob("lib/python3*/dist-packages")}):
        yield str(folder)
        for pattern in AT_START:
            yield from map(str, sorted(folder.glob(pattern)))


def _entry(python: str) -> dict[str, Any]:
    """Describe an interpreter: path, owner, identity of the file and of its link's target, and of the files that it runs at its start."""
    at_start = [[path, *_identity(path, True)] for path in _environment(python) if not Path(path).is_dir()]
    file = [_identity(python, link) for link in (False, True)]
    return {"python": python, "owner": _owner(python), "file": file, "at_start": at_start}


def _owner(python: str) -> int | None:
    with suppress(OSError, ValueError):
        return Path(python).lstat().st_uid
    return None


def _place(python: str) -> str:
    """Return an interpreter's path with all links resolved but the last, which makes a virtual environment.

    A bare name is searched on the PATH.
    """
    found = Path(python if "/" in python else shutil.which(python) or python)
    return str(Path(os.path.realpath(found.parent), found.name))


def _identity(path: str, follow: bool) -> list[int]:
    """Return values that change when a file is replaced or written; empty if there is no file."""
    with suppress(OSError, ValueError):
        found = Path(path).stat(follow_symlinks=follow)
        return [found.st_ino, found.st_mtime_ns, found.st_size]
    return []


def _user(uid: int | None) -> str:
    with suppress(KeyError):
        return pwd.getpwuid(uid or 0).pw_name
    return f"uid {uid}"


def _remembered() -> list[dict[str, Any]]:
    with suppress(FileProblem, OSError, ValueError):
        found = parse_json(read_text(state_file()))
        return [entry for entry in found if isinstance(entry, dict)] if isinstance(found, list) else []
    return []
