"""The lines that a training script needs for a Plan: who reads the configuration, who builds optimizer and scheduler, how to save.

Each block is Python as in a script, in runnable order; tests/long/test_printed_code.py runs it. What only the user can write is a function
that matches YOURS.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from dstui.base.text import sanitise
from dstui.plan import Plan
from dstui.render.code_of_accelerate import lines_for_accelerate
from dstui.render.code_of_deepspeed import lines_for_deepspeed, lines_for_lightning
from dstui.render.code_of_several import lines_for_several
from dstui.render.code_parts import peft, plan_uses_cpus, stage_of

YOURS = re.compile(r"\b(?:build_\w+|load_data|loss_of|schedule)\b")
"""Functions that the printed lines use and do not define. `schedule` maps a step to a factor of the learning rate."""


def render_code(plan: Plan, *, lightning: bool = False) -> str:
    """Return the lines, with comments on the purpose of each. `lightning`: those of a script that trains with Lightning alone."""
    name = sanitise(plan.job.script or plan.job.module or "the script")
    several = any(plan.configurations.keys())
    one = {"deepspeed": lines_for_deepspeed, "trainer": _trainer, "accelerate": lines_for_accelerate}
    blocks = lines_for_several if several else lines_for_lightning if lightning else one[plan.job.integration]
    text = "\n\n".join(blocks(plan))
    yours = ", ".join(dict.fromkeys(YOURS.findall(text)))
    return f"# What {name} needs for this Plan: lines to take over, not a whole script.\n# Your own functions: {yours}.\n\n{text}\n"


def _trainer(plan: Plan) -> Iterator[str]:
    if plan_uses_cpus(plan) and stage_of(plan, plan.deepspeed) == 3:
        yield ON_CPUS
    parsed = any("{ds_config}" in word for word in plan.job.args)
    yield TRAINER_PARSED if parsed else TRAINER_BUILT.replace("{more}", ", use_cpu=True" if plan_uses_cpus(plan) else "")
    yield TRAINER_MODEL
    yield from peft(plan)
    yield TRAINER_TRAIN


ON_CPUS = """\
import deepspeed

deepspeed.init_distributed()  # ranks without a GPU: before the arguments, which would split the model over one rank alone"""
TRAINER_PARSED = """\
from transformers import HfArgumentParser, Trainer, TrainingArguments

(args,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()  # --deepspeed comes from the command line"""
TRAINER_BUILT = """\
import os

from transformers import Trainer, TrainingArguments

args = TrainingArguments(output_dir="out", deepspeed=os.environ["DSTUI_DS_CONFIG"]{more})"""
TRAINER_MODEL = """\
# after the arguments: at stage 3 from_pretrained() then splits the model while it is loaded. One that is built before them needs
# transformers.integrations.HfDeepSpeedConfig(…) first, kept in a variable: without a name it is gone at once
model = build_model()
dataset = load_data()"""
TRAINER_TRAIN = """\
trainer = Trainer(model=model, args=args, train_dataset=dataset)
trainer.train(resume_from_checkpoint=False)  # True: from the newest checkpoint in output_dir
trainer.save_model()"""
