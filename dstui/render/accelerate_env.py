"""The variables that `accelerate launch` would set for its ranks: `ACCELERATE_*` of a Plan; "auto" is left to accelerate."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dstui.plan import Plan
from dstui.plan.accelerate_keys import FILE, PLUGIN, SECTION
from dstui.plan.parallelism import parallelism_variables

DS_CONFIG = "{ds_config}"
AUTO = "auto"


def accelerate_environment(plan: Plan) -> dict[str, str]:
    """Return the variables that `accelerate launch` would set for the ranks: the configuration's path, or the plugin's keys."""
    env = {"ACCELERATE_USE_DEEPSPEED": "true"}
    if precision := mixed_precision(plan):
        env["ACCELERATE_MIXED_PRECISION"] = precision
    if plan.deepspeed:  # several models, or a script, bring their own plugins, and each knows its stage
        env["ACCELERATE_DEEPSPEED_CONFIG_FILE"] = DS_CONFIG
        zero = plan.deepspeed.get("zero_optimization")
        stage = zero.get("stage", 0) if isinstance(zero, Mapping) else 0
        if stage != AUTO:
            env["ACCELERATE_DEEPSPEED_ZERO3_INIT"] = "true" if stage == 3 else "false"
    env |= _of_the_plugin(_section(plan, SECTION))
    if plan.accelerate.get("debug") is True:
        env["ACCELERATE_DEBUG_MODE"] = "true"
    return env | parallelism_variables(plan)


def _section(plan: Plan, name: str) -> Mapping[str, Any]:
    found = plan.accelerate.get(name)
    return found if isinstance(found, Mapping) else {}


def _of_the_plugin(section: Mapping[str, Any]) -> dict[str, str]:
    """Return the variables for the keys of the plugin in accelerate's spelling: class names unchanged, everything else in lower case."""
    given = [key for key in PLUGIN.values() if key.variable and key.name != FILE and section.get(key.name) is not None]
    return {key.variable: str(section[key.name]) if key.kind == "str" else str(section[key.name]).lower() for key in given}


def mixed_precision(plan: Plan) -> str | None:
    """Return the number format for accelerate: from the Plan's accelerate section, else from the configuration.

    None for "auto": then accelerate (or the script: Accelerator(mixed_precision=…)) decides.
    """
    reported = plan.accelerate.get("mixed_precision")
    if reported is not None:
        return "no" if reported is False else str(reported)  # `no` is false in YAML 1.1
    configs = [config for config in plan.configurations.values() if config]
    sections = [(name, config.get(name)) for config in configs for name in ("bf16", "fp16")]
    enabled = [(name, section.get("enabled")) for name, section in sections if isinstance(section, Mapping)]
    chosen = next((name for name, value in enabled if value is True), None)
    return chosen or (None if not configs or any(value == AUTO for _, value in enabled) else "no")
