"""Rules about writing and reading checkpoints."""

from __future__ import annotations

from typing import Any

from dstui.check.context import MISSING, Context
from dstui.check.rule import Problems, rule
from dstui.plan.finding import Fix

CONFIG = "runtime/model_checkpointing/config.py"
WRITER = "checkpoint.writer"


@rule("DS230", "error", when="parse", says="Checkpoint config contains invalid tag_validation", source="runtime/config.py:393")
def tag_validation(c: Context) -> Problems:
    """tag_validation is not Warn, Ignore or Fail."""
    path = "checkpoint.tag_validation"
    value = c.written(path)
    if value is not MISSING and (not isinstance(value, str) or value.upper() not in ("WARN", "IGNORE", "FAIL")):
        says = "" if isinstance(value, str) else "has no attribute 'upper'"
        yield c.problem(path, f"tag_validation is {value!r}: Warn, Ignore or Fail", says=says, fix=c.put(path, "Warn", "write Warn"))


@rule("DS232", "error", when="parse", says="checkpoint::parallel_write::pipeline_stage", source="runtime/config.py:405")
def parallel_write(c: Context) -> Problems:
    """pipeline_stage is not a boolean."""
    path = "checkpoint.parallel_write.pipeline_stage"
    value = c.written(path)
    if value is not MISSING and value not in (True, False):
        yield c.problem(path, "pipeline_stage must be true or false", fix=c.put(path, False, "write false"))


@rule("DS233", "error", when="parse", says="writer contains invalid value", source=f"{CONFIG}:27", since="0.18.2")
def writer_words(c: Context) -> Problems:
    """The writer's type or split is unknown to DeepSpeed."""
    for name, known in (("type", ("FAST", "MOCK", "PYTHON")), ("data_parallel", ("REPLICA", "SOCKET", "MACHINE"))):
        path = f"{WRITER}.{name}"
        value = c.written(path)
        if value in (MISSING, None) or (isinstance(value, str) and value.upper() in known):
            continue
        words = ", ".join(word.lower() for word in known)
        new = known[0].lower()
        says = "" if isinstance(value, str) else "has no attribute 'upper'"
        yield c.problem(path, f"writer.{name} is {value!r}: {words}", says=says, fix=c.put(path, new, f"write {new}"))


def writes(c: Context) -> bool:
    """Return whether the writer is configured."""
    return isinstance(c.written(WRITER), dict)


@rule(
    "DS234",
    "error",
    when="initialize",
    says="has no attribute 'dp_rank'",
    source="runtime/model_checkpointing/data_parallel_writer_factory.py:95",
    since="0.19.8",
)
def writer_needs_a_split(c: Context) -> Problems:
    """A writer without data_parallel: its own default does not work below stage 3."""
    path = f"{WRITER}.data_parallel"
    if writes(c) and c.stage < 3 and c.written(path) in (MISSING, None):
        yield c.problem(
            path, "writer needs data_parallel: replica, socket or machine", fix=c.put(path, "replica", "add data_parallel replica")
        )


@rule("DS235", "error", when="initialize", says="KeyError: 'CROSS_SIZE'", source="runtime/model_checkpointing/utils.py:76", since="0.18.2")
def writer_and_launcher(c: Context) -> Problems:
    """A writer under a launcher that does not set CROSS_SIZE."""
    if writes(c) and c.plan is not None and c.plan.cluster.launcher in ("torchrun", "accelerate"):
        yield c.problem(WRITER, f"checkpoint.writer does not work under {c.plan.cluster.launcher}", fix=_no_writer(c))


@rule(
    "DS236",
    "error",
    when="initialize",
    says="Cannot access accelerator device when none is available.",
    source="runtime/model_checkpointing/writer_factory.py:80",
    since="0.18.2",
)
def writer_on_cpu(c: Context) -> Problems:
    """The fast or decoupled writer on ranks without a GPU."""
    if not writes(c) or not c.cpu_only:
        return
    kind: Any = c.section(WRITER).get("type") or "fast"
    if isinstance(kind, str) and kind.upper() == "FAST":
        path = f"{WRITER}.type"
        yield c.problem(path, "the fast writer needs a GPU", fix=c.put(path, "python", "write python"))
    if c.section(WRITER).get("decoupled") is True:
        path = f"{WRITER}.decoupled"
        says = "Cowardly refusing to serialize non-leaf tensor"
        yield c.problem(path, "the decoupled writer needs a GPU", says=says, when="run", fix=c.put(path, False, "turn decoupled off"))


def _no_writer(c: Context) -> Fix:
    return c.drop(WRITER, "remove checkpoint.writer")


@rule(
    "DS238", "info", says="Please install DataStates", source="runtime/checkpoint_engine/datastates_checkpoint_engine.py:24", since="0.18.2"
)
def datastates(c: Context) -> Problems:
    """datastates_ckpt, whatever its value, requires the package DataStates."""
    path = "datastates_ckpt"
    if c.has(path) and c.written(path) is not False:
        message = "datastates_ckpt needs the package datastates-llm (any value but false turns it on)"
        yield c.problem(path, message, severity="warning", fix=c.drop(path, "remove datastates_ckpt"))
