"""List the facts of a checkpoint, and why it cannot be converted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from dstui.checkpoints.checkpoint import Checkpoint
from dstui.checkpoints.convert import format_gib


class CheckpointFact(NamedTuple):
    """One fact with its label. `severity`: ok, error, or empty if neutral."""

    name: str
    text: str
    severity: str = ""


def describe_checkpoint(found: Checkpoint) -> Iterator[CheckpointFact]:
    """Yield the facts of a checkpoint. They may contain text of its files: sanitise it before it is shown."""
    ranks = f"{found.world_size} ranks" if found.world_size else "an unknown number of ranks"
    parallel = f" x {found.model_parallel} model-parallel" if (found.model_parallel or 1) > 1 else ""
    frozen = f", {found.trainable:,} of them trained" if found.trainable and found.trainable != found.parameters else ""
    version = f", DeepSpeed {found.deepspeed}" if found.deepspeed else ""
    yield CheckpointFact("step", str(found.step) if found.step is not None else "unknown")
    yield CheckpointFact("written by", f"{ranks}{parallel}, ZeRO stage {found.stage if found.stage is not None else 'unknown'}{version}")
    precision = f", {found.precision}" if found.precision else ""
    yield CheckpointFact("parameters", f"{f'{found.parameters:,}' if found.parameters else 'unknown'}{frozen}{precision}")
    yield CheckpointFact("on disk", f"{format_gib(found.size)} in {found.files} files")
    if found.universal:
        yield CheckpointFact("universal", "any number of ranks can load it, with checkpoint.load_universal: true")
    if found.client_state:
        yield CheckpointFact("with it", f"{', '.join(found.client_state[:12])} (client state)")
    yield from (CheckpointFact("NOT WHOLE", problem, "error") for problem in found.problems)
    if not found.problems:
        yield CheckpointFact("whole", "every rank's file is there and can be read", "ok")
    if found.strange:
        yield CheckpointFact("BEWARE", f"loading it would run {', '.join(found.strange[:5])}, which no training run writes", "error")


def conversion_problem(found: Checkpoint, *, trusted: bool = False) -> str:
    """Return why the checkpoint cannot be converted; "" if it can. `trusted`: its pickles may run code."""
    if found.problems:
        return f"{found.path} is not complete, and nothing was written: {'; '.join(found.problems)}"
    if found.strange and not trusted:
        return f"loading it would run {', '.join(found.strange[:5])}, which no training run writes"
    if found.universal:
        return "a universal checkpoint already has whole weights"
    return "" if found.stage else "at stage 0 the weights are already whole, under `module`"
