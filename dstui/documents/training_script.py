"""The training script that a Plan names: analysed without running it, and adapted to DeepSpeed where it is a plain loop."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import field
from functools import lru_cache
from itertools import islice, pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from dstui.base.dataclass import dataclass
from dstui.base.files import FileProblem, is_file, is_folder, read_text
from dstui.plan import Plan
from dstui.plan.holes import unescape_holes

if TYPE_CHECKING:
    from dstui.adopt.recipes import Script
    from dstui.adopt.script import NoScript, ScriptFacts

MAX_PARENTS = 6
"""Folders above a script in which the top of its project is looked for."""
MAX_NAMES = 20_000
"""Names in a folder that imports are compared with."""
PROJECT_FILES = (".git", "pyproject.toml", "setup.py", "setup.cfg")
"""Files of a project's top folder."""


def script_facts_of(plan: Plan) -> ScriptFacts | NoScript | None:
    """Return the facts of a Plan's script; None if it has none. Reads the script without running it."""
    return script_facts(plan.place(plan.job.workdir), plan.job.script, plan.job.module)


def script_facts(folder: str, script: str | None, module: str | None) -> ScriptFacts | NoScript | None:
    """Do the same for a script, or for a module whose file is in the folder."""
    from dstui.adopt.script import NoScript

    if script:
        path = Path(folder, unescape_holes(script))
        return facts_of_file(path) or NoScript(path)
    stem = Path(folder, (module or "").replace(".", "/"))
    with suppress(OSError, ValueError):
        found = next((path for path in (stem.with_suffix(".py"), stem / "__main__.py") if module and path.is_file()), None)
        return facts_of_file(found, Path(folder)) if found is not None else None
    return None


def facts_of_file(path: Path, root: Path | None = None) -> ScriptFacts | None:
    """Return the facts of a script; None if it cannot be read. They are cached until one of its files changes.

    `root`: the folder for its imports, if not its own.
    """
    with suppress(OSError, ValueError, FileProblem):
        asked = (path, root or path.parent, path.stat().st_mtime_ns)
        facts, read = _facts(*asked)
        if any(_changed_at(file) != moment for file, moment in read.items()):
            _facts.cache_clear()
            facts, _ = _facts(*asked)
        return facts
    return None


def _changed_at(path: Path) -> int:
    with suppress(OSError, ValueError):
        return path.stat().st_mtime_ns
    return 0


def _import_roots(folder: Path) -> Iterator[tuple[Path, frozenset[str]]]:
    """Yield where the imports of a script in this folder may be, the nearest first, with the names of files and folders there.

    These are the folders up to the top of its project, with `src`, as after `pip install -e .` or with PYTHONPATH=.; without a sign of
    the top, its own and those above the packages of which the script itself is a part.
    """
    folders = list(islice((folder.absolute(), *folder.absolute().parents), 1 + MAX_PARENTS))
    tops = (n for n, place in enumerate(folders) if any(is_file(place / name) or is_folder(place / name) for name in PROJECT_FILES))
    top = next(tops, None)
    yield folder, _names_in(folder)
    if top is None:
        yield from ((outer, frozenset({inner.name})) for inner, outer in pairwise(folders))
        return
    for place in (folder / "src", *(outer / inner for outer in folders[1 : top + 1] for inner in ("", "src"))):
        yield place, _names_in(place)


def _names_in(folder: Path) -> frozenset[str]:
    return _names_listed(folder, _changed_at(folder))


@lru_cache(maxsize=32)
def _names_listed(folder: Path, _changed: int) -> frozenset[str]:
    with suppress(OSError, ValueError), os.scandir(folder) as entries:
        return frozenset(entry.name for entry in islice(entries, MAX_NAMES))
    return frozenset()


@lru_cache(maxsize=64)
def _facts(path: Path, root: Path, _changed: int) -> tuple[ScriptFacts, dict[Path, int]]:
    """Return the facts, and the imported modules that were looked up with their modification time (0: no file)."""
    from dstui.adopt.script import inspect_script

    read = dict[Path, int]()
    roots = list(_import_roots(root))
    read |= {folder: _changed_at(folder) for folder, _ in roots}

    def text_of(name: str) -> str | None:
        for file in (folder / name for folder, names in roots if name.partition("/")[0] in names):
            read[file] = _changed_at(file)
            with suppress(FileProblem):
                if read[file] and is_file(file):
                    return read_text(file)
        return None

    package = path.parent.relative_to(root).as_posix()
    return inspect_script(read_text(path), text_of, package.strip(".")), read


def script_named(name: str, text: str) -> Script:
    """Return an analysed training script in the form that recipes take."""
    from dstui.adopt.recipes import Script
    from dstui.adopt.script import ScriptFacts

    facts = facts_of_file(Path(name)) or ScriptFacts(None, (), "it cannot be read")
    return Script(name, facts, "optim" in text, facts.model, needs=_needs_of_loop(text) if facts.without else {})


def _needs_of_loop(text: str) -> Mapping[str, bool | float]:
    """Return the values of the configuration that a plain loop decides."""
    from dstui.adopt.adapted_script import adapted
    from dstui.adopt.script_tree import NoPlace

    try:
        return adapted(text).needs
    except NoPlace:
        return {}


@dataclass(frozen=True, slots=True)
class ChangedScript:
    """The plain training loop of a Plan with DeepSpeed's lines added: a new file, the user's own stays unchanged."""

    name: str
    """The name of the new file."""
    text: str
    """Its content; empty if there is no clear place for the lines in the script."""
    diff: str
    notes: tuple[str, ...]
    """The steps that remain to be done by hand, each with its line."""
    needs: Mapping[str, bool | float] = field(default_factory=dict)
    """Keys that the configuration needs for the adapted script."""


def code_for_script(plan: Plan) -> str:
    """Return the lines that a Plan's script needs in general. Reads the script without running it."""
    from dstui.render.code import render_code

    return render_code(plan, lightning=getattr(script_facts_of(plan), "uses_lightning", False))


def changed_script(plan: Plan) -> ChangedScript | None:
    """Return the script of a Plan, adapted to DeepSpeed; None if it is not a plain loop. Reads the script without running it."""
    facts = script_facts_of(plan)
    without = getattr(facts, "without", None)
    if without is None or without.what == "lightning" or not plan.job.script:
        return None
    from difflib import unified_diff

    from dstui.adopt.adapted_script import adapted
    from dstui.adopt.script_tree import NoPlace

    path = Path(plan.place(plan.job.workdir), plan.job.script)
    name = f"{path.stem}_deepspeed.py"
    try:
        before = read_text(path)
        made = adapted(before)
    except NoPlace as problem:
        where, message = f"{path.name}:{problem.line}" if problem.line else path.name, problem.message
        if " of " in without.why.partition(":")[0]:  # a line of a module that it imports
            where, message = path.name, f"its loop is in another file ({without.why})"
        return ChangedScript(name, "", "", (f"{where}: {message}; these are the lines in general, to be placed by hand",))
    lines = unified_diff(before.splitlines(keepends=True), made.text.splitlines(keepends=True), path.name, name)
    diff = "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)
    return ChangedScript(name, made.text, diff, tuple(f"{path.name}:{line}: {note}" for line, note in made.notes), made.needs)
