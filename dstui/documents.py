"""Any file that people have, opened as a Plan: a Plan itself, one that comes with dstui, or a bare ds_config.json.

And the script that a Plan names, looked into (never run): who reads its configuration, and how.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from dstui.adopt.signs import is_accelerate
from dstui.files import FileProblem, find_plan, is_file, overridden, read_plan, read_text
from dstui.plan import Plan, load

if TYPE_CHECKING:
    from dstui.adopt.script import NoScript, ScriptFacts


@dataclass(frozen=True, slots=True)
class Opened:
    """A Plan, and the file it is saved to; None where that is still to be named."""

    plan: Plan
    path: Path | None


def open_document(name: str, sets: Sequence[str] = (), script: Sequence[str] = ()) -> Opened:
    """Open a file by its path, or a shipped Plan by its name. `script`: what a bare configuration is to train.

    Raises FileProblem or PlanError.
    """
    path = find_plan(name)
    if path.suffix in (".json", ".hjson"):
        return Opened(overridden(_adopted(path, script), sets), None)
    if path == Path(name) and is_file(path) and is_accelerate(read_text(path)):
        raise FileProblem(f"{path} is an accelerate configuration: `dstui check` judges it, but this version cannot import it yet")
    if script:
        raise FileProblem(
            f"{path} is a Plan, which names its script itself (--set job.script=… changes it); a script after -- goes with a ds_config.json"
        )
    return Opened(read_plan(path, sets), path if path == Path(name) else None)


def plan_of_both(config: str, script: str) -> Opened:
    """A ds_config.json and the script that it is for, both in the current folder, as one Plan. Raises FileProblem or PlanError."""
    facts = _facts_of(Path(script))
    return Opened(_adopted(Path(config), (script, *(facts.suggested_args if facts is not None else ()))), None)


def _adopted(path: Path, script: Sequence[str]) -> Plan:
    from dstui.adopt.dsconfig import ConfigError  # most sessions open a Plan, and the first frame need not wait for these
    from dstui.adopt.new_plan import plan_of_dsconfig

    text, here = read_text(path), path.resolve()
    words = [word if not number else _handed_over(word, here) for number, word in enumerate(script)]
    try:
        made = plan_of_dsconfig(text, str(path), words, _facts_of(Path(script[0])) if script else None)
        return load(made, str(path), str(Path.cwd()))
    except ConfigError as error:
        where = ":".join(str(part) for part in (path, error.line, error.column) if part)
        raise FileProblem(f"{where}: {error.message}") from None


def _handed_over(word: str, config: Path) -> str:
    """An argument; where it is the path of the configuration itself, by whatever spelling, the place of the rendered one."""
    option, equals, value = word.partition("=") if word.startswith("-") else ("", "", word)
    with suppress(OSError, ValueError):
        if value and Path(value).resolve() == config:
            return f"{option}{equals}{{ds_config}}"
    return word


def look_into_script(plan: Plan) -> ScriptFacts | NoScript | None:
    """What the script of a Plan says of itself; None where there is nothing to look into. Reads, and runs nothing."""
    return look_into(plan.place(plan.job.workdir), plan.job.script, plan.job.module)


def look_into(folder: str, script: str | None, module: str | None) -> ScriptFacts | NoScript | None:
    """The same for a script, or a module where it stands under the folder."""
    from dstui.adopt.script import NoScript

    if script:
        return _facts_of(Path(folder, script)) or NoScript(Path(folder, script))
    stem = Path(folder, (module or "").replace(".", "/"))
    with suppress(OSError, ValueError):
        found = next((path for path in (stem.with_suffix(".py"), stem / "__main__.py") if module and path.is_file()), None)
        return _facts_of(found) if found is not None else None
    return None


def _facts_of(path: Path) -> ScriptFacts | None:
    """What a script says of itself; None where it cannot be read."""
    with suppress(OSError, ValueError, FileProblem):
        return _facts(path, path.stat().st_mtime_ns)
    return None


@lru_cache(maxsize=4)
def _facts(path: Path, _changed: int) -> ScriptFacts:
    from dstui.adopt.script import inspect_script

    return inspect_script(read_text(path))
