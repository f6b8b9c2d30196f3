"""Parts of the printed lines that several integrations share: configuration values, optimizer and scheduler, PEFT, full weights."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from dstui.base.text import sanitise
from dstui.plan import Plan

AUTO = "auto"
LATER = "# ---- in a script of its own, after the training: no launcher and no GPU ----"
"""A heading above lines that do not belong into the training script."""
EPOCHS = "epochs = 1"


def stage_of(plan: Plan, config: Mapping[str, Any]) -> int:
    """Return the ZeRO stage. For "auto", use accelerate's own key, else its default 2."""
    zero = config.get("zero_optimization")
    stage = zero.get("stage", 0) if isinstance(zero, Mapping) else int(zero is True)
    if stage == AUTO:
        inner = plan.accelerate.get("deepspeed_config")
        stage = inner.get("zero_stage", 2) if isinstance(inner, Mapping) else 2
    return stage if isinstance(stage, int) else 0


def gathers(config: Mapping[str, Any]) -> bool:
    """Return whether full weights are gathered when a model is saved at stage 3."""
    zero = config.get("zero_optimization")
    return isinstance(zero, Mapping) and zero.get("stage3_gather_16bit_weights_on_model_save") is True


def builds(config: Mapping[str, Any], section: str) -> bool:
    """Return whether the configuration builds the optimizer or scheduler."""
    return bool(config.get(section))


def plan_uses_cpus(plan: Plan) -> bool:
    """Return whether the Plan says that its ranks have no GPU."""
    return plan.cluster.env.get("DS_ACCELERATOR") == "cpu"


def data(config: Mapping[str, Any]) -> str:
    """Return the lines of the data loader, with the configuration's micro-batch."""
    micro = config.get("train_micro_batch_size_per_gpu")
    size = micro if isinstance(micro, int) else 8
    return f"loader = torch.utils.data.DataLoader(dataset, batch_size={size}, shuffle=True)"


def dummies(configs: Iterable[Mapping[str, Any]]) -> set[str]:
    """Return the names of accelerate's dummy classes for what these configurations build."""
    sections = {section for config in configs for section in ("optimizer", "scheduler") if builds(config, section)}
    return ({"DummyOptim"} if "optimizer" in sections else set()) | ({"DummyScheduler"} if sections else set())


def accelerate_builds(config: Mapping[str, Any], owner: str = "accelerator", name: str = "", *, loader: bool = True) -> Iterator[str]:
    """Yield the lines that build optimizer and scheduler and prepare them with their model, in one of accelerate's four combinations.

    `name`: one of several models; `owner`: the Accelerator that trains it.
    """
    model, before = name or "model", f"{name}_" if name else ""
    optimizer, scheduler = builds(config, "optimizer"), builds(config, "scheduler")
    yield f"{before}trained = [p for p in {model}.parameters() if p.requires_grad]"
    if optimizer:
        yield f'{before}optimizer = DummyOptim({before}trained, lr=1e-4)  # the configuration builds it; this fills its "auto"'
    else:
        yield f"{before}optimizer = torch.optim.AdamW({before}trained, lr=1e-4)"
    if scheduler:
        steps = config.get("gradient_accumulation_steps", 1)
        each = f"{owner}.gradient_accumulation_steps" if steps == AUTO else steps
        yield f"{before}total_steps = epochs * len(loader) // {each}  # of all ranks together: accelerate divides by their number"
        arguments = f"{before}optimizer, total_num_steps={before}total_steps, warmup_num_steps=100"
        yield f'{before}scheduler = DummyScheduler({arguments})  # fills its "auto"'
    elif optimizer:
        yield "# a scheduler of your own beside an optimizer of the configuration is handed over as a function, never as an object"
        function = "lambda o: torch.optim.lr_scheduler.LambdaLR(o, schedule)"
        yield f"{before}scheduler = DummyScheduler({before}optimizer, lr_scheduler_callable={function})"
    else:
        yield f"{before}scheduler = torch.optim.lr_scheduler.LambdaLR({before}optimizer, schedule)"
    if loader:
        yield '# one prepare() for all of them; the smallest batch_size of its loaders becomes the micro-batch where that is "auto"'
    else:
        yield "# no loader here: its train_micro_batch_size_per_gpu must be a number"
    objects = f"{model}, {before}optimizer, {'loader, ' if loader else ''}{before}scheduler"
    yield f"{objects} = {owner}.prepare({objects})"


def full_weights_blocks(plan: Plan, folder: str) -> Iterator[str]:
    """Yield the blocks that read the full weights from a DeepSpeed checkpoint. If nothing is sharded they are one file."""
    read, load = (FP32, LOAD_FP32) if stage_of(plan, plan.deepspeed) else (NOT_SPLIT, LOAD)
    yield f"{LATER}\n{read.replace('FOLDER', folder)}"
    yield "model = build_model()  # a new model: loading into an engine would silently do nothing"
    yield from peft(plan)
    yield load.replace("FOLDER", folder)


FP32 = """\
# whole 32-bit weights of a checkpoint; or: dstui checkpoint FOLDER --fp32 weights
from deepspeed.utils.zero_to_fp32 import get_fp32_state_dict_from_zero_checkpoint, load_state_dict_from_zero_checkpoint

state_dict = get_fp32_state_dict_from_zero_checkpoint("FOLDER")  # takes about twice its size in host RAM"""
LOAD_FP32 = 'model = load_state_dict_from_zero_checkpoint(model, "FOLDER")  # or the same into a model'
NOT_SPLIT = """\
# whole weights of a checkpoint: at stage 0 they lie in one file, under the tag that `latest` names
import pathlib

import torch

folder = pathlib.Path("FOLDER")
file = folder / (folder / "latest").read_text() / "mp_rank_00_model_states.pt"
state_dict = torch.load(file, map_location="cpu", weights_only=False)["module"]  # runs what the file holds"""
LOAD = "model.load_state_dict(state_dict)"


def peft(plan: Plan) -> Iterator[str]:
    """Yield the lines that add LoRA to a model, if the Plan's model has it."""
    lora = plan.model.lora if plan.model is not None else None
    if lora is None:
        return
    modules = repr(list(lora.target_modules)) if isinstance(lora.target_modules, tuple) else repr(lora.target_modules)
    yield PEFT.format(
        r=lora.r, alpha=lora.alpha, dropout=lora.dropout, modules=modules.replace("'", '"'), task=sanitise(lora.task_type or "CAUSAL_LM")
    )


PEFT = """\
from peft import LoraConfig, get_peft_model  # or IA3Config, PrefixTuningConfig, PromptTuningConfig, … in LoraConfig's place

# after from_pretrained(), before the optimizer and prepare()
lora = LoraConfig(task_type="{task}", r={r}, lora_alpha={alpha}, lora_dropout={dropout}, target_modules={modules})
model = get_peft_model(model, lora)
model.print_trainable_parameters()
# saving at stage 3: model.save_pretrained() without a gathered state_dict writes tensors of size 0"""
