"""Recipes: valid on their machine, ordered from fast to large, and none without a benefit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from dstui.adopt.recipes import Script, recipes
from dstui.adopt.script import inspect_script
from dstui.check import PlanFacts, check_plan
from dstui.documents.training_script import script_named
from dstui.machine.snapshot import GIB, NOT_ASKED, Host, Machine
from dstui.plan import load
from dstui.render.target import Target
from tests import machines
from tests.adopt.plain_loops import FLAT

SCRIPTS = {
    "deepspeed": "import deepspeed\nparser = deepspeed.add_config_arguments(parser)\n",
    "trainer": "from transformers import TrainingArguments\n",
    "accelerate": "from accelerate import Accelerator\n",
    "torch": "import torch\n",
}


TRAIN = Script("train.py", inspect_script(""))


def machine(gpus: int, *, ram: int = 512, capability: str = "8.0") -> Machine:
    """Return a machine with GPUs of 80 GB, and host RAM in GB."""
    cards = machines.gpus(gpus, name="A100", compute_capability=capability)
    return machines.machine(*cards, host=Host(cpus_usable=2, memory_total=ram * GIB, memory_limit=None))


@pytest.mark.parametrize("gpus", [0, 1, 2, 8])
@pytest.mark.parametrize("kind", SCRIPTS)
def test_every_recipe_is_valid_on_its_machine(kind: str, gpus: int) -> None:
    here = machine(gpus)
    made = recipes(Script("src/train.py", inspect_script(SCRIPTS[kind])), here)
    assert made
    for recipe in made:
        plan = load(recipe.text)
        ranks = Target(plan, here).world_size
        assert ranks == (gpus or 2)
        assert [f.message for f in check_plan(Target(plan, here)) if f.severity == "error"] == []
        assert plan.name == "train"


@pytest.mark.parametrize("gpus", [0, 2])
def test_script_with_a_literal_configuration_gets_a_copy_of_it_first(gpus: int) -> None:
    text = "import deepspeed\nS = 3\ndeepspeed.initialize(config={'train_batch_size': 8, 'zero_optimization': {'stage': S}})\n"
    first, *others = recipes(Script("t.py", inspect_script(text)), machine(gpus))
    plan = load(first.text)
    assert dict(plan.deepspeed) == {"train_batch_size": 8, "zero_optimization": {"stage": 3}} and others
    assert "a copy of the script's own" in first.text


@pytest.mark.parametrize(
    ("name", "capability", "precision"),
    [
        ("NVIDIA A100-SXM4-80GB", None, "bf16"),
        ("NVIDIA RTX 6000 Ada Generation", None, "bf16"),
        ("Tesla V100-SXM2-32GB", None, "fp16"),
        ("NVIDIA GeForce RTX 2080 Ti", None, "fp16"),
        ("Tesla T4", None, "fp16"),
        ("Tesla T4", "8.0", "bf16"),
        ("NVIDIA A100-SXM4-80GB", "7.5", "fp16"),
    ],
)
def test_precision_follows_the_capability_or_the_name(name: str, capability: str | None, precision: str) -> None:
    known = {"compute_capability": capability or NOT_ASKED}
    host = Host(cpus_usable=2, memory_total=512 * GIB, memory_limit=None)
    here = machines.machine(*(replace(gpu, name=name, **known) for gpu in machines.gpus(2)), host=host)
    made = recipes(Script("train.py", inspect_script(SCRIPTS["deepspeed"])), here)
    assert made and all(f"{precision}: {{enabled: true}}" in recipe.text for recipe in made)


MODEL = "model = torch.nn.Linear(1, 1)\noptimizer = torch.optim.AdamW(model.parameters())\n"
ARGS = "import deepspeed, torch, argparse\nparser = deepspeed.add_config_arguments(argparse.ArgumentParser())\nargs = parser.parse_args()\n"
GLOO = "accelerator = Accelerator(kwargs_handlers=[InitProcessGroupKwargs(backend='gloo')])\n"
"""What accelerate needs on ranks without a GPU."""
BUILDS_ITS_OWN = {
    "accelerate": f"import torch\nfrom accelerate import Accelerator\nfrom accelerate.utils import InitProcessGroupKwargs\n{GLOO}{MODEL}accelerator.prepare(model, optimizer)\n",
    "deepspeed": f"{ARGS}{MODEL}engine, *_ = deepspeed.initialize(args=args, model=model, optimizer=optimizer)\n",
}


@pytest.mark.parametrize("gpus", [0, 1, 8])
@pytest.mark.parametrize("kind", BUILDS_ITS_OWN)
def test_recipe_for_a_script_with_its_own_optimizer_says_so_without_warnings(kind: str, gpus: int) -> None:
    here, facts = machine(gpus, ram=2048), inspect_script(BUILDS_ITS_OWN[kind])
    for recipe in recipes(Script("train.py", facts, has_optimizer=True), here):
        plan = load(recipe.text)
        assert plan.job.optimizer == "script"
        assert "optimizer" not in plan.deepspeed
        found = check_plan(Target(plan, here), PlanFacts(script=facts))
        assert [f.message for f in found if f.severity != "info"] == []


@pytest.mark.parametrize("gpus", [0, 1, 8])
def test_trainer_recipe_leaves_trainer_settings_to_its_arguments(gpus: int) -> None:
    text = (
        "from transformers import HfArgumentParser, TrainingArguments\nHfArgumentParser(TrainingArguments).parse_args_into_dataclasses()\n"
    )
    here, facts = machine(gpus, ram=2048), inspect_script(text)
    for recipe in recipes(Script("train.py", facts), here):
        plan = load(recipe.text)
        assert plan.job.args == ("--deepspeed", "{ds_config}", "--bf16", *(("--use_cpu",) if not gpus else ()))
        assert plan.get("deepspeed.bf16.enabled") == plan.get("deepspeed.gradient_clipping") == "auto" and "optimizer" not in plan.deepspeed
        found = check_plan(Target(plan, here), PlanFacts(script=facts))
        assert [f.message for f in found if f.severity != "info"] == []


@pytest.mark.parametrize("gpus", [0, 1, 8])
def test_trainer_arguments_built_in_the_script_find_the_configuration_in_the_environment(gpus: int) -> None:
    here, facts = (
        machine(gpus, ram=2048),
        inspect_script("from transformers import TrainingArguments\nTrainingArguments('out', use_cpu=True)\n"),
    )
    for recipe in recipes(Script("train.py", facts), here):
        plan = load(recipe.text)
        assert (plan.job.integration, plan.job.optimizer, plan.job.args) == ("accelerate", "script", ())
        found = check_plan(Target(plan, here), PlanFacts(script=facts))
        assert [f.message for f in found if f.severity != "info"] == []


def test_each_recipe_on_several_gpus_takes_a_larger_model() -> None:
    made = recipes(TRAIN, machine(8, ram=2048))
    assert [recipe.name for recipe in made] == ["ZeRO-1", "ZeRO-2", "ZeRO-3", "ZeRO-3, all in RAM"]
    assert made[2].says == "1.5x traffic; to 30B parameters"  # 0.7 x 80 GiB / (16 bytes / 8 GPUs)


def test_sharding_is_not_offered_on_one_gpu() -> None:
    made = recipes(TRAIN, machine(1))
    assert [recipe.name for recipe in made] == ["ZeRO-1", "ZeRO-2, optimizer in RAM", "ZeRO-3, all in RAM"]


def test_offload_is_not_offered_with_little_host_memory() -> None:
    assert not any("RAM" in recipe.name for recipe in recipes(TRAIN, machine(8, ram=64)))


def test_gpu_without_bf16_gets_fp16() -> None:
    made = recipes(TRAIN, machine(1, capability="7.0"))
    assert load(made[0].text).get("deepspeed.fp16.enabled") is True


def test_optimizer_is_left_to_a_script_that_has_one() -> None:
    made = recipes(replace(TRAIN, has_optimizer=True), machine(1))
    assert load(made[0].text).get("deepspeed.optimizer") is None


def test_recipe_for_a_plain_loop_allows_an_optimizer_that_deepspeed_has_not_tested(tmp_path: Path) -> None:
    for kind, allowed in (("AdamW", None), ("SGD", True)):
        (tmp_path / "train.py").write_text(FLAT.replace("AdamW", kind))
        for recipe in recipes(script_named(str(tmp_path / "train.py"), FLAT.replace("AdamW", kind)), machine(0)):
            assert load(recipe.text).get("deepspeed.zero_allow_untested_optimizer") is allowed
