"""The printed code that a script needs: Python for the Plan's integration and features."""

from __future__ import annotations

import ast
import itertools

import pytest

from dstui.plan import load
from dstui.render.code import render_code

CONFIGS = {
    "": "{zero_optimization: {stage: 2}}",
    "optimizer": "{zero_optimization: {stage: 3, stage3_gather_16bit_weights_on_model_save: true}, optimizer: {type: AdamW}}",
    "scheduler": "{scheduler: {type: WarmupLR}}",
    "both": "{optimizer: {type: AdamW}, scheduler: {type: WarmupLR}}",
}


LORA = "{r: 8, alpha: 32, dropout: 0.1, task_type: SEQ_2_SEQ_LM}"
WITH_FILE = ', args: ["--deepspeed_config", "{ds_config}"]'
SHOWN: dict[str, tuple[str, str, str, tuple[str, ...]]] = {
    "the state": ("accelerate", "", "", ('accelerator.save_state("checkpoint")', 'accelerator.load_state("checkpoint")', "wait_for_everyone()")),
    "ZeRO checkpoint": ("accelerate", "optimizer", "", ('if model.save_checkpoint("zero_checkpoint", "last", {"epoch": epoch}):',)),
    "32-bit weights": (
        *("accelerate", "", ""),
        ('get_fp32_state_dict_from_zero_checkpoint("zero_checkpoint")  # takes about twice its size in host RAM',
         'load_state_dict_from_zero_checkpoint(model, "zero_checkpoint")'),
    ),
    "one rank first": ("accelerate", "", "", ("with accelerator.main_process_first():", "accelerator.wait_for_everyone()")),
    "LoRA": (
        *("accelerate", "both", ""),
        ("from peft import LoraConfig", 'LoraConfig(task_type="SEQ_2_SEQ_LM", r=8, lora_alpha=32, lora_dropout=0.1',
         "get_peft_model(model, lora)", "model.print_trainable_parameters()", "accelerator.prepare(model"),
    ),
    "other PEFT methods": ("trainer", "", "", ("IA3Config, PrefixTuningConfig, PromptTuningConfig",)),
    "is it ZeRO-3": ("accelerate", "", "", ('is_zero_3 = getattr(accelerator.state.deepspeed_plugin, "zero_stage", 0) == 3',)),
    "backward": ("accelerate", "", "", ("loss = model(**batch).loss", "accelerator.backward(loss)", "optimizer.step()", "zero_grad()")),
    "initialize": (
        *("deepspeed", "optimizer", WITH_FILE),
        ("deepspeed.add_config_arguments(parser)", "config = args.deepspeed_config", "engine, optimizer, loader, scheduler = deepspeed.initialize(",
         "model=model, model_parameters=model.parameters(), training_data=dataset, config=config"),
    ),
    "init_distributed": (
        *("deepspeed", "optimizer", ""),
        ("deepspeed.init_distributed()  # instead of torch.distributed.init_process_group(); NCCL on GPUs",
         "gloo on CPUs", "deepspeed.initialize("),
    ),
    "forward, backward, step": ("deepspeed", "optimizer", "", ("loss = engine(batch)", "engine.backward(loss)", "engine.step()")),
    "client state": (
        *("deepspeed", "optimizer", ""),
        ('_, client_state = engine.load_checkpoint("checkpoints")', 'first = client_state["step"] + 1',
         'engine.save_checkpoint("checkpoints", tag=f"step{step}", client_state={"step": step})'),
    ),
    "the Trainer": ("trainer", "", "", ('TrainingArguments(output_dir="out", deepspeed=os.environ["DSTUI_DS_CONFIG"])', "trainer.train(")),
    "zero.Init": ("deepspeed", "optimizer", "", ("with deepspeed.zero.Init(config_dict_or_path=config):",)),
    "Lightning": ("deepspeed", "optimizer", "", ("DeepSpeedStrategy(config=settings)", "accumulate_grad_batches=accumulate", "trainer.fit(")),
    "gloo": ("accelerate", "", "", ('Accelerator(kwargs_handlers=[InitProcessGroupKwargs(backend="gloo")])',)),
}  # fmt: skip
"""Topic of the field's guides -> integration, configuration, more of the job, and the parts in order."""


def lines(integration: str, config: str, more: str = "") -> str:
    return render_code(
        load(f"version: 1\njob: {{script: train.py, integration: {integration}{more}}}\nmodel: {{lora: {LORA}}}\ndeepspeed: {config}\n")
    )


@pytest.mark.parametrize("what", SHOWN)
def test_topics_of_the_guides_are_shown_in_order(what: str) -> None:
    integration, config, more, parts = SHOWN[what]
    found = lines(integration, CONFIGS[config], more)
    places = [found.find(part) for part in parts]
    assert -1 not in places and places == sorted(places), dict(zip(parts, places, strict=True))


@pytest.mark.parametrize(("integration", "config"), list(itertools.product(("deepspeed", "trainer", "accelerate"), CONFIGS)))
@pytest.mark.parametrize("more", ["", ", optimizer: script", ', args: ["--deepspeed_config", "{ds_config}"]'])
def test_printed_code_is_python(integration: str, config: str, more: str) -> None:
    ast.parse(lines(integration, CONFIGS[config], more))


@pytest.mark.parametrize(
    ("config", "has", "has_not"),
    [
        ("both", ("DummyOptim(", "DummyScheduler(optimizer, total_num_steps"), ("torch.optim.AdamW",)),
        ("", ("torch.optim.AdamW", "LambdaLR(optimizer, schedule)"), ("Dummy",)),
        ("scheduler", ("torch.optim.AdamW", "DummyScheduler(optimizer, total_num_steps"), ("DummyOptim",)),
        ("optimizer", ("DummyOptim(", "lr_scheduler_callable="), ("torch.optim.AdamW",)),
    ],
    ids=["a", "b", "c", "d"],
)
def test_four_combinations_of_accelerate(config: str, has: tuple[str, ...], has_not: tuple[str, ...]) -> None:
    found = lines("accelerate", CONFIGS[config], ", optimizer: script")
    assert all(part in found for part in has) and not any(part in found for part in has_not)


def test_inference_prepares_only_the_evaluation_loader() -> None:
    found = lines("accelerate", "{zero_optimization: {stage: 3}}", ", optimizer: none")
    assert "prepare(model, eval_loader)" in found and "optimizer" not in found.replace("no optimizer", "")


def test_saving_is_shown_for_the_configuration() -> None:
    assert "accelerator.get_state_dict(model)\n" in lines("accelerate", CONFIGS["optimizer"])
    assert "raises here" in lines("accelerate", "{zero_optimization: {stage: 3}, optimizer: {type: Adam}}")
    assert "client_state" in lines("deepspeed", CONFIGS["optimizer"])
