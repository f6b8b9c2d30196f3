"""The lines that a training script needs for a Plan: who reads the configuration, who builds optimizer and scheduler, how it is saved.

Each block is Python as it stands in a script; what is the user's own is called model, dataset, loader, optimizer, scheduler.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from dstui.plan import Plan
from dstui.render.code_of_several import lines_for_several
from dstui.text import sanitise

AUTO = "auto"


def code(plan: Plan) -> str:
    """The lines, with comments on what each is for."""
    name = sanitise(plan.job.script or plan.job.module or "the script")
    if any(plan.configurations.keys()):
        blocks = lines_for_several(plan)
    else:
        blocks = {"deepspeed": _deepspeed, "trainer": _trainer, "accelerate": _accelerate}[plan.job.integration](plan)
    return f"# What {name} needs for this Plan: lines to take over, not a whole script.\n\n" + "\n\n".join(blocks) + "\n"


def _stage(plan: Plan) -> object:
    zero = plan.deepspeed.get("zero_optimization")
    return zero.get("stage", 0) if isinstance(zero, Mapping) else 0


def _gathers(plan: Plan) -> bool:
    zero = plan.deepspeed.get("zero_optimization")
    return isinstance(zero, Mapping) and zero.get("stage3_gather_16bit_weights_on_model_save") is True


# -- plain DeepSpeed


def _deepspeed(plan: Plan) -> Iterator[str]:
    yield INITIALIZE_ARGUMENTS if any("deepspeed_config" in word for word in plan.job.args) else INITIALIZE_VARIABLE
    own = [name for name, kind in (("optimizer", plan.job.optimizer), ("lr_scheduler", plan.job.scheduler)) if kind == "script"]
    given = "".join(f", {name}={name.removeprefix('lr_')}" for name in own)
    yield INITIALIZE.replace("{given}", given)
    yield TRAIN_PLAIN
    if _stage(plan) == 3:
        yield ZERO_INIT_PLAIN
    yield FP32
    yield LIGHTNING


INITIALIZE_ARGUMENTS = """\
import argparse

import deepspeed

parser = argparse.ArgumentParser()
parser.add_argument("--local_rank", type=int, default=-1)  # the launcher adds it
parser = deepspeed.add_config_arguments(parser)  # --deepspeed_config: the path of the rendered ds_config.json
args = parser.parse_args()
config = args.deepspeed_config"""
INITIALIZE_VARIABLE = """\
import os

import deepspeed

config = os.environ["DSTUI_DS_CONFIG"]  # dstui tells every rank where the rendered ds_config.json is"""
INITIALIZE = """\
deepspeed.init_distributed()  # instead of torch.distributed.init_process_group(); NCCL on GPUs, dist_backend="gloo" on CPUs
engine, optimizer, loader, scheduler = deepspeed.initialize(
    model=model, model_parameters=model.parameters(), training_data=dataset, config=config{given}
)"""
TRAIN_PLAIN = """\
_, client_state = engine.load_checkpoint("checkpoints")  # the newest by its `latest` file; client_state is what was saved with it
first = client_state["step"] + 1 if client_state else 0
for step, batch in enumerate(loader, first):
    loss = engine(batch)  # forward
    engine.backward(loss)  # instead of loss.backward()
    engine.step()  # optimizer, scheduler and zero_grad, once per gradient_accumulation_steps
    if step % 1000 == 999:  # on every rank: each writes its own part
        engine.save_checkpoint("checkpoints", tag=f"step{step}", client_state={"step": step})"""
ZERO_INIT_PLAIN = """\
with deepspeed.zero.Init(config_dict_or_path=config):  # instead of building the whole model on every rank
    model = build_model()"""
FP32 = """\
# whole 32-bit weights from a checkpoint, without a GPU: dstui checkpoint checkpoints --fp32 weights
from deepspeed.utils.zero_to_fp32 import get_fp32_state_dict_from_zero_checkpoint, load_state_dict_from_zero_checkpoint

state_dict = get_fp32_state_dict_from_zero_checkpoint("checkpoints")  # takes about twice its size in host RAM
model = load_state_dict_from_zero_checkpoint(model, "checkpoints")"""
LIGHTNING = """\
# with Lightning instead of the loop above
from lightning.pytorch import Trainer
from lightning.pytorch.strategies import DeepSpeedStrategy

trainer = Trainer(strategy=DeepSpeedStrategy(config=config), precision="bf16-mixed")"""


# -- the Trainer


def _trainer(plan: Plan) -> Iterator[str]:
    yield TRAINER_PARSED if any("{ds_config}" in word for word in plan.job.args) else TRAINER_BUILT
    if _stage(plan) == 3:
        yield TRAINER_STAGE_3
    yield TRAINER_TRAIN
    if plan.model is not None and plan.model.lora is not None:
        yield _peft(plan)


TRAINER_PARSED = """\
from transformers import HfArgumentParser, Trainer, TrainingArguments

# before the model: at stage 3 from_pretrained() then splits it while it is loaded. --deepspeed comes from the command line.
(args,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()"""
TRAINER_BUILT = """\
import os

from transformers import Trainer, TrainingArguments

# before the model: at stage 3 from_pretrained() then splits it while it is loaded
args = TrainingArguments(output_dir="out", deepspeed=os.environ["DSTUI_DS_CONFIG"])"""
TRAINER_STAGE_3 = """\
# a model that is built before TrainingArguments needs this first, and the variable must live as long as the model:
# without a name it is gone at once, and every rank loads the whole model
from transformers.integrations import HfDeepSpeedConfig

keep_alive = HfDeepSpeedConfig(os.environ["DSTUI_DS_CONFIG"])"""
TRAINER_TRAIN = """\
trainer = Trainer(model=model, args=args, train_dataset=dataset)
trainer.train(resume_from_checkpoint=False)  # True: from the newest checkpoint in output_dir
trainer.save_model()"""


# -- accelerate


def _accelerate(plan: Plan) -> Iterator[str]:
    if not plan.trains():
        yield ACCELERATOR
        yield INFERENCE
        return
    yield ACCELERATOR
    if plan.model is not None and plan.model.lora is not None:
        yield _peft(plan)
    yield _built(plan)
    yield TRAIN_ACCELERATE
    yield SAVE_STATE
    if _stage(plan) == 3:
        yield SAVE_GATHERED if _gathers(plan) else NOT_GATHERED
    yield SAVE_ZERO
    yield FP32.replace("checkpoints", "zero_checkpoint")


ACCELERATOR = """\
from accelerate import Accelerator

accelerator = Accelerator()  # before the model; it finds the configuration in its environment
# on CPU ranks: Accelerator(kwargs_handlers=[InitProcessGroupKwargs(backend="gloo")]), from accelerate.utils
is_zero_3 = getattr(accelerator.state.deepspeed_plugin, "zero_stage", 0) == 3
with accelerator.main_process_first():  # one rank downloads, the others find it
    dataset = load_data()"""
INFERENCE = """\
# ZeRO inference: stage 3, no optimizer, and prepare() with the evaluation loader alone
model, eval_loader = accelerator.prepare(model, eval_loader)
model.eval()
for batch in eval_loader:
    with torch.no_grad():
        outputs = accelerator.unwrap_model(model).generate(**batch, synced_gpus=is_zero_3)  # every rank must take part"""


def _built(plan: Plan) -> str:
    """Who builds optimizer and scheduler: the four combinations of accelerate."""
    optimizer, scheduler = "optimizer" in plan.deepspeed, "scheduler" in plan.deepspeed
    names = [name for name, used in (("DummyOptim", optimizer), ("DummyScheduler", optimizer or scheduler)) if used]
    lines = [f"from accelerate.utils import {', '.join(names)}", ""] if names else []
    lines.append(
        'optimizer = DummyOptim(trained, lr=1e-4)  # the configuration builds it; this fills its "auto"'
        if optimizer
        else "optimizer = torch.optim.AdamW(trained, lr=1e-4)"
    )
    if scheduler:
        lines.append('scheduler = DummyScheduler(optimizer, total_num_steps=total_steps, warmup_num_steps=100)  # fills its "auto"')
    elif optimizer:
        lines += [
            "# a scheduler of your own beside an optimizer of the configuration is handed over as a function, never as an object",
            "scheduler = DummyScheduler(optimizer, lr_scheduler_callable=lambda o: torch.optim.lr_scheduler.LambdaLR(o, schedule))",
        ]
    else:
        lines.append("scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, schedule)")
    lines += [
        '# one prepare() for all of them; the smallest batch_size of its loaders becomes the micro-batch where that is "auto"',
        "model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)",
    ]
    return "trained = [p for p in model.parameters() if p.requires_grad]\n" + "\n".join(lines)


TRAIN_ACCELERATE = """\
for batch in loader:
    loss = model(**batch).loss
    accelerator.backward(loss)  # backward and, where the accumulation is complete, the step: DeepSpeed does both
    optimizer.step()  # these three do nothing more here, and keep the script right without DeepSpeed
    scheduler.step()
    optimizer.zero_grad()"""
SAVE_STATE = """\
accelerator.save_state("checkpoint")  # everything that a resumed run needs; accelerator.load_state("checkpoint") reads it
accelerator.wait_for_everyone()"""
SAVE_GATHERED = """\
# whole 16-bit weights, gathered on rank 0: slow, and the model must fit that rank's host RAM. On every rank.
state_dict = accelerator.get_state_dict(model)
accelerator.unwrap_model(model).save_pretrained("out", is_main_process=accelerator.is_main_process, state_dict=state_dict)"""
NOT_GATHERED = """\
# accelerator.get_state_dict() raises here: gathering is off (zero_optimization.stage3_gather_16bit_weights_on_model_save)"""
SAVE_ZERO = """\
# or DeepSpeed's own checkpoint, every rank its part: quick, of any size
if model.save_checkpoint("zero_checkpoint", "last", {"epoch": epoch}):
    accelerator.print("saved")"""


# -- PEFT


def _peft(plan: Plan) -> str:
    lora = plan.model.lora if plan.model is not None else None
    assert lora is not None
    modules = repr(list(lora.target_modules)) if isinstance(lora.target_modules, tuple) else repr(lora.target_modules)
    return PEFT.format(
        r=lora.r, alpha=lora.alpha, dropout=lora.dropout, modules=modules.replace("'", '"'), task=sanitise(lora.task_type or "CAUSAL_LM")
    )


PEFT = """\
from peft import LoraConfig, get_peft_model  # or IA3Config, PrefixTuningConfig, PromptTuningConfig, … in LoraConfig's place

# after from_pretrained(), before the optimizer and prepare()
lora = LoraConfig(task_type="{task}", r={r}, lora_alpha={alpha}, lora_dropout={dropout}, target_modules={modules})
model = get_peft_model(model, lora)
model.print_trainable_parameters()
# saving at stage 3: model.save_pretrained() without a gathered state_dict writes tensors of size 0"""
