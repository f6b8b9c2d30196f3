"""Sequence parallelism (Ulysses) as accelerate and the Trainer ship it: `parallelism_config` of an accelerate YAML.

`accelerate launch` hands it to the ranks as variables, and a Plan may also write these itself under `cluster.env`.
Sources: accelerate/utils/launch.py (prepare_extend_env_parallelism_config) and parallelism_config.py of 1.15.
"""

from __future__ import annotations

from collections.abc import Mapping

from dstui.plan.plan import Plan

PARALLELISM = "parallelism_config"
"""The section of an accelerate YAML, and the prefix of each of its keys."""
SIZE = f"{PARALLELISM}_sp_size"
IN_USE = "ACCELERATE_USE_PARALLELISM_CONFIG"
ATTENTION = "PARALLELISM_CONFIG_SP_ATTN_IMPLEMENTATION"
"""accelerate launch sets this variable to sdpa by itself. Without it, Ulysses finds another attention in the model and stops."""


def parallelism_variables(plan: Plan) -> dict[str, str]:
    """Return the variables of the ranks. accelerate ignores keys without the prefix."""
    section = plan.accelerate.get(PARALLELISM)
    keys = section if isinstance(section, Mapping) else {}
    given = {name.upper(): str(value) for name, value in keys.items() if name.startswith(f"{PARALLELISM}_") and value is not None}
    return {IN_USE: "true", ATTENTION: "sdpa", **given} if given else {}


def sp_size(plan: Plan | None) -> int:
    """Return the number of ranks over which accelerate splits each sequence; 1 if it does not split, or nothing reads the setting."""
    if plan is None or plan.job.integration == "deepspeed":
        return 1
    env = {**parallelism_variables(plan), **plan.cluster.env}
    size = env.get(SIZE.upper(), "1")
    in_use = env.get(IN_USE, "").lower() == "true"
    return int(size) if in_use and size.isascii() and size.isdecimal() and 1 <= len(size) <= 6 and int(size) else 1
