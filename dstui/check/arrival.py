"""The part of a configuration that reaches DeepSpeed, for callers that ask DeepSpeed itself about it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dstui.check.context import Context, without_auto
from dstui.check.rules.batch import MICRO, TRAIN, evaluate_batch, written_batch
from dstui.plan.catalogue import release

MOST_RANKS = 1024


def config_for_deepspeed(config: Mapping[str, Any], integration: str) -> dict[str, Any]:
    """Return the configuration as DeepSpeed gets it: without each "auto" that the reader fills in, and with a micro-batch."""
    if integration == "deepspeed":
        return dict(config)
    arriving = without_auto(config)
    if arriving.get(TRAIN) is None and arriving.get(MICRO) is None:
        arriving[MICRO] = 1
    return arriving


def fitting_world_size(config: Mapping[str, Any]) -> int:
    """Return a number of ranks that fits the batch keys if the world size is not given; else 1."""
    written = written_batch(Context(config, release()))
    return next((ranks for ranks in range(1, MOST_RANKS + 1) if not evaluate_batch(written, ranks).fails), 1)
