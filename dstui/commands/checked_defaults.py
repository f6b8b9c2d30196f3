"""Check the form of DeepSpeed's keys in the `defaults` of a settings or a site file: those of every Plan here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from dstui.check import check_config
from dstui.plan.finding import Finding
from dstui.plan.layers import Layer

OF_FORM = ("DS011", "DS012", "DS013", "DS019")
"""Rules about a key alone: one that DeepSpeed does not know, a value that it refuses. Other rules need the rest of a Plan."""


def wrong_defaults(layer: Layer | None) -> list[Finding]:
    """Return DeepSpeed's keys in the defaults that are unknown or have an impossible value, with their lines."""
    config = layer.values().get("deepspeed") if layer is not None else None
    if layer is None or not isinstance(config, Mapping):
        return []
    found = check_config(config, lines=lambda path: layer.line_of(("deepspeed", *path.split("."))), integration="trainer")
    prefix = ".".join(map(str, (*layer.root, "deepspeed")))
    return [replace(one, path=f"{prefix}.{one.path}") for one in found if one.code in OF_FORM and one.severity != "info"]
