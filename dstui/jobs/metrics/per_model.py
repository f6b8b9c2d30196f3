"""The numbers of each of several models: a script prints `student_loss 1.2`, and dstui plots it under this name without being told."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from dstui.plan.patterns import TAKEN

if TYPE_CHECKING:
    from dstui.plan import Plan

QUANTITIES = ("loss", "lr", "grad_norm", "perplexity")
NUMBER = r"([-+]?\d[\d.]*(?:[eE][-+]?\d+)?|nan|inf)"


def metrics_of(plan: Plan) -> Mapping[str, str]:
    """Name -> regular expression: what the Plan has in `run.metrics`, and MODEL_loss and the like of each of several models."""
    names = [(f"{model}_{quantity}", model, quantity) for model in plan.configurations if model for quantity in QUANTITIES]
    found = {name: rf"\b{model}[_ /.-]?{quantity}(?:=tensor\(|\W{{1,4}}){NUMBER}" for name, model, quantity in names if name not in TAKEN}
    return found | dict(plan.run.metrics)
