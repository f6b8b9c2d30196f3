"""Rules about what the Trainer and accelerate require of a ds_config.json beyond DeepSpeed itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dstui.check.auto_values import AUTO, BY_DEFAULT, TYPES
from dstui.check.context import MISSING, Context
from dstui.check.rule import Problems, rule
from dstui.check.rules.job import write
from dstui.check.rules.trainer import spell_value
from dstui.plan.accelerate_keys import FILE
from dstui.plan.accelerate_keys import PLUGIN as PLUGIN_KEYS
from dstui.plan.finding import Fix

BOTH = ("trainer", "accelerate")
OLD_GATHER = "zero_optimization.stage3_gather_fp16_weights_on_model_save"
PLUGIN = "accelerate/utils/dataclasses.py"
ACCUMULATION_MISMATCH = "accelerate takes the plugin's value, and warns at most of a gradient accumulation steps mismatch"


@rule(
    "DS320",
    "error",
    when="initialize",
    says="Please specify the ZeRO optimization config in the DeepSpeed config.",
    source=PLUGIN,
    readers=BOTH,
)
def zero_is_missing(c: Context) -> Problems:
    """accelerate and the Trainer require a zero_optimization section."""
    if "zero_optimization" not in c.raw and not c.unread:
        message, name = "accelerate needs a zero_optimization section", _plugin(c).get(FILE)
        if not c.raw and isinstance(name, str) and name != "none":
            message = f"{name} could not be read here: fill the section deepspeed from it"
        yield c.problem("zero_optimization", message, fix=c.put("zero_optimization", {"stage": 0}, "add stage 0"))


@rule("DS321", "error", when="initialize", says="'bool' object has no attribute 'get'", source=PLUGIN, readers=BOTH)
def zero_is_a_switch(c: Context) -> Problems:
    """accelerate and the Trainer cannot read zero_optimization: true."""
    value = c.raw.get("zero_optimization", MISSING)
    if isinstance(value, bool):
        fix = c.put("zero_optimization", {"stage": int(value)}, f"write stage {int(value)}")
        yield c.problem("zero_optimization", "accelerate cannot read zero_optimization as true or false", fix=fix)


@rule("DS322", "info", source=PLUGIN, readers=("accelerate",))
def accumulation_is_missing(c: Context) -> Problems:
    """Without gradient_accumulation_steps accelerate uses 1, whatever is passed to Accelerator(...)."""
    if "gradient_accumulation_steps" not in c.raw and c.raw:
        path = "gradient_accumulation_steps"
        message = "gradient_accumulation_steps is left out: accelerate takes 1, and ignores Accelerator(gradient_accumulation_steps=…)"
        yield c.problem(path, message, fix=c.put(path, AUTO, 'write "auto"'))


@rule("DS323", "info", source=PLUGIN, readers=BOTH)
def steps_per_print(c: Context) -> Problems:
    """accelerate overwrites steps_per_print: DeepSpeed's progress lines never appear."""
    if "steps_per_print" in c.raw:
        yield c.problem("steps_per_print", "accelerate overwrites steps_per_print", fix=c.drop("steps_per_print", "remove steps_per_print"))


@rule("DS324", "warning", source="transformers/trainer.py", readers=BOTH)
def weights_are_not_gathered(c: Context) -> Problems:
    """At stage 3 a saved model has no weights unless they are gathered."""
    path = "zero_optimization.stage3_gather_16bit_weights_on_model_save"
    zero = c.raw.get("zero_optimization")
    if c.trained and isinstance(zero, Mapping) and c.stage == 3 and not c.on(path) and not c.has(OLD_GATHER):
        why = "otherwise save_pretrained and the Trainer write no model.safetensors, and zero_to_fp32.py is needed"
        yield c.problem(
            path, "full weights are not gathered when the model is saved", why=why, severity="info", fix=c.put(path, True, "gather them")
        )


@rule("DS325", "error", when="initialize", says="cannot be set to", source=PLUGIN, readers=("accelerate",))
def another_mixed_precision(c: Context) -> Problems:
    """The Plan's accelerate section selects one 16-bit type, the configuration the other."""
    wanted = c.plan.accelerate.get("mixed_precision") if c.plan is not None else None
    if wanted not in ("fp16", "bf16"):
        return
    other = "bf16" if wanted == "fp16" else "fp16"
    if c.section(other).get("enabled") is True:
        says = f"`--mixed_precision` arg cannot be set to `{wanted}` when `{other}` is set in the DeepSpeed config file."
        yield c.problem(
            f"{other}.enabled",
            f"mixed_precision is {wanted}, but {other} is enabled",
            says=says,
            fix=c.put(f"{other}.enabled", AUTO, 'write "auto"'),
        )
    elif c.raw.get(wanted) is not None and c.section(wanted).get("enabled") is False:
        message = f"mixed_precision is {wanted}, but {wanted}.enabled is false: training runs in 32 bit"
        yield c.problem(f"{wanted}.enabled", message, severity="warning", fix=c.put(f"{wanted}.enabled", AUTO, 'write "auto"'))


@rule("DS329", "warning", source="accelerate/state.py (AcceleratorState)", readers=("accelerate",))
def precision_left_open(c: Context) -> Problems:
    """The number format is "auto" and undefined: accelerate uses 32 bits."""
    if c.plan is None or c.plan.accelerate.get("mixed_precision") is not None:
        return
    if c.facts is not None and (c.facts.says_precision or c.facts.integration == "trainer"):
        return  # TrainingArguments set the precision, also when accelerate's launcher starts the script
    if any(c.raw.get(name, {}).get("enabled") is True for name in TYPES if isinstance(c.raw.get(name), Mapping)):
        return
    for name in TYPES:
        section = c.raw.get(name)
        if isinstance(section, Mapping) and section.get("enabled") == AUTO:
            message = f'{name}.enabled is "auto", and nothing defines its value'
            why = "accelerate takes 32 bit unless accelerate.mixed_precision or Accelerator(mixed_precision=…) sets it"
            fix = Fix(f"set accelerate.mixed_precision to {name}", (write(c, "accelerate.mixed_precision", name),))
            yield c.problem(f"{name}.enabled", message, why=why, fix=fix)
            return


@rule("DS331", "info", source=PLUGIN, readers=("accelerate",))
def filled_by_the_plugin(c: Context) -> Problems:
    """ "auto" that accelerate fills in from its own keys when Accelerator() is created: the resulting value."""
    inner = _plugin(c)
    for key in PLUGIN_KEYS.values():
        if key.path and _at(c.raw, key.path) == AUTO and key.path in BY_DEFAULT:
            value, by = (
                (inner[key.name], f"accelerate.deepspeed_config.{key.name}") if key.name in inner else (BY_DEFAULT[key.path], "the default")
            )
            yield c.problem(key.path, f'"auto" becomes {spell_value(value)}', why=f"accelerate fills it from {by}")


@rule("DS332", "warning", source=PLUGIN, readers=("accelerate",))
def the_file_wins(c: Context) -> Problems:
    """A key of accelerate's plugin without effect, since the configuration has another value."""
    for name, value in _plugin(c).items():
        path = PLUGIN_KEYS[name].path if name in PLUGIN_KEYS else ""
        written = _at(c.raw, path) if path else MISSING
        if written not in (MISSING, AUTO) and written != value:
            message = f"{path} is {spell_value(written)}: accelerate.deepspeed_config.{name} {spell_value(value)} has no effect"
            why = 'accelerate replaces only "auto", without a message'
            yield c.problem(path, message, why=why, fix=c.put(path, AUTO, 'write "auto"'))


@rule("DS333", "warning", readers=("accelerate",), source="accelerate/accelerator.py (_prepare_deepspeed)")
def no_pipeline_through_accelerate(c: Context) -> Problems:
    """Parallelism that accelerate lacks: pipelines; tensor parallelism works only as DeepSpeed's AutoTP."""
    if c.section("pipeline"):
        why = "its training loop calls model(…) and backward(); a pipeline needs deepspeed.initialize and train_batch()"
        yield c.problem("pipeline", "accelerate has no pipeline parallelism", why=why, fix=c.drop("pipeline", "remove the section"))
    size = _at(c.raw, "tensor_parallel.autotp_size")
    if isinstance(size, int) and size > 1:
        why = "the script's own model-parallel unit (mpu) is not passed on; ranks of a group must get the same batches"
        message = f"tensor parallelism through accelerate is DeepSpeed's AutoTP over {size} ranks alone"
        yield c.problem("tensor_parallel.autotp_size", message, why=why, severity="info")


@rule("DS335", "warning", source="accelerate/accelerator.py (gradient_accumulation_steps)", readers=("accelerate",))
def accumulation_of_the_script(c: Context) -> Problems:
    """The script passes Accelerator another gradient_accumulation_steps than the configuration: the configuration wins."""
    path, own = "gradient_accumulation_steps", c.facts.accumulation if c.facts is not None else None
    written = _plugin(c).get(path, AUTO) if c.raw.get(path) == AUTO else c.raw.get(path, MISSING)
    if own is not None and isinstance(written, int) and written != own:
        message = f"{path} is {written}: Accelerator({path}={own}) in the script has no effect"
        fix = c.put(path, own, f"write {own}, as the script has it")
        yield c.problem(path, message, why=ACCUMULATION_MISMATCH, fix=fix)


@rule("DS338", "warning", source="accelerate/utils/deepspeed.py (DeepSpeedEngineWrapper.backward)", readers=("accelerate",))
def accumulation_is_never_counted(c: Context) -> Problems:
    """Gradients should be accumulated, but the script never tells accelerate: it steps after every backward()."""
    path, facts = "gradient_accumulation_steps", c.facts
    if facts is None or facts.integration != "accelerate" or facts.accumulates:
        return
    written = _plugin(c).get(path, AUTO) if c.raw.get(path, AUTO) == AUTO else c.raw[path]
    steps = facts.accumulation if written == AUTO else written
    if isinstance(steps, int) and steps > 1:
        message = f"{path} is {steps}, and the script never calls accelerator.accumulate(): each backward() is followed by a step"
        why = f"the batch of a step is 1/{steps} of the intended size, and the learning rate changes {steps} times as fast"
        fix = Fix("in the script: with accelerator.accumulate(model): around the forward pass, backward() and step()")
        yield c.problem(path, message, why=why, fix=fix)


def _plugin(c: Context) -> Mapping[str, Any]:
    """Return accelerate's own keys, if the Plan has some."""
    inner = c.plan.accelerate.get("deepspeed_config") if c.plan is not None else None
    return inner if isinstance(inner, Mapping) else {}


def _at(config: Mapping[str, Any], path: str) -> Any:
    at: Any = config
    for name in path.split("."):
        if not isinstance(at, Mapping) or name not in at:
            return MISSING
        at = at[name]
    return at
