"""Step 6: the batch size, and the optimizer."""

from __future__ import annotations

from typing import Any

from dstui.tui.forms.fields import Disabled, Field, Option
from dstui.tui.forms.steps.step import Step, model_choice
from dstui.tui.session.state import UNSET, State

DS = "deepspeed."
OPTIMIZER, SCHEDULER = f"{DS}optimizer", f"{DS}scheduler"
MICRO, ACCUMULATION, TOTAL = f"{DS}train_micro_batch_size_per_gpu", f"{DS}gradient_accumulation_steps", f"{DS}train_batch_size"


def product(state: State) -> str:
    """Return the batch arithmetic as far as it is known: `4 x 8 x 2 ranks = 64 samples per step`."""
    micro, steps, ranks = _batch(state)
    if not (isinstance(micro, int) and isinstance(steps, int) and ranks):
        return ""
    total = micro * steps * ranks
    return f"{micro} x {steps} x {ranks} rank{'s' * (ranks != 1)} = {total} sample{'s' * (total != 1)} per step"


def _batch(state: State) -> tuple[Any, Any, int | None]:
    """Return micro-batch, accumulation and the ranks that see different samples; what is left out as DeepSpeed completes it."""
    micro, steps = state.plan.get(MICRO, None), state.plan.get(ACCUMULATION, None)
    if micro is not None and steps is not None and state.plan.get(TOTAL, None) is None:
        return micro, steps, state.ranks
    from dstui.check.rules.batch import known_batch  # most Plans give both, and the first frame needs no rules

    triple, ranks = known_batch(state.plan, state.plan.deepspeed, state.ranks)
    return triple.micro or micro, triple.steps or steps or 1, ranks


def _named(path: str) -> Disabled:
    what = path.rpartition(".")[2]
    return lambda state: "" if state.plan.get(f"{path}.type", None) else f"no {what} here"


def _only_with(*types: str) -> Disabled:
    def why(state: State) -> str:
        chosen = state.plan.get(f"{SCHEDULER}.type", None)
        return "" if chosen in types else "other types only" if chosen else "no scheduler here"

    return why


def _parameter(path: str, key: str, label: str, kind: Any = "number", disabled: Disabled | None = None, **more: Any) -> Field:
    return Field(path=f"{path}.params.{key}", label=label, kind=kind, disabled=disabled or _named(path), **more)


def _types(path: str, none: str, *names: tuple[str, str]) -> tuple[Option, ...]:
    nothing = Option(value=UNSET, label="none", says=none, edits=((path, UNSET),))
    return (nothing, *(Option(value=name, label=name, says=says) for name, says in names))


OPTIMIZERS = _types(
    OPTIMIZER,
    "the script builds its own",
    ("AdamW", "decoupled weight decay"),
    ("Adam", "AdamW by default"),
    ("Lion", "half of Adam's states"),
    ("Lamb", "very large batches"),
    ("Adagrad", "sparse features"),
    ("Muon", "matrices orthogonalized"),
    ("SGD", "torch's own"),
)
SCHEDULERS = _types(
    SCHEDULER,
    "the script builds its own",
    ("WarmupLR", "up, then flat"),
    ("WarmupDecayLR", "up, then down to zero"),
    ("WarmupCosineLR", "up, then down as a cosine"),
    ("OneCycle", "up and down once"),
    ("LRRangeTest", "to find a learning rate"),
)
_WARMUP = ("WarmupLR", "WarmupDecayLR")
_DECAY = ("WarmupDecayLR", "WarmupCosineLR")


def _value(state: State) -> str:
    micro, steps, _ = _batch(state)
    return "–" if micro is None else f"{micro}×{steps}"


BATCH = Step(
    id="batch",
    title="Batch & optimizer",
    question="How many samples make a step, and what does the step do with their gradients?",
    owns=("deepspeed",),
    value=_value,
    fields=lambda state: (
        *model_choice(state),
        Field(path=MICRO, label="Micro-batch per GPU", kind="number", unit="samples", title="Batch"),
        Field(path=ACCUMULATION, label="Accumulation", kind="number", unit="micro-batches"),
        Field(path=TOTAL, label="Batch of all ranks", kind="number", unit="samples", says=product),
        Field(path=f"{DS}gradient_clipping", label="Clip gradients at", kind="number"),
        Field(path=f"{OPTIMIZER}.type", owns=(OPTIMIZER,), label="Optimizer", kind="choice", options=OPTIMIZERS, title="Optimizer"),
        _parameter(OPTIMIZER, "lr", "Learning rate"),
        _parameter(OPTIMIZER, "betas", "Betas", "numbers"),
        _parameter(OPTIMIZER, "eps", "Epsilon"),
        _parameter(OPTIMIZER, "weight_decay", "Weight decay"),
        Field(
            path=f"{SCHEDULER}.type",
            owns=(SCHEDULER,),
            label="Scheduler",
            kind="choice",
            options=SCHEDULERS,
            title="Learning-rate scheduler",
        ),
        _parameter(SCHEDULER, "warmup_num_steps", "Warm up for", unit="steps", disabled=_only_with(*_WARMUP, "WarmupCosineLR")),
        _parameter(SCHEDULER, "warmup_min_lr", "Rate at first", disabled=_only_with(*_WARMUP)),
        _parameter(SCHEDULER, "warmup_max_lr", "Rate after warm-up", disabled=_only_with(*_WARMUP)),
        _parameter(SCHEDULER, "total_num_steps", "Steps in all", disabled=_only_with(*_DECAY)),
        Field(path=f"{DS}steps_per_print", label="Print every", kind="number", unit="steps", title="What DeepSpeed prints"),
        Field(path=f"{DS}wall_clock_breakdown", label="Time of each phase", kind="toggle"),
    ),
)
