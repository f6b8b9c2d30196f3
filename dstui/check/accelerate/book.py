"""Queries about an accelerate YAML that its rules share."""

from __future__ import annotations

from typing import Any

from dstui.check.context import Context
from dstui.plan.accelerate_keys import FILE, SECTION

DS = SECTION


def plugin_value(c: Context, name: str) -> Any:
    """Return a value of deepspeed_config."""
    return c.section(DS).get(name)


def uses_deepspeed(c: Context) -> bool:
    """Return whether accelerate launches DeepSpeed from this file."""
    return bool(c.written("distributed_type") == "DEEPSPEED")


def stage(c: Context) -> int | None:
    """Return the ZeRO stage; None if the file leaves it to a ds_config.json."""
    value = plugin_value(c, "zero_stage")
    return value if isinstance(value, int) else None if plugin_value(c, FILE) else 2


def device(c: Context, what: str) -> str:
    """Return where `optimizer` or `param` is kept, in lower case like accelerate's spelling."""
    return str(plugin_value(c, f"offload_{what}_device") or "none").lower()


def machines(c: Context) -> int:
    """Return the number of machines."""
    value = c.written("num_machines")
    return value if isinstance(value, int) else 1
