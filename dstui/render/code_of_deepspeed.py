"""The lines that a training script needs for deepspeed.initialize."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from dstui.plan import Plan
from dstui.render.code_parts import builds, full_weights_blocks, peft, plan_uses_cpus, stage_of


def lines_for_deepspeed(plan: Plan) -> Iterator[str]:
    """Yield the blocks of lines in order."""
    config, stage = plan.deepspeed, stage_of(plan, plan.deepspeed)
    yield INITIALIZE_ARGUMENTS if any("deepspeed_config" in word for word in plan.job.args) else INITIALIZE_VARIABLE
    yield DISTRIBUTED
    yield ZERO_INIT if stage == 3 else BUILD
    yield from peft(plan)
    yield initialize_block(plan, config)
    yield TRAIN
    yield from full_weights_blocks(plan, "checkpoints")
    if not plan_uses_cpus(plan):
        yield f"{INSTEAD}\n{_lightning(config)}"


def lines_for_lightning(plan: Plan) -> Iterator[str]:
    """Yield the blocks of a script that trains with Lightning."""
    yield IMPORTS_OF_LIGHTNING
    yield _lightning(plan.deepspeed)


def _lightning(config: Mapping[str, Any]) -> str:
    return LIGHTNING.replace("PRECISION", _lightning_precision(config))


def initialize_block(plan: Plan, config: Mapping[str, Any], name: str = "", *, data: bool = True) -> str:
    """Return the call of deepspeed.initialize, with the optimizer and scheduler that the configuration lacks.

    `name`: one of several models; `data`: whether the call makes the loader too.
    """
    lines, given = [], ""
    model, before = name or "model", f"{name}_" if name else ""
    if plan.job.optimizer == "script" or not builds(config, "optimizer"):
        kind = "torch.optim.AdamW"
        if _offloads(config):
            kind = "DeepSpeedCPUAdam"
            lines.append("from deepspeed.ops.adam import DeepSpeedCPUAdam  # the optimizer of a model whose states are offloaded\n")
        lines.append(f"{before}optimizer = {kind}({model}.parameters(), lr=1e-4)")
        given += f", optimizer={before}optimizer"
    if plan.job.scheduler == "script" and not builds(config, "scheduler"):
        given += ", lr_scheduler=lambda o: torch.optim.lr_scheduler.LambdaLR(o, schedule)"
    given = f"{'training_data=dataset, ' if data else ''}config=" + (f'configs["{name}"]' if name else "config") + given
    result = "engine, optimizer, loader, scheduler" if not name else f"{name}, _, loader, _" if data else f"{name}, *_"
    arguments = f"model={model}, model_parameters={model}.parameters(), {given}"
    return "\n".join([*lines, f"{result} = deepspeed.initialize(", f"    {arguments}", ")"])


def _offloads(config: Mapping[str, Any]) -> bool:
    zero = config.get("zero_optimization")
    section = zero.get("offload_optimizer") if isinstance(zero, Mapping) else None
    return isinstance(section, Mapping) and section.get("device") in ("cpu", "nvme")


def _lightning_precision(config: Mapping[str, Any]) -> str:
    for name, precision in (("bf16", "bf16-mixed"), ("fp16", "16-mixed")):
        section = config.get(name)
        if isinstance(section, Mapping) and section.get("enabled") is True:
            return precision
    return "32-true"


INITIALIZE_ARGUMENTS = """\
import argparse

import deepspeed
import torch

parser = argparse.ArgumentParser()
parser.add_argument("--local_rank", type=int, default=-1)  # the launcher adds it
parser = deepspeed.add_config_arguments(parser)  # --deepspeed_config: the path of the rendered ds_config.json
args = parser.parse_args()
config = args.deepspeed_config"""
INITIALIZE_VARIABLE = """\
import os

import deepspeed
import torch

config = os.environ["DSTUI_DS_CONFIG"]  # dstui tells every rank where the rendered ds_config.json is"""
DISTRIBUTED = """\
deepspeed.init_distributed()  # instead of torch.distributed.init_process_group(); NCCL on GPUs, gloo on CPUs
dataset = load_data()"""
BUILD = "model = build_model()  # it takes a batch and returns the loss"
ZERO_INIT = """\
with deepspeed.zero.Init(config_dict_or_path=config):  # instead of building the whole model on every rank
    model = build_model()  # it takes a batch and returns the loss"""
TRAIN = """\
_, client_state = engine.load_checkpoint("checkpoints")  # the newest by its `latest` file; client_state is what was saved with it
first = client_state["step"] + 1 if client_state else 0
for step, batch in enumerate(loader, first):
    loss = engine(batch)  # forward
    engine.backward(loss)  # instead of loss.backward()
    engine.step()  # optimizer, scheduler and zero_grad, once per gradient_accumulation_steps
    if step % 1000 == 999:  # on every rank: each writes its own part
        engine.save_checkpoint("checkpoints", tag=f"step{step}", client_state={"step": step})
engine.save_checkpoint("checkpoints", tag=f"step{step}", client_state={"step": step})"""
INSTEAD = "# ---- with Lightning, instead of all from deepspeed.init_distributed() on; its strategy takes GPUs only ----"
IMPORTS_OF_LIGHTNING = """\
import os

import torch

config = os.environ["DSTUI_DS_CONFIG"]  # dstui tells every rank where the rendered ds_config.json is; DeepSpeedStrategy takes GPUs only"""
LIGHTNING = """\
import json
import os
from pathlib import Path

from lightning.pytorch import Trainer
from lightning.pytorch.plugins.environments import TorchElasticEnvironment
from lightning.pytorch.strategies import DeepSpeedStrategy

settings = json.loads(Path(config).read_text())
accumulate = settings.pop("gradient_accumulation_steps", 1)  # Lightning refuses it there: it is an argument of the Trainer
trainer = Trainer(
    strategy=DeepSpeedStrategy(config=settings),
    precision="PRECISION",
    max_epochs=1,
    accumulate_grad_batches=accumulate,
    devices=int(os.environ["LOCAL_SIZE"]),  # the ranks of this host
    num_nodes=int(os.environ["WORLD_SIZE"]) // int(os.environ["LOCAL_SIZE"]),
    plugins=[TorchElasticEnvironment()],  # the ranks are there already: the number of this one is in RANK and LOCAL_RANK
)
module = build_lightning_module()  # an optimizer of the configuration takes the place of its configure_optimizers()
trainer.fit(module, torch.utils.data.DataLoader(load_data(), batch_size=settings.get("train_micro_batch_size_per_gpu", 1)))
trainer.save_checkpoint("lightning")  # on every rank: a folder that DeepSpeed writes"""
