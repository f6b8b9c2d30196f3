"""The lines that a script needs: Python, of the integration and the combination that the Plan says."""

from __future__ import annotations

import ast
import itertools

import pytest

from dstui.plan import load
from dstui.render.code import code

CONFIGS = {
    "": "{zero_optimization: {stage: 2}}",
    "optimizer": "{zero_optimization: {stage: 3, stage3_gather_16bit_weights_on_model_save: true}, optimizer: {type: AdamW}}",
    "scheduler": "{scheduler: {type: WarmupLR}}",
    "both": "{optimizer: {type: AdamW}, scheduler: {type: WarmupLR}}",
}


def lines(integration: str, config: str, more: str = "") -> str:
    return code(
        load(f"version: 1\njob: {{script: train.py, integration: {integration}{more}}}\nmodel: {{lora: {{r: 4}}}}\ndeepspeed: {config}\n")
    )


@pytest.mark.parametrize(("integration", "config"), list(itertools.product(("deepspeed", "trainer", "accelerate"), CONFIGS)))
@pytest.mark.parametrize("more", ["", ", optimizer: script", ', args: ["--deepspeed_config", "{ds_config}"]'])
def test_what_is_shown_is_python(integration: str, config: str, more: str) -> None:
    ast.parse(lines(integration, CONFIGS[config], more))


@pytest.mark.parametrize(
    ("config", "has", "has_not"),
    [
        ("both", ("DummyOptim(", "DummyScheduler(optimizer, total_num_steps"), ("torch.optim.AdamW",)),
        ("", ("torch.optim.AdamW", "LambdaLR(optimizer, schedule)"), ("Dummy",)),
        ("scheduler", ("torch.optim.AdamW", "DummyScheduler(optimizer, total_num_steps"), ("DummyOptim",)),
        ("optimizer", ("DummyOptim(", "lr_scheduler_callable="), ("torch.optim.AdamW",)),
    ],
)
def test_the_four_combinations_of_accelerate(config: str, has: tuple[str, ...], has_not: tuple[str, ...]) -> None:
    found = lines("accelerate", CONFIGS[config], ", optimizer: script")
    assert all(part in found for part in has) and not any(part in found for part in has_not)


def test_inference_prepares_the_evaluation_loader_alone() -> None:
    found = lines("accelerate", "{zero_optimization: {stage: 3}}")
    assert "prepare(model, eval_loader)" in found and "optimizer" not in found.replace("no optimizer", "")


def test_saving_is_shown_as_it_works_with_this_configuration() -> None:
    assert "accelerator.get_state_dict(model)\n" in lines("accelerate", CONFIGS["optimizer"])
    assert "raises here" in lines("accelerate", "{zero_optimization: {stage: 3}, optimizer: {type: Adam}}")
    assert "client_state" in lines("deepspeed", CONFIGS["optimizer"])
