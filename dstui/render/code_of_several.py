"""The lines that a training script needs for several models: a configuration for each, and who is prepared with which."""

from __future__ import annotations

from collections.abc import Iterator

from dstui.plan import Plan


def lines_for_several(plan: Plan) -> Iterator[str]:
    """The blocks, for accelerate or for DeepSpeed itself; the Trainer trains one model, and leaves the others to the script."""
    if plan.job.integration == "accelerate":
        yield from _accelerate(plan)
    else:
        yield from _deepspeed(plan)


def _roles(plan: Plan) -> tuple[list[str], list[str]]:
    """The names of the models that are trained, and of those that only compute."""
    names = [name for name in plan.configurations if name]
    return [n for n in names if plan.models[n].role == "train"], [n for n in names if plan.models[n].role == "inference"]


WHERE = "# dstui tells every rank where they are; an argument gets the same path by {ds_config:NAME}"


def _configurations(plan: Plan) -> str:
    """Where the script finds the file of each model."""
    each = [f'    "{name}": os.environ["DSTUI_DS_CONFIG_{name.upper()}"],' for name in plan.configurations if name]
    return "\n".join(["import os", "", WHERE, "configs = {", *each, "}"])


def _computed(inference: list[str], batch: str) -> list[str]:
    """The forward passes without gradients, in the loop."""
    each = [f"        {name}_outputs = {name}({batch})  # every rank must take part" for name in inference]
    return ["    with torch.no_grad():", *each] if each else []


# -- accelerate


def _accelerate(plan: Plan) -> Iterator[str]:
    trained, inference = _roles(plan)
    yield _configurations(plan)
    yield PLUGINS
    for number, name in enumerate(trained):
        yield _prepared_to_train(name, number)
    for name in inference:
        yield PREPARE_INFERENCE.replace("NAME", name)
    yield _loop(trained, inference)
    yield "\n".join([SAVE, *(f'{name}.save_checkpoint("checkpoints/{name}")' for name in trained)])


PLUGINS = """\
from accelerate import Accelerator
from accelerate.utils import DeepSpeedPlugin

# all plugins go to the first Accelerator; each is used for the models that are built and prepared while it is selected
plugins = {name: DeepSpeedPlugin(hf_ds_config=config) for name, config in configs.items()}
accelerator = Accelerator(deepspeed_plugins=plugins)
# on CPU ranks: Accelerator(deepspeed_plugins=plugins, kwargs_handlers=[InitProcessGroupKwargs(backend="gloo")]), from accelerate.utils"""
PREPARE_INFERENCE = """\
# NAME only computes: no optimizer, and no loader either
accelerator.state.select_deepspeed_plugin("NAME")  # from_pretrained() now splits the model as this plugin says
# a model of your own is split by: with deepspeed.zero.Init(config_dict_or_path=accelerator.deepspeed_plugin.deepspeed_config):
NAME = build_NAME()
NAME = accelerator.prepare(NAME)
NAME.eval()"""
SAVE = """\
# every rank, each engine by itself: accelerator.save_state() and get_state_dict() follow the model that was prepared last"""


def _prepared_to_train(name: str, number: int) -> str:
    lines = [f"# {name} is trained"]
    owner = "accelerator" if number == 0 else f"accelerator_{name}"
    if number:
        lines.append(f"{owner} = Accelerator()  # one for each engine, without arguments: it knows the plugins; backward() goes to its own")
    lines += [f'{owner}.state.select_deepspeed_plugin("{name}")', f"{name} = build_{name}()"]
    lines.append(f"{name}_optimizer = torch.optim.AdamW({name}.parameters(), lr=1e-4)  # DummyOptim(…) where its configuration has one")
    objects = f"{name}, {name}_optimizer" + (", loader" if number == 0 else "")
    if number:
        lines.append("# no loader here: its train_micro_batch_size_per_gpu must be a number")
    lines.append(f"{objects} = {owner}.prepare({objects})")
    return "\n".join(lines)


def _loop(trained: list[str], inference: list[str]) -> str:
    lines = ["for batch in loader:", *_computed(inference, "**batch")]
    for number, name in enumerate(trained):
        owner = "accelerator" if number == 0 else f"accelerator_{name}"
        given = "".join(f", {other}_outputs" for other in inference)
        lines += [
            f"    {name}_loss = loss_of({name}(**batch){given})",
            f"    {owner}.backward({name}_loss)",
            f"    {name}_optimizer.step()",
            f"    {name}_optimizer.zero_grad()",
            f'    accelerator.print(f"{name}_loss {{{name}_loss.item():.4f}}")  # dstui plots it under this name',
        ]
    return "\n".join(lines)


# -- DeepSpeed itself


def _deepspeed(plan: Plan) -> Iterator[str]:
    trained, inference = _roles(plan)
    yield _configurations(plan)
    yield "import deepspeed\n\ndeepspeed.init_distributed()"
    for name in trained:
        yield "\n".join(
            [
                f"{name} = build_{name}()  # at stage 3 under deepspeed.zero.Init(config_dict_or_path=configs[{name!r}])".replace("'", '"'),
                f'{name}, *_ = deepspeed.initialize(model={name}, model_parameters={name}.parameters(), config=configs["{name}"])',
            ]
        )
    for name in inference:
        yield INITIALIZE_INFERENCE.replace("NAME", name)
    lines = ["for batch in loader:", *_computed(inference, "batch")]
    for name in trained:
        given = "".join(f", {other}_outputs" for other in inference)
        lines += [f"    {name}_loss = loss_of({name}(batch){given})", f"    {name}.backward({name}_loss)", f"    {name}.step()"]
    yield "\n".join(lines)


INITIALIZE_INFERENCE = """\
# NAME only computes: stage 3 without an optimizer
with deepspeed.zero.Init(config_dict_or_path=configs["NAME"]):
    NAME = build_NAME()
NAME, *_ = deepspeed.initialize(model=NAME, config=configs["NAME"])
NAME.eval()"""
