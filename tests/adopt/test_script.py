"""A script tells by itself how it wants its DeepSpeed configuration."""

from __future__ import annotations

import pytest

from dstui.adopt.script import inspect_script

SCRIPTS = {
    "parser = deepspeed.add_config_arguments(parser)": ("deepspeed", ("--deepspeed_config", "{ds_config}")),
    "from transformers import HfArgumentParser, TrainingArguments\n": ("trainer", ("--deepspeed", "{ds_config}")),
    "from accelerate import Accelerator\n": ("accelerate", ()),
    'p.add_argument("--deepspeed-config")\nimport deepspeed': ("deepspeed", ("--deepspeed-config", "{ds_config}")),
    "p.add_argument('--ds_config')": ("deepspeed", ("--ds_config", "{ds_config}")),
    "deepspeed.initialize(model=m, config=CONFIG)": ("deepspeed", ()),
    "# from accelerate import Accelerator\nprint('hello')": (None, ()),
}


@pytest.mark.parametrize("text", SCRIPTS)
def test_the_integration_and_its_argument_are_found(text: str) -> None:
    facts = inspect_script(text)
    assert (facts.integration, facts.suggested_args) == SCRIPTS[text]


def test_the_reason_names_the_line() -> None:
    assert inspect_script("import torch\n\nfrom accelerate import Accelerator\n").why.startswith("line 3: ")
