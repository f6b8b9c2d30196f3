"""Rules about the values in an accelerate YAML: those on which accelerate or DeepSpeed fails, and where."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dstui.check.accelerate.book import DS, device, plugin_value, stage, uses_deepspeed
from dstui.check.context import Context
from dstui.check.rule import Problems, rule
from dstui.plan.accelerate_keys import FILE, PLUGIN, TOP, AccelerateKey
from dstui.plan.finding import Fix, When

SAYS: Mapping[str, tuple[When, str]] = {
    "mixed_precision": ("launch", "ValueError: Unknown mixed_precision mode: {value}. Choose between ['no', 'fp8', 'fp16', 'bf16']."),
    "gradient_clipping": ("parse", "ValueError: could not convert string to float: '{value}'"),
    "zero_stage": ("initialize", "DeepSpeed takes the stages 0 to 3"),
    "offload_optimizer_device": ("initialize", "DeepSpeed: Input should be 'none', 'cpu' or 'nvme'"),
    "offload_param_device": ("initialize", "DeepSpeed: Input should be 'none', 'cpu' or 'nvme'"),
    "gradient_accumulation_steps": ("initialize", "DeepSpeed: Gradient accumulation steps: {value} has to be greater than 0"),
    "zero3_init_flag": ("parse", "ValueError: invalid truth value {value}"),
}
"""Key -> when the run fails because of a wrong value, and with which message. Other keys are only ignored."""
IN_ANY_CASE = ("mixed_precision", "offload_optimizer_device", "offload_param_device")
"""Words that accelerate converts to lower case."""
LEFT_OPEN = ("gradient_accumulation_steps", "gradient_clipping")
"""Keys that may be "auto"."""
TRUTH = ("true", "false", "yes", "no", "on", "off", "1", "0", "y", "n", "t", "f")


@rule("AC010", "error", when="initialize", says="Unknown mixed_precision mode", source="utils/dataclasses.py, utils/launch.py")
def value(c: Context) -> Problems:
    """A value that is invalid for its key."""
    for path, key in [(name, key) for name, key in TOP.items()] + [(f"{DS}.{name}", key) for name, key in PLUGIN.items()]:
        given = c.flat.get(path)
        if given is None or path in ("distributed_type", "deepspeed_config.deepspeed_multinode_launcher") or is_accepted(key, given):
            continue
        if key.name == "mixed_precision" and given is False:
            continue  # an unquoted no, which has a rule of its own
        when, says = SAYS.get(key.name, (None, ""))
        fix = _instead(c, path, key, given)
        message = f"{key.name} is {describe_value(given)}: it must be {describe_expected(key)}"
        fatal = when is not None and uses_deepspeed(c)
        why = says.format(value=given) if fatal else "accelerate does not check it, and uses it as it is"
        yield c.problem(path, message, why=why, severity="error" if fatal else "warning", when=when or "launch", fix=fix)


def _instead(c: Context, path: str, key: AccelerateKey, given: Any) -> Fix:
    """Return a fix: the same word in its valid spelling, else the usual value, else the key removed."""
    meant = given.strip().lower() if isinstance(given, str) else None
    usual = key.choices[2 if key.name == "zero_stage" else 0] if key.choices else 1 if key.kind == "int" else None
    new = meant if meant in key.choices else usual
    return c.put(path, new, f"write {new}") if new is not None else c.drop(path, f"remove {key.name}")


def is_accepted(key: AccelerateKey, given: Any) -> bool:
    """Return whether accelerate and DeepSpeed accept a value."""
    if key.name in LEFT_OPEN and given == "auto":
        return True
    if key.kind == "int":
        least = 1 if key.name == "gradient_accumulation_steps" else 0
        whole = isinstance(given, int) and not isinstance(given, bool)
        return whole and (given in key.choices if key.choices else given >= least)
    if key.kind == "number":
        return isinstance(given, (int, float)) and not isinstance(given, bool)
    if key.kind == "bool":
        return isinstance(given, bool) or (isinstance(given, str) and given.lower() in TRUTH)
    if key.kind == "choice":
        return isinstance(given, str) and (given in key.choices or (key.name in IN_ANY_CASE and given.lower() in key.choices))
    return not (key.kind == "section" and not isinstance(given, Mapping))


def describe_expected(key: AccelerateKey) -> str:
    """Describe the values that a key accepts."""
    if key.choices:
        return "one of " + ", ".join(map(str, key.choices))
    if key.name == "gradient_accumulation_steps":
        return "a whole number, 1 or more"
    return {"int": "a whole number", "number": "a number", "bool": "true or false", "section": "keys and values"}.get(key.kind, "a word")


def describe_value(given: Any) -> str:
    """Describe a value in a message."""
    return repr(given)[:60] if not isinstance(given, (dict, list)) else "a list" if isinstance(given, list) else "a section"


@rule("AC011", "error", when="initialize", says="nvme_path", source="runtime/zero/offload_config.py")
def nvme_without_a_path(c: Context) -> Problems:
    """Offload to NVMe without a folder for it."""
    if not uses_deepspeed(c) or plugin_value(c, FILE):
        return
    for what in ("optimizer", "param"):
        path = f"{DS}.offload_{what}_device"
        if device(c, what) != "nvme":
            continue
        if stage(c) == 3:
            if plugin_value(c, f"offload_{what}_nvme_path") not in (None, "none"):
                continue
            why = "DeepSpeed builds a path from None and fails with a TypeError"
            fix = c.put(f"{DS}.offload_{what}_nvme_path", "/local_nvme", "name a folder on the NVMe disk")
            yield c.problem(path, f"offload_{what}_device is nvme, and offload_{what}_nvme_path names no folder", why=why, fix=fix)
        elif what == "optimizer":
            why = "only stage 3 swaps to disk; below it the optimizer states stay in host RAM"
            yield c.problem(path, f"nvme means cpu at stage {stage(c)}", why=why, severity="info", fix=c.put(path, "cpu", "write cpu"))
