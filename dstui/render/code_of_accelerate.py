"""The lines that a training script needs for one model through accelerate."""

from __future__ import annotations

from collections.abc import Iterator

from dstui.plan import Plan
from dstui.render.code_parts import EPOCHS, accelerate_builds, data, dummies, full_weights_blocks, gathers, peft, plan_uses_cpus, stage_of

GLOO = 'kwargs_handlers=[InitProcessGroupKwargs(backend="gloo")]'
"""Argument of every Accelerator for ranks without a GPU."""


def lines_for_accelerate(plan: Plan) -> Iterator[str]:
    """Yield the blocks of lines in order: for training, or for inference if nothing is trained."""
    config, stage = plan.deepspeed, stage_of(plan, plan.deepspeed)
    yield accelerator_block(plan, dummies([config]), remark="  # before the model; it finds the configuration in its environment")
    if not plan.trains():
        yield FIRST + IS_ZERO_3
        yield INFERENCE
        return
    yield FIRST + f"{data(config)}\n{EPOCHS}"
    yield BUILT + IS_ZERO_3
    yield from peft(plan)
    yield "\n".join(accelerate_builds(config))
    yield TRAIN
    yield SAVE_STATE
    if stage == 3:
        yield SAVE_GATHERED if gathers(config) else NOT_GATHERED
    yield SAVE_ZERO
    yield from full_weights_blocks(plan, "zero_checkpoint")


def accelerator_block(plan: Plan, utils: set[str], arguments: str = "", remark: str = "") -> str:
    """Return the imports (including `utils`) and the first Accelerator. Ranks without a GPU must name the backend."""
    names = sorted(utils | ({"InitProcessGroupKwargs"} if plan_uses_cpus(plan) else set()))
    lines = ["import torch", "from accelerate import Accelerator", *([f"from accelerate.utils import {', '.join(names)}"] if names else [])]
    comma = ", " if arguments else ""
    if plan_uses_cpus(plan):
        return "\n".join([*lines, "", f"accelerator = Accelerator({arguments}{comma}{GLOO}){remark}"])
    gloo = f"# on CPU ranks: Accelerator({arguments}{comma}{GLOO}), from accelerate.utils"
    return "\n".join([*lines, "", f"accelerator = Accelerator({arguments}){remark}", gloo])


FIRST = """\
with accelerator.main_process_first():  # one rank downloads, the others find it
    dataset = load_data()
"""
BUILT = "model = build_model()  # after the Accelerator: at stage 3 from_pretrained() then splits it while it is loaded\n"
IS_ZERO_3 = 'is_zero_3 = getattr(accelerator.state.deepspeed_plugin, "zero_stage", 0) == 3  # then generate(…, synced_gpus=True)'
INFERENCE = """\
# ZeRO inference: stage 3, no optimizer, and prepare() with the evaluation loader alone
eval_loader = torch.utils.data.DataLoader(dataset, batch_size=1)
model = build_model()  # after the Accelerator: from_pretrained() then splits it while it is loaded
model, eval_loader = accelerator.prepare(model, eval_loader)
model.eval()
for batch in eval_loader:
    with torch.no_grad():
        outputs = accelerator.unwrap_model(model).generate(**batch, synced_gpus=is_zero_3)  # every rank must take part"""
TRAIN = """\
for epoch in range(epochs):
    for batch in loader:
        with accelerator.accumulate(model):  # without it every backward() is followed by a step, whatever the accumulation is
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
