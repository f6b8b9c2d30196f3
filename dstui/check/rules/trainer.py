"""Rules about the Trainer's own arguments and the configuration: values that must agree, and combinations that fail.

Source: transformers/integrations/deepspeed.py and training_args.py of 5.23. Only arguments in the Plan are checked.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dstui.adopt.script_options import options_of
from dstui.check.auto_values import AUTO
from dstui.check.context import MISSING, Context, Problem
from dstui.check.rule import Problems, rule
from dstui.check.rules.job import about_the_plan, write
from dstui.plan.finding import Fix
from dstui.plan.handed_over import hands_over, named_files

SOURCE = "transformers/integrations/deepspeed.py"
MISMATCH = "Please correct the following DeepSpeed config values that mismatch"
SHARED: Mapping[str, tuple[str, ...]] = {
    "train_micro_batch_size_per_gpu": ("per_device_train_batch_size",),
    "gradient_accumulation_steps": ("gradient_accumulation_steps",),
    "gradient_clipping": ("max_grad_norm",),
    "optimizer.params.lr": ("learning_rate",),
    "optimizer.params.eps": ("adam_epsilon",),
    "optimizer.params.weight_decay": ("weight_decay",),
    "scheduler.params.warmup_max_lr": ("learning_rate",),
    "fp16.enabled": ("fp16", "fp16_full_eval"),
    "bf16.enabled": ("bf16", "bf16_full_eval"),
}
"""Key -> the arguments that it must agree with."""
DEFAULTS: Mapping[str, Any] = {
    "per_device_train_batch_size": 8,
    "gradient_accumulation_steps": 1,
    "max_grad_norm": 1.0,
    "learning_rate": 5e-5,
    "adam_epsilon": 1e-8,
    "weight_decay": 0.0,
    "fp16": False,
    "bf16": False,
}
"""Defaults of TrainingArguments. A script may have other defaults (TRL's do)."""


def arguments(c: Context) -> dict[str, Any]:
    """Return the script's options as numbers, booleans or words: `--max_grad_norm 0.5`, `--bf16`."""
    return {name: _value(text) for name, text in options_of(c.plan.job.args if c.plan is not None else ()).items()}


def spell_value(value: object) -> str:
    """Format a value as YAML and JSON write it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _value(text: str) -> Any:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    try:
        return float(text)
    except ValueError:
        return text


@rule(
    "TR001",
    "error",
    when="run",
    says=MISMATCH,
    source=SOURCE,
    readers=("trainer",),
)
def values_differ(c: Context) -> Problems:
    """A value in the configuration differs from the Trainer's argument."""
    given = arguments(c)
    for path, names in SHARED.items():
        written = c.flat.get(path, MISSING)
        reported = [given[name] for name in names if name in given]
        usual = DEFAULTS.get(names[0], MISSING)
        if written in (MISSING, AUTO) or written in (reported or [usual]) or not (reported or "deepspeed" in given):
            continue
        why = f"transformers: {MISMATCH} TrainingArguments values: - ds {path}={written}"
        fix = c.put(path, AUTO, 'write "auto"')
        if reported:
            yield c.problem(path, f"{path} is {spell_value(written)}, but --{names[0]} is {spell_value(reported[0])}", why=why, fix=fix)
        else:
            message = f"{path} is {spell_value(written)}, and no --{names[0]} says so: the Trainer's own default is {spell_value(usual)}"
            yield c.problem(path, message, why=f"{why} (unless the script has another default)", fix=fix, severity="warning")


@rule(
    "TR002",
    "error",
    when="initialize",
    says="isn't supported yet with DeepSpeed Zero-3",
    source="transformers/training_args.py",
    readers=("trainer",),
)
def found_batch_size(c: Context) -> Problems:
    """auto_find_batch_size at stage 3."""
    if arguments(c).get("auto_find_batch_size") is True and c.stage == 3:
        yield _argument(
            "auto_find_batch_size cannot be combined with stage 3", "`auto_find_batch_size` isn't supported yet with DeepSpeed Zero-3."
        )


@rule(
    "TR003",
    "error",
    when="initialize",
    says="DeepSpeed can't be used with `save_only_model`",
    source="transformers/training_args.py",
    readers=("trainer",),
)
def best_model_without_state(c: Context) -> Problems:
    """save_only_model and load_best_model_at_end."""
    given = arguments(c)
    if given.get("save_only_model") is True and given.get("load_best_model_at_end") is True:
        words = "DeepSpeed can't be used with `save_only_model` along with `load_best_model_at_end`."
        yield _argument("save_only_model cannot be combined with load_best_model_at_end", words)


@rule(
    "TR004",
    "error",
    when="initialize",
    says="together with --deepspeed is not possible",
    source="transformers/training_args.py",
    readers=("trainer",),
)
def fully_sharded_too(c: Context) -> Problems:
    """--fsdp together with DeepSpeed."""
    given = c.plan is not None and (c.raw or hands_over(c.plan) or any(named_files(c.plan)) or c.plan.cluster.launcher == "accelerate")
    if given and arguments(c).get("fsdp"):
        yield _argument("--fsdp cannot be combined with DeepSpeed", "Using --fsdp xxx together with --deepspeed is not possible")


@rule(
    "TR005",
    "error",
    when="initialize",
    says="You need to assign use_cpu if you want to train the model on CPU.",
    source="transformers/training_args.py; accelerate/state.py (PartialState)",
    readers=("trainer",),
)
def trainer_on_cpus(c: Context) -> Problems:
    """Ranks without a GPU, but the Trainer is not told so."""
    given = arguments(c)
    if (
        not c.cpu_only
        or c.plan is None
        or c.plan.job.command
        or given.get("use_cpu")
        or given.get("no_cuda")
        or (c.facts is not None and c.facts.joins_itself)
    ):
        return
    message = "the ranks have no GPU: the Trainer needs --use_cpu"
    fix = Fix("add --use_cpu to the arguments", (write(c, "job.args", [*c.plan.job.args, "--use_cpu"]),)) if "deepspeed" in given else None
    if given.get("bf16") is True:
        words = "Your setup doesn't support bf16/gpu. You need to assign use_cpu if you want to train the model on CPU."
        yield about_the_plan("job.args", message, f"transformers: {words}", fix)
    elif c.world_size is not None and c.world_size > 1:
        why = "each rank assumes that it is the only one, and DeepSpeed reports contradicting batch sizes"
        yield about_the_plan("job.args", message, why, fix, severity="warning")


@rule("DS337", "warning", source="accelerate/state.py (PartialState)", readers=("accelerate",))
def accelerate_on_cpus(c: Context) -> Problems:
    """Several ranks without a GPU, but the script does not tell accelerate how they connect."""
    if c.cpu_only and c.plan is not None and (c.world_size or 1) > 1 and c.facts is not None and not c.facts.joins_itself:
        why = "each rank assumes that it is the only one, and DeepSpeed reports contradicting batch sizes"
        fix = Fix('in the script: Accelerator(kwargs_handlers=[InitProcessGroupKwargs(backend="gloo")])')
        yield about_the_plan("job.script", "on ranks without a GPU accelerate must be told the backend gloo", why, fix)


def _argument(message: str, words: str) -> Problem:
    return Problem("^job.args", message, why=f"transformers: {words}")
