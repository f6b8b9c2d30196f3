"""The lines that a training script needs for a Plan: who reads the configuration, who builds optimizer and scheduler, how to save.

Each block is Python as in a script, in runnable order; tests/long/test_printed_code.py runs it. What only the user can write is a function
that matches YOURS.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from dstui.base.text import sanitise
from dstui.plan import Plan
from dstui.render.code_of_accelerate import FIRST, accelerator_block, lines_for_accelerate
from dstui.render.code_of_deepspeed import initialize_block, lines_for_deepspeed, lines_for_lightning
from dstui.render.code_parts import EPOCHS, accelerate_builds, data, dummies, peft, plan_uses_cpus, stage_of

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


def lines_for_several(plan: Plan) -> Iterator[str]:
    """Yield the blocks of lines for accelerate or DeepSpeed. The Trainer trains one model and leaves the others to the script."""
    if plan.job.integration == "accelerate":
        yield from _accelerate(plan)
    else:
        yield from _deepspeed(plan)


def _roles(plan: Plan) -> tuple[list[str], list[str]]:
    """Return the names of the trained models and of the inference models."""
    names = [name for name in plan.configurations if name]
    return [n for n in names if plan.models[n].role == "train"], [n for n in names if plan.models[n].role == "inference"]


WHERE = "# dstui tells every rank where they are; an argument gets the same path by {ds_config:NAME}"


def _configurations(plan: Plan) -> str:
    """Return the lines that find the file of each model."""
    each = [f'    "{name}": os.environ["DSTUI_DS_CONFIG_{name.upper()}"],' for name in plan.configurations if name]
    return "\n".join(["import os", "", WHERE, "configs = {", *each, "}"])


def _computed(inference: list[str], batch: str) -> list[str]:
    """Return the lines of the forward passes without gradients in the loop."""
    each = [f"        {name}_outputs = {name}({batch})  # every rank must take part" for name in inference]
    return ["    with torch.no_grad():", *each] if each else []


# Accelerate


def _accelerate(plan: Plan) -> Iterator[str]:
    trained, inference = _roles(plan)
    yield _configurations(plan)
    utils = {"DeepSpeedPlugin"} | dummies(plan.configurations[name] for name in trained)
    yield accelerator_block(plan, utils, "deepspeed_plugins=plugins").replace("\n\n", f"\n\n{PLUGINS}\n", 1)
    if trained:
        yield FIRST + f"{data(plan.configurations[trained[0]])}\n{EPOCHS}"
    for number, name in enumerate(trained):
        yield _prepared_to_train(plan, name, number)
    for name in inference:
        yield PREPARE_INFERENCE.replace("NAME", name)
    if trained:
        yield ACCUMULATION.replace("NAME", trained[0])
        yield _loop(trained, inference)
        yield "\n".join([SAVE, *(f'{name}.save_checkpoint("checkpoints/{name}")' for name in trained)])


PLUGINS = """\
# all plugins go to the first Accelerator; each is used for the models that are built and prepared while it is selected
plugins = {name: DeepSpeedPlugin(hf_ds_config=config) for name, config in configs.items()}"""
PREPARE_INFERENCE = """\
# NAME only computes: no optimizer, and no loader either
accelerator.state.select_deepspeed_plugin("NAME")  # from_pretrained() now splits the model as this plugin says
# a model of your own is split by: with deepspeed.zero.Init(config_dict_or_path=accelerator.deepspeed_plugin.deepspeed_config):
NAME = build_NAME()
NAME = accelerator.prepare(NAME)
NAME.eval()"""
ACCUMULATION = """\
# accelerate has one number for all models, and took that of the last one
accelerator.gradient_accumulation_steps = plugins["NAME"].get_value("gradient_accumulation_steps")"""
SAVE = """\
# every rank, each engine by itself: accelerator.save_state() and get_state_dict() follow the model that was prepared last"""


def _owner(name: str, number: int) -> str:
    """Return the name of the Accelerator of a trained model, by its place among them."""
    return f"accelerator_{name}" if number else "accelerator"


def _prepared_to_train(plan: Plan, name: str, number: int) -> str:
    lines, owner = [f"# {name} is trained"], _owner(name, number)
    if number:
        lines.append(f"{owner} = Accelerator()  # one for each engine, without arguments: it knows the plugins; backward() goes to its own")
    lines += [f'{owner}.state.select_deepspeed_plugin("{name}")', f"{name} = build_{name}()"]
    lines += accelerate_builds(plan.configurations[name], owner, name, loader=number == 0)
    return "\n".join(lines)


def _loop(trained: list[str], inference: list[str]) -> str:
    lines = ["for batch in loader:", *_computed(inference, "**batch")]
    for number, name in enumerate(trained):
        owner = _owner(name, number)
        given = "".join(f", {other}_outputs" for other in inference)
        lines += [
            f"    with {owner}.accumulate({name}):  # without it every backward() is followed by a step",
            f"        {name}_loss = loss_of({name}(**batch){given})",
            f"        {owner}.backward({name}_loss)",
            f"        {name}_optimizer.step()",
            f"        {name}_scheduler.step()",
            f"        {name}_optimizer.zero_grad()",
            f'    accelerator.print(f"{name}_loss {{{name}_loss.item():.4f}}")  # dstui plots it under this name',
        ]
    return "\n".join(["for _epoch in range(epochs):", *(f"    {line}" for line in lines)])


# DeepSpeed


def _deepspeed(plan: Plan) -> Iterator[str]:
    trained, inference = _roles(plan)
    yield _configurations(plan)
    yield "import deepspeed\nimport torch\n\ndeepspeed.init_distributed()\ndataset = load_data()"
    for number, name in enumerate(trained):
        config = plan.configurations[name]
        build, split = f"{name} = build_{name}()", f'with deepspeed.zero.Init(config_dict_or_path=configs["{name}"]):\n    '
        yield "\n".join([(split if stage_of(plan, config) == 3 else "") + build, initialize_block(plan, config, name, data=number == 0)])
    for name in inference:
        yield INITIALIZE_INFERENCE.replace("NAME", name)
    if not trained:
        return
    lines = ["for batch in loader:", *_computed(inference, "batch")]
    for name in trained:
        given = "".join(f", {other}_outputs" for other in inference)
        lines += [f"    {name}_loss = loss_of({name}(batch){given})", f"    {name}.backward({name}_loss)", f"    {name}.step()"]
    yield "\n".join([*lines, *(f'{name}.save_checkpoint("checkpoints/{name}")' for name in trained)])


INITIALIZE_INFERENCE = """\
# NAME only computes: stage 3 without an optimizer
with deepspeed.zero.Init(config_dict_or_path=configs["NAME"]):
    NAME = build_NAME()
NAME, *_ = deepspeed.initialize(model=NAME, config=configs["NAME"])
NAME.eval()"""
