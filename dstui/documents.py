"""Any file that people have, opened as a Plan: a Plan itself, one that comes with dstui, or a bare ds_config.json."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dstui.adopt.signs import is_accelerate
from dstui.files import FileProblem, find_plan, is_file, overridden, read_plan, read_text
from dstui.plan import Plan, load


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


def _adopted(path: Path, script: Sequence[str]) -> Plan:
    from dstui.adopt.dsconfig import ConfigError  # most sessions open a Plan, and the first frame need not wait for these
    from dstui.adopt.plan import plan_of_dsconfig

    text = read_text(path)
    try:
        return load(plan_of_dsconfig(text, str(path), script), str(path), str(Path.cwd()))
    except ConfigError as error:
        where = ":".join(str(part) for part in (path, error.line, error.column) if part)
        raise FileProblem(f"{where}: {error.message}") from None
