"""Rules about "auto" that nothing fills in: plain DeepSpeed fills none, the Trainer and accelerate each a list of their own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from dstui.check.auto_values import AUTO, FILLED, HIDDEN_SIZE_KEYS, hidden_size_of, value_of
from dstui.check.context import Context
from dstui.check.rule import Problems, rule
from dstui.check.rules.batch import KEYS, MICRO
from dstui.plan.finding import Fix

INSTEAD: Mapping[str, Any] = {
    "optimizer.params.lr": 5e-5,
    "optimizer.params.betas": [0.9, 0.999],
    "optimizer.params.eps": 1e-8,
    "optimizer.params.weight_decay": 0.0,
    "gradient_clipping": 1.0,
    "scheduler.params.warmup_min_lr": 0,
    "scheduler.params.warmup_max_lr": 5e-5,
    "scheduler.params.warmup_num_steps": 100,
    "scheduler.params.total_num_steps": 1000,
}
"""Replacements: the Trainer's own defaults."""


def autos(config: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """Yield the paths whose value is "auto"."""
    for name, value in config.items():
        if isinstance(value, Mapping):
            yield from autos(value, f"{prefix}{name}.")
        elif isinstance(value, str) and value == AUTO:
            yield prefix + name


def _instead(c: Context, path: str) -> Fix:
    key = c.key(path)
    if path in INSTEAD:
        return c.put(path, INSTEAD[path], f"write {INSTEAD[path]}")
    if (
        key is not None
        and key.type != "object"
        and key.default is not None
        and not isinstance(key.default, (dict, list))
        and key.default != AUTO
    ):
        return c.put(path, key.default, f"write {str(key.default).lower() if isinstance(key.default, bool) else key.default}, the default")
    return c.drop(path, f"remove {path}")


@rule("DS014", "warning", source="runtime/config_utils.py:54-57", readers=("deepspeed",))
def dropped(c: Context) -> Problems:
    """In a section with a model, DeepSpeed silently drops "auto" and uses the default."""
    for path in autos(c.raw):
        key = c.key(path)
        if not c.drops_auto(path) or path in c.release.removed or (key is not None and key.default == AUTO):
            continue
        default = (
            "the default"
            if key is None
            else {True: "true", False: "false", None: "nothing"}.get(key.default, key.default)
            if _word(key.default)
            else "the default"
        )
        why = 'DeepSpeed drops "auto" here silently; only the Trainer and accelerate fill it'
        yield c.problem(path, f'{path} is "auto", which plain DeepSpeed takes as {default}', why=why, fix=_instead(c, path))


def _word(value: Any) -> bool:
    return value is None or isinstance(value, (bool, int, float, str))


@rule("DS015", "error", when="run", says="incompatible function arguments", source="ops/adam/fused_adam.py:128,191", readers=("deepspeed",))
def optimizer_auto(c: Context) -> Problems:
    """An argument of the optimizer is "auto" and nothing fills it in: the first step fails."""
    for path in autos(c.raw):
        if path.startswith("optimizer.params.") and c.optimizer:
            own = (
                c.optimizer in ("adam", "adamw")
                and not c.section("optimizer.params").get("torch_adam")
                and c.offload("optimizer") == "none"
            )
            says = "" if own and path != "optimizer.params.betas" else "too many values to unpack (expected 2)" if own else "not supported"
            yield c.problem(
                path, 'plain DeepSpeed does not fill "auto"', says=says, when=None if own else "initialize", fix=_instead(c, path)
            )


@rule(
    "DS016",
    "error",
    when="initialize",
    says="warmup_num_steps must be a positive integer",
    source="runtime/lr_schedules.py:734",
    readers=("deepspeed",),
)
def scheduler_auto(c: Context) -> Problems:
    """An argument of the scheduler is "auto" and nothing fills it in."""
    for path in autos(c.raw):
        if path.startswith("scheduler.params.") and c.text("scheduler.type") and c.optimizer:
            says = "" if path.endswith("warmup_num_steps") else "unsupported operand type(s)"
            yield c.problem(path, 'plain DeepSpeed does not fill "auto"', says=says, fix=_instead(c, path))


@rule("DS017", "error", when="run", says="'>' not supported between instances of 'str' and 'float'", source="runtime/engine.py:3506")
def clipping_is_a_word(c: Context) -> Problems:
    """gradient_clipping is a string: the first step fails."""
    value = c.written("gradient_clipping")
    if isinstance(value, str):
        message = 'plain DeepSpeed does not fill "auto"' if value == AUTO else f"gradient_clipping is the string {value!r}"
        new = 1.0 if c.value("zero_optimization.compute_grad_norm") in (None, True) else 0
        yield c.problem("gradient_clipping", message, fix=c.put("gradient_clipping", new, f"write {new}"))


@rule(
    "DS301", "error", when="initialize", says="not found in kwargs", source="accelerate/accelerator.py", readers=("trainer", "accelerate")
)
def nobody_fills(c: Context) -> Problems:
    """ "auto" at a key that neither the Trainer nor accelerate fills in."""
    filled = FILLED[c.integration]
    for path in autos(c.raw):
        if path not in filled and path.replace("bfloat16", "bf16") not in filled:
            who = "the Trainer" if c.integration == "trainer" else "accelerate"
            says = f"`{path}` not found in kwargs. Please specify `{path}` without `auto`"
            yield c.problem(path, f'{who} does not fill "auto" here', why=f"accelerate: {says}", fix=_instead(c, path))


@rule(
    "DS302",
    "error",
    when="initialize",
    says="`train_batch_size` not found in kwargs",
    source="accelerate/accelerator.py",
    readers=("accelerate", "trainer"),
)
def batch_follows_from_nothing(c: Context) -> Problems:
    """train_batch_size is "auto", but the micro-batch that it depends on is missing."""
    if c.raw.get(KEYS[0]) == AUTO and MICRO not in c.raw and c.integration == "accelerate":
        yield c.problem(
            KEYS[0], 'train_batch_size is "auto" without train_micro_batch_size_per_gpu', fix=c.put(MICRO, AUTO, 'add it as "auto"')
        )


@rule("DS306", "info", readers=("trainer", "accelerate"))
def follows_from_the_model(c: Context) -> Problems:
    """A key that depends on the model's hidden size: without one the launch fails."""
    hidden = hidden_size_of(c.model, c.integration) if c.model is not None else None
    for path, formula in HIDDEN_SIZE_KEYS.items():
        if path not in set(autos(c.raw)):
            continue
        if c.model is not None and hidden is None:
            message = '"auto" cannot be filled: the model\'s config.json has neither hidden_size nor hidden_sizes'
            why = "the launch ends with: it's not possible to automatically fill out the following `auto` entries"
            yield c.problem(path, message, why=why, severity="error", when="initialize", fix=_instead(c, path))
            continue
        value = value_of(path, hidden, c.stage) if hidden is not None else None
        why = "a model whose config has neither hidden_size nor hidden_sizes ends the launch; write a number then"
        yield c.problem(path, f'"auto" becomes {formula}' + (f" = {value:,}" if value is not None else ""), why=why)
