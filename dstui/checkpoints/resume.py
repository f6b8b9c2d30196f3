"""Find checkpoints, and check whether a Plan can resume from one: what DeepSpeed would refuse when it loads it."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path

from dstui.adopt.script import ScriptFacts
from dstui.base.text import counted
from dstui.checkpoints.checkpoint import Checkpoint
from dstui.plan import Plan
from dstui.plan.finding import Finding, Fix

CHECKPOINT = "{checkpoint}"
LINES: Mapping[str, str] = {
    "deepspeed": "engine.load_checkpoint({folder!r})",
    "trainer": "trainer.train(resume_from_checkpoint={folder!r})",
    "accelerate": "accelerator.load_state({folder!r})",
}
"""The code with which a script of each integration continues from a checkpoint."""
LOAD_UNIVERSAL = "deepspeed.checkpoint.load_universal"


def resume_findings(checkpoint: Checkpoint, plan: Plan, world_size: int | None) -> Iterator[Finding]:
    """Yield why the Plan cannot load the checkpoint, most severe first; nothing if it can."""
    for problem in checkpoint.problems:
        yield Finding("CK001", "error", "", f"the checkpoint is not complete: {problem}", "DeepSpeed fails to load it", "run")
    universal = plan.get(LOAD_UNIVERSAL) is True
    if checkpoint.universal != universal:
        yield _universal(checkpoint.universal)
    zero = plan.deepspeed.get("zero_optimization")
    stage = zero.get("stage", 0) if isinstance(zero, Mapping) else 0
    if isinstance(stage, int) and checkpoint.stage is not None and stage != checkpoint.stage and not checkpoint.universal:
        message = f"it was written at ZeRO stage {checkpoint.stage}, the Plan has stage {stage}"
        why = "each stage has its own files; a universal checkpoint converts between stages 1 and 2"
        yield Finding(
            "CK003", "error", "deepspeed.zero_optimization.stage", message, why, "run", plan.line_of("deepspeed.zero_optimization.stage")
        )
    ranks = world_size // (checkpoint.model_parallel or 1) if world_size else None
    if ranks and checkpoint.world_size and checkpoint.stage and ranks != checkpoint.world_size and not (universal and checkpoint.universal):
        message = f"{counted(checkpoint.world_size, 'rank')} wrote it, the Plan has {ranks}"
        why = (
            f"DeepSpeed: The checkpoint being loaded used a DP world size of {checkpoint.world_size} but the current world size is {ranks}."
        )
        here = shlex.quote(str(checkpoint.folder))
        command = f"dstui checkpoint {here} --universal {here}/{shlex.quote(checkpoint.tag)}_universal"
        how = f"convert it first: {command}, then {LOAD_UNIVERSAL}: true"
        yield Finding("CK002", "error", "cluster", message, why, "run", plan.line_of("cluster"), fix=Fix(how))


def _universal(is_one: bool) -> Finding:
    message = (
        "it is a universal checkpoint, but the Plan does not set checkpoint.load_universal"
        if is_one
        else "the Plan loads a universal checkpoint, but this is not one"
    )
    text = f"{'set' if is_one else 'remove'} checkpoint.load_universal"
    operation = {"op": "add", "path": "/deepspeed/checkpoint", "value": {"load_universal": True}}
    fix = Fix(text, (operation,)) if is_one else Fix(f"{text}, or convert it: dstui checkpoint PATH --universal DIR")
    return Finding("CK004", "error", LOAD_UNIVERSAL, message, "DeepSpeed looks for other files then", "run", fix=fix)


def resume_arguments(plan: Plan, script: object, folder: str) -> tuple[str, ...]:
    """Return the arguments with which the script goes on from a folder: those of `run.restarts`, else what its parser takes; else none."""
    restarts = plan.run.restarts.args
    of_script = script.resume if isinstance(script, ScriptFacts) else ()
    template = restarts if any(CHECKPOINT in word for word in restarts) else of_script
    return tuple(word.replace(CHECKPOINT, folder) for word in template)


def with_arguments(args: Sequence[str], new: Sequence[str]) -> list[str]:
    """Return the arguments of a script with these, in place of the same options with other values."""
    made, options = list(args), [word for word in new if word.startswith("-")]
    for option in options:
        made = [word for word in made if not word.startswith(f"{option}=")]
        while option in made:
            at = made.index(option)
            follows = made[at + 1 : at + 2]
            del made[at : at + 2 if follows and not follows[0].startswith("-") else at + 1]
    return [*made, *new]


def resume_line(plan: Plan, folder: str) -> str:
    """Return the line that a script needs to go on from a folder."""
    return LINES[plan.job.integration].format(folder=folder)


DEEP, FOLDERS, MAX_FOUND = 3, 2000, 9
"""At most this many levels and folders are searched, and this many checkpoints returned."""


def checkpoints_near(places: Iterable[Path]) -> list[Path]:
    """Return the folders with a `latest` file, newest first. May block on a slow disk; never raises."""
    found: dict[Path, float] = {}
    for place in places:
        for folder in islice(_below(place, DEEP), FOLDERS):
            with suppress(OSError):
                for name in ("latest", "latest_universal"):
                    if (folder / name).is_file():
                        found.setdefault(folder.resolve(), (folder / name).stat().st_mtime)
    return sorted(found, key=lambda path: -found[path])[:MAX_FOUND]


def _below(folder: Path, levels: int) -> Iterator[Path]:
    """Yield a folder and those below it, without following links or entering hidden folders."""
    yield folder
    with suppress(OSError):
        for inner in sorted(folder.iterdir()) if levels else ():
            if not inner.name.startswith(".") and not inner.is_symlink() and inner.is_dir():
                yield from _below(inner, levels - 1)
