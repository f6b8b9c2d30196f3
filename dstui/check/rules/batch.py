"""Rules about the batch triple: train_batch_size = train_micro_batch_size_per_gpu × gradient_accumulation_steps × ranks."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from dstui.adopt.script_options import options_of
from dstui.adopt.sizes_in_options import parallel_sizes
from dstui.check.auto_values import AUTO
from dstui.check.context import MISSING, Context
from dstui.check.rule import Problems, rule
from dstui.check.rules.legacy import elastic
from dstui.plan import Plan
from dstui.plan.accelerate_keys import sp_size
from dstui.plan.finding import Fix
from dstui.plan.handed_over import named_files

TRAIN, MICRO, STEPS = "train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"
KEYS = (TRAIN, MICRO, STEPS)
PARTS = "sequence_parallel_size"
CONFIG = "runtime/config.py"
PRODUCT = "Check batch related parameters. train_batch_size is not equal to micro_batch_per_gpu * gradient_acc_step * world_size"


class Triple(NamedTuple):
    """The three batch keys."""

    train: Any
    micro: Any
    steps: Any


class BatchVerdict(NamedTuple):
    """DeepSpeed's verdict on a triple: the first of its checks that fails, and the completed numbers."""

    fails: str
    """"" for none, else missing, type, train, micro, steps (not positive) or product."""
    triple: Triple


def written_batch(c: Context) -> Triple:
    """Return the three values as written, None for a missing or null key. A reader that fills "auto" sets its own micro-batch."""
    values = (c.written(key) for key in KEYS)
    train, micro, steps = (None if value is MISSING else value for value in values)
    if c.integration != "deepspeed" and train is None and micro is None:
        micro = 1
    return Triple(train, micro, steps)


def ranks(c: Context) -> Any:
    """Return the number of ranks that see different samples (a fraction if it is not an integer); None for an unknown world size."""
    parts = c.written(PARTS)
    if parts is MISSING and (size := sp_size(c.plan)) > 1:  # accelerate passes DeepSpeed an mpu with this size
        parts = size
    if c.world_size is not None and c.plan is not None and (split := _split_by_megatron(c.plan)) > 1:
        return c.world_size / split
    if c.world_size is None or parts is MISSING or c.before("0.18"):
        return c.world_size
    if not isinstance(parts, (int, float)) or parts == 0:  # 0.19 stops; 0.18 continues as if there were one rank
        return 1 if c.before("0.19") else c.world_size
    return c.world_size / parts


def _split_by_megatron(plan: Plan) -> int:
    """Return how many ranks see the same samples because the script splits the model (mpu.get_data_parallel_world_size)."""
    words = plan.job.args
    if plan.job.integration != "deepspeed" or not any(word.replace("_", "-").endswith("parallel-size") for word in words):
        return 1
    tensors, layers = parallel_sizes(options_of(words))
    return tensors * layers


def complete_batch(written: Triple, ranks: Any) -> Triple:
    """Compute the missing values with DeepSpeed's own arithmetic. Raises what that raises: TypeError, ZeroDivisionError."""
    train, micro, steps = written
    if train is not None and micro is not None:
        return Triple(train, micro, train // micro // ranks if steps is None else steps)
    if train is not None:
        return Triple(train, train // ranks, 1) if steps is None else Triple(train, train // ranks // steps, steps)
    steps = 1 if steps is None else steps
    return Triple(micro * steps * ranks, micro, steps)


def known_batch(plan: Plan, config: Mapping[str, Any], world_size: int | None) -> tuple[Triple, int | None]:
    """Return the batch keys of a Plan's configuration, completed as far as they are known, and the ranks that see different samples."""
    parts = config.get(PARTS, sp_size(plan)) * _split_by_megatron(plan) if isinstance(config.get(PARTS, 1), int) else 0
    ranks = world_size // parts if world_size and parts > 0 else None
    written = Triple(*(value if isinstance(value := config.get(key), int) and not isinstance(value, bool) else None for key in KEYS))
    if any(config.get(key) == AUTO for key in KEYS) or not ranks or (written.train is None and written.micro is None):
        return written, ranks
    try:
        return complete_batch(written, ranks), ranks
    except ZeroDivisionError:
        return written, ranks


def evaluate_batch(written: Triple, ranks: Any) -> BatchVerdict:
    """Return which of DeepSpeed's checks fails first."""
    if written.train is None and written.micro is None:
        return BatchVerdict("missing", written)
    triple = written
    try:
        triple = complete_batch(written, ranks)
        for name in triple._fields:
            if not getattr(triple, name) > 0:
                return BatchVerdict(name, triple)
        train, micro, steps = triple
        return BatchVerdict("" if train == micro * steps * ranks else "product", triple)
    except (TypeError, ZeroDivisionError, OverflowError, ValueError):
        return BatchVerdict("type", triple)


def batch_verdict(c: Context) -> BatchVerdict:
    """Return the verdict for the planned ranks; for one rank if they are unknown and the product is left open."""
    if elastic(c):
        return BatchVerdict("", written_batch(c))
    known = ranks(c)
    found = evaluate_batch(written_batch(c), 1 if known is None else known)
    if known is None and (
        found.fails == "product" or (found.fails in ("micro", "steps") and getattr(written_batch(c), found.fails) is None)
    ):
        return BatchVerdict("", found.triple)
    return found


def is_positive_integer(value: Any) -> bool:
    """Return whether a value is a positive integer."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value) and value > 0 and value % 1 == 0


def accepts_batch(written: Triple, known: Any) -> bool:
    """Return whether DeepSpeed accepts the three values, for some number of ranks if that is unknown."""
    found = evaluate_batch(written, 1 if known is None else known).fails
    if found == "product" and known is None and written.train is not None:
        return not written.train % ((written.micro or 1) * (written.steps or 1))
    return not found


def suggest_batch(c: Context, *attempts: tuple[str, dict[str, Any]]) -> Fix | None:
    """Return a fix with the first change (key -> new value, None removes it) that makes the values fit; at last, set all three."""
    written, known = written_batch(c), ranks(c)
    for text, changes in (*attempts, ("write a micro-batch of 1 alone", {TRAIN: None, MICRO: 1, STEPS: None})):
        new = Triple(*(changes.get(key, value) for key, value in zip(KEYS, written, strict=True)))
        if accepts_batch(new, known):
            steps = [c.put(k, v, "") if v is not None else c.drop(k, "") for k, v in changes.items() if v is not None or k in c.raw]
            return c.steps(text, *steps)
    return None


WITHOUT_TRAIN: tuple[str, dict[str, Any]] = ("remove train_batch_size: it follows from the others", {TRAIN: None})


def other_factors(c: Context) -> list[tuple[str, dict[str, Any]]]:
    """Return the accumulation, else the micro-batch, that gives the requested batch size; empty if neither is an integer."""
    (train, micro, steps), known = written_batch(c), ranks(c)
    if not is_positive_integer(train) or not is_positive_integer(known):
        return []
    attempts = ((STEPS, micro), (MICRO, 1 if steps is None else steps))
    found = [(key, int(train // (other * known))) for key, other in attempts if is_positive_integer(other) and not train % (other * known)]
    return [(f"make {key} {value}: train_batch_size {train:g} comes out", {key: value}) for key, value in found]


def nearest_train(c: Context) -> tuple[str, dict[str, Any]]:
    """Return the nearest batch size that the ranks can share."""
    written, known = written_batch(c), ranks(c)
    unit = (
        (known or 1)
        * (written.steps if is_positive_integer(written.steps) else 1)
        * (written.micro if is_positive_integer(written.micro) else 1)
    )
    train = written.train if isinstance(written.train, (int, float)) and math.isfinite(written.train) else 1
    nearest = int(max(1, round(train / unit)) * unit) if is_positive_integer(unit) else 1
    return f"make train_batch_size {nearest}", {TRAIN: nearest}


@rule(
    "DS001",
    "error",
    when="parse",
    says="Either train_batch_size or train_micro_batch_size_per_gpu needs to be provided",
    source=f"{CONFIG}:649",
)
def no_batch_size(c: Context) -> Problems:
    """Neither the batch size nor the micro-batch size is given."""
    if c.unread:
        other = c.facts is not None and (c.facts.own_configuration or c.facts.without)
        elsewhere = c.plan is not None and (c.plan.job.command or any(named_files(c.plan)))
        if not other and not elsewhere:
            message = "the section deepspeed is empty, and nothing passes it to the script, which trains without it"
            fix = suggest_batch(c, ("begin with train_micro_batch_size_per_gpu (and pass {ds_config} to the script)", {MICRO: 1}))
            yield c.problem("", message, why="a script with its own configuration needs no section here", fix=fix, severity="warning")
        return
    if batch_verdict(c).fails == "missing":
        fix = suggest_batch(c, ("set train_micro_batch_size_per_gpu (1 fits anywhere, more is faster)", {MICRO: 1}))
        yield c.problem("", "no batch size: give train_micro_batch_size_per_gpu or train_batch_size", fix=fix)


@rule("DS002", "error", when="parse", says=PRODUCT, source=f"{CONFIG}:602")
def product(c: Context) -> Problems:
    """The batch size is not micro-batch × accumulation steps × ranks."""
    found, known = batch_verdict(c), ranks(c)
    if found.fails != "product":
        return
    train, micro, steps = found.triple
    right = micro * steps * known
    message = f"train_batch_size {train:g} is not {micro:g} (micro-batch) × {steps:g} (accumulation) × {known:g} (ranks) = {right:g}"
    path = TRAIN if written_batch(c).train is not None else MICRO
    says = f"{PRODUCT} {train} != {micro} * {steps} * {known}"
    yield c.problem(path, message, says=says, fix=suggest_batch(c, *other_factors(c), WITHOUT_TRAIN, nearest_train(c)))


@rule("DS003", "error", when="parse", says=PRODUCT, source=f"{CONFIG}:602")
def fits_no_number_of_ranks(c: Context) -> Problems:
    """The batch size is not a multiple of micro-batch × accumulation steps, whatever the number of ranks."""
    written = written_batch(c)
    if ranks(c) is None and is_positive_integer(written.train) and all(value is None or is_positive_integer(value) for value in written):
        unit = (written.micro or 1) * (written.steps or 1)
        if written.train % unit:
            message = f"train_batch_size {written.train:g} is not a multiple of {unit:g}: no number of ranks fits"
            yield c.problem(TRAIN, message, fix=suggest_batch(c, *other_factors(c), WITHOUT_TRAIN, nearest_train(c)))


@rule("DS004", "error", when="parse", says="Micro batch size per gpu: 0 has to be greater than 0", source=f"{CONFIG}:598")
def less_than_a_sample_per_rank(c: Context) -> Problems:
    """The batch size leaves less than one sample for each rank."""
    found = batch_verdict(c)
    if found.fails == "micro" and written_batch(c).micro is None:
        says = f"Micro batch size per gpu: {found.triple.micro} has to be greater than 0"
        message = f"train_batch_size {found.triple.train:g} leaves less than one sample for each of {ranks(c):g} ranks"
        yield c.problem(TRAIN, message, says=says, fix=suggest_batch(c, *other_factors(c), WITHOUT_TRAIN, nearest_train(c)))


@rule("DS005", "error", when="parse", says="Gradient accumulation steps: 0 has to be greater than 0", source=f"{CONFIG}:600")
def less_than_a_micro_batch_per_rank(c: Context) -> Problems:
    """The batch size leaves less than one micro-batch for each rank."""
    found = batch_verdict(c)
    if found.fails == "steps" and written_batch(c).steps is None:
        train, micro, steps = found.triple
        says = f"Gradient accumulation steps: {steps} has to be greater than 0"
        message = f"train_batch_size {train:g} is less than {micro:g} (micro-batch) × {ranks(c):g} (ranks)"
        yield c.problem(TRAIN, message, says=says, fix=suggest_batch(c, *other_factors(c), WITHOUT_TRAIN, nearest_train(c)))


@rule("DS006", "error", when="parse", says="has to be greater than 0", source=f"{CONFIG}:596")
def not_positive(c: Context) -> Problems:
    """A batch key is zero or negative."""
    written, fails = written_batch(c), batch_verdict(c).fails
    bad = [(path, v) for path, v in zip(KEYS, written, strict=True) if isinstance(v, (int, float)) and not v > 0]
    for path, value in bad if fails else []:
        fix = suggest_batch(c, (f"make {path} 1", {path: 1}), (f"remove {path}", {path: None}), nearest_train(c))
        yield c.problem(path, f"{path} is {value:g}: it has to be greater than 0", fix=fix)


@rule("DS007", "error", when="parse", says="not supported between instances of 'str' and 'int'", source=f"{CONFIG}:596")
def not_a_number(c: Context) -> Problems:
    """A batch key is not a number, such as "8", or "auto" that nothing fills in."""
    if batch_verdict(c).fails != "type":
        return
    for path, value in zip(KEYS, written_batch(c), strict=True):
        if value is None or (isinstance(value, (int, float)) and math.isfinite(value) and value != 0):
            continue
        digits = isinstance(value, str) and value.strip().isdecimal() and int(value) > 0
        new = int(value) if digits else 1
        remove, write = (f"remove {path}", {path: None}), (f"write {new}", {path: new})
        fix = suggest_batch(c, *((remove, write) if value == AUTO and path != MICRO else (write, remove)))
        what = 'plain DeepSpeed does not fill "auto"' if value == AUTO else f"{path} is {value!r}: it must be a positive whole number"
        yield c.problem(path, what, fix=fix)


@rule("DS008", "warning", source=f"{CONFIG}:644")
def fraction(c: Context) -> Problems:
    """A batch key is a fraction: DeepSpeed calculates with it."""
    for path, value in zip(KEYS, written_batch(c), strict=True):
        if isinstance(value, float) and math.isfinite(value) and value > 0 and value % 1:
            new = max(1, int(value))
            fix = suggest_batch(c, (f"write {new}", {path: new}), (f"write {new}, remove train_batch_size", {path: new, TRAIN: None}))
            yield c.problem(
                path, f"{path} is {value:g}: it must be a whole number of samples", why="DeepSpeed computes with the fraction", fix=fix
            )


@rule("DS010", "error", when="parse", says="division by zero", source=f"{CONFIG}:469", since="0.19.8")
def sequence_parallel_size(c: Context) -> Problems:
    """The ranks cannot be divided by sequence_parallel_size."""
    parts = c.written(PARTS)
    if parts is MISSING:
        return
    if not isinstance(parts, (int, float)) or parts == 0:
        message = f"{PARTS} is {parts!r}: a number of ranks, 1 or more"
        yield c.problem(PARTS, message, fix=c.drop(PARTS, f"remove {PARTS}"))
    elif c.world_size is not None and (parts < 0 or c.world_size % parts):
        why = "DeepSpeed divides the ranks by it and counts batches with the fraction"
        message = f"{c.world_size} ranks cannot be divided by {parts}"
        yield c.problem(PARTS, message, why=why, severity="warning", fix=c.drop(PARTS, f"remove {PARTS}"))
