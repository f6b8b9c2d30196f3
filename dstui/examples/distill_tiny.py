"""Train a small GPT from a larger one that only computes: two models in one job, each with its own DeepSpeed configuration.

    accelerate launch --use_deepspeed --num_processes 2 --module dstui.examples.distill_tiny \\
    --student ds_config_student.json --teacher ds_config_teacher.json
The student is trained at ZeRO-2. The teacher only computes, at ZeRO-3, with its weights sharded over all ranks. For the example, the
teacher first learns the task itself, for `--lessons` steps on each rank alone.
"""

from __future__ import annotations

import argparse
import random

import deepspeed
import torch
from accelerate import Accelerator
from accelerate.utils import DeepSpeedPlugin, InitProcessGroupKwargs
from deepspeed.accelerator import get_accelerator
from torch.nn import functional
from torch.utils.data import DataLoader

from dstui.examples.train_tiny import TinyGPT, make_batch

SAMPLES, BATCH = 4096, 8


def taught(lessons: int) -> dict[str, torch.Tensor]:
    """Return the weights of a teacher after some training, the same on every rank."""
    torch.manual_seed(0)
    model, dice = TinyGPT(width=128, layers=3), random.Random(0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(lessons):
        model(make_batch(BATCH, dice)).backward()
        optimizer.step()
        optimizer.zero_grad()
    weights: dict[str, torch.Tensor] = model.state_dict()
    return weights


def sharded_teacher(config: dict[str, object], weights: dict[str, torch.Tensor]) -> TinyGPT:
    """Build the teacher partitioned over the ranks, so that no rank has all of it on its device."""
    with deepspeed.zero.Init(config_dict_or_path=config):
        model = TinyGPT(width=128, layers=3)
    for name, parameter in model.named_parameters():
        with deepspeed.zero.GatheredParameters(parameter, modifier_rank=0):
            if deepspeed.comm.get_rank() == 0:
                parameter.data.copy_(weights[name])
    return model


def main() -> None:
    """Train the student for the given number of steps and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--student", required=True, help="its ds_config.json")
    parser.add_argument("--teacher", required=True, help="its ds_config.json")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--lessons", type=int, default=60)
    parser.add_argument("--save", help="a folder for the student's checkpoint")
    args = parser.parse_args()

    on_cpu = get_accelerator().device_name() == "cpu"
    if on_cpu:
        # Use plain gloo: DeepSpeed would first compile its own CPU collectives, which takes a minute and a compiler.
        deepspeed.ops.__dict__.setdefault("__compatible_ops__", {})
    plugins = {"student": DeepSpeedPlugin(hf_ds_config=args.student), "teacher": DeepSpeedPlugin(hf_ds_config=args.teacher)}
    handlers = [InitProcessGroupKwargs(backend="gloo")] if on_cpu else []  # accelerate chooses no backend for CPU ranks by itself
    accelerator = Accelerator(deepspeed_plugins=plugins, kwargs_handlers=handlers)  # the first plugin is active

    torch.manual_seed(1)
    student = TinyGPT(width=64, layers=1)
    optimizer = torch.optim.AdamW(student.parameters(), lr=2e-3)
    dice = random.Random(accelerator.process_index)
    loader = DataLoader([make_batch(1, dice)[0] for _ in range(SAMPLES // 8)], batch_size=BATCH)
    student, optimizer, loader = accelerator.prepare(student, optimizer, loader)

    accelerator.state.select_deepspeed_plugin("teacher")
    teacher = accelerator.prepare(sharded_teacher(accelerator.deepspeed_plugin.deepspeed_config, taught(args.lessons)))
    teacher.eval()
    # accelerate has one number for all models, and used that of the last one
    accelerator.gradient_accumulation_steps = plugins["student"].get_value("gradient_accumulation_steps")
    accelerator.print(f"teacher {type(teacher.optimizer).__name__}, student {type(student.optimizer).__name__}", flush=True)

    step = 0
    while step < args.steps:
        for batch in loader:  # on the rank's own device
            step += 1
            with torch.no_grad():  # all ranks take part: each holds a part of the teacher
                wanted = teacher(batch, logits=True).float()
            with accelerator.accumulate(student):
                given = student(batch, logits=True).float()
                loss = functional.cross_entropy(given.flatten(0, 1), batch[:, 1:].flatten())
                distance = functional.kl_div(given.log_softmax(-1), wanted.softmax(-1), reduction="sum") / given[..., 0].numel()
                accelerator.backward(loss + distance)
                optimizer.step()
                optimizer.zero_grad()
            asked = functional.cross_entropy(wanted.flatten(0, 1), batch[:, 1:].flatten())
            line = f"step {step}/{args.steps} student_loss {loss.item():.4f} teacher_loss {asked.item():.4f} kl {distance.item():.4f}"
            print(line, flush=True)
            if step == args.steps:
                break
    if args.save:  # by its own engine: accelerator.save_state() would also save the teacher and fail
        student.save_checkpoint(args.save)
    accelerator.end_training()


if __name__ == "__main__":
    main()
