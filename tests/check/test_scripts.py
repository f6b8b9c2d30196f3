"""Inspection of the script: the missing argument is offered as one fix, and what the script reads itself is not reported."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dstui.adopt.script import ScriptFacts
from dstui.check import PlanFacts, check_plan
from dstui.documents.training_script import script_facts_of
from dstui.plan import Plan, load
from dstui.render.target import Target

PLAN = (
    "version: 1\njob: {script: train.py, args: [--epochs, '3']}\ndeepspeed: {train_micro_batch_size_per_gpu: 1, gradient_clipping: 1.0}\n"
)


def findings_of(folder: Path, script: str | None) -> tuple[Plan, dict[str, object]]:
    """Return the Plan, and its findings about the job by path."""
    if script is not None:
        (folder / "train.py").write_text(script)
    plan = load(PLAN, base=str(folder))
    return plan, {
        f.path: f for f in check_plan(Target(plan), PlanFacts(script=script_facts_of(plan)), world_size=1) if f.path.startswith("job")
    }


def test_argument_that_the_script_accepts_is_offered(tmp_path: Path) -> None:
    plan, found = findings_of(tmp_path, "parser.add_argument('--ds_config')\n")
    fixed = plan.patch(found["job.args"].fix.patch)
    assert fixed.job.args == ("--epochs", "3", "--ds_config", "{ds_config}")


def test_script_that_reads_the_environment_needs_no_argument(tmp_path: Path) -> None:
    _, found = findings_of(tmp_path, "import os, deepspeed\ndeepspeed.initialize(config=os.environ['DSTUI_DS_CONFIG'])\n")
    assert found == {}


def test_script_with_its_own_configuration_differs_from_one_without_argument(tmp_path: Path) -> None:
    _, found = findings_of(tmp_path, "import deepspeed\nCONFIG = {'train_batch_size': 8}\ndeepspeed.initialize(config=CONFIG)\n")
    finding = found["job.args"]
    assert "line 3: deepspeed.initialize(config=…), with its own configuration" in finding.message
    assert finding.fix and finding.fix.patch is None and 'os.environ["DSTUI_DS_CONFIG"]' in finding.fix.text


def test_trainer_without_argument_is_offered_accelerates_environment(tmp_path: Path) -> None:
    text = "from transformers import Trainer, TrainingArguments\nTrainer(model, TrainingArguments('out')).train()\n"
    plan = findings_of(tmp_path, text)[0].set("job.integration", "trainer")
    finding = next(f for f in check_plan(Target(plan), PlanFacts(script=script_facts_of(plan)), world_size=2) if f.code == "PL001")
    after = plan.patch(finding.fix.patch)
    assert (after.job.integration, after.job.optimizer) == ("accelerate", "script")
    assert not {"PL001", "PL023"} & {f.code for f in check_plan(Target(after), PlanFacts(script=script_facts_of(after)), world_size=2)}


def test_accelerate_script_that_builds_its_optimizer_is_decided_by_the_plan(tmp_path: Path) -> None:
    text = "import torch\nfrom accelerate import Accelerator\noptimizer = torch.optim.AdamW(model.parameters())\n"
    plan, found = findings_of(tmp_path, text)
    plan = plan.patch(found["job.integration"].fix.patch)
    both = plan.set("deepspeed.optimizer", {"type": "AdamW", "params": {"lr": 1e-4}})
    for before, optimizer in ((plan, None), (both, None)):
        finding = next(f for f in check_plan(Target(before), PlanFacts(script=script_facts_of(plan)), world_size=1) if f.code == "PL025")
        assert "line 3: torch.optim.AdamW" in finding.message
        after = before.patch(finding.fix.patch)
        assert (after.job.optimizer, after.get("deepspeed.optimizer")) == ("script", optimizer)
        codes = {f.code for f in check_plan(Target(after), PlanFacts(script=script_facts_of(plan)), world_size=1)}
        assert not codes & {"PL025", "DS326", "DS327", "DS075"}


def test_integration_that_differs_from_the_scripts_is_reported_with_line_and_fix(tmp_path: Path) -> None:
    plan, found = findings_of(tmp_path, "import x\nfrom accelerate import Accelerator\n")
    finding = found["job.integration"]
    assert "line 2" in finding.message
    assert plan.patch(finding.fix.patch).job.integration == "accelerate"


def test_missing_script_is_reported_before_launch(tmp_path: Path) -> None:
    _, found = findings_of(tmp_path, None)
    assert "train.py is not in" in found["job.script"].message


def test_script_in_a_folder_that_is_not_known_yet_is_not_missing(tmp_path: Path) -> None:
    plan = load(PLAN, base=str(tmp_path)).set("job.workdir", "${CODE}")
    codes = {f.code for f in check_plan(Target(plan), PlanFacts(script=script_facts_of(plan)), world_size=1)}
    assert "PL070" in codes and "PL022" not in codes


def test_script_with_its_own_plugins_needs_no_deepspeed_section(tmp_path: Path) -> None:
    plugins = "from accelerate import Accelerator\nfrom accelerate.utils import DeepSpeedPlugin\n"
    plugins += "Accelerator(deepspeed_plugins={'a': DeepSpeedPlugin(hf_ds_config={'zero_optimization': {'stage': 2}})})\n"
    (tmp_path / "train.py").write_text(plugins)
    plan = load("version: 1\njob: {script: train.py, integration: accelerate}\n", base=str(tmp_path))
    (told,) = check_plan(Target(plan), PlanFacts(script=script_facts_of(plan)), world_size=2)
    assert (told.code, told.severity) == ("PL028", "info") and "nothing of it is checked here" in told.message
    (tmp_path / "train.py").write_text("from accelerate import Accelerator\nAccelerator()\n")
    assert "DS320" in {f.code for f in check_plan(Target(plan), PlanFacts(script=script_facts_of(plan)), world_size=2)}


@pytest.mark.parametrize(("text", "said"), [("import jax\n", "it uses jax"), ("from composer import Trainer\n", "no use of deepspeed")])
def test_script_without_deepspeed_gets_no_argument_it_may_refuse(tmp_path: Path, text: str, said: str) -> None:
    _, found = findings_of(tmp_path, text)
    finding = found["job.script"]
    assert finding.code == "PL001" and said in finding.message and finding.fix is not None and finding.fix.patch is None


@pytest.mark.parametrize("packages", ["mine", "src/mine"])
def test_imports_from_the_top_of_the_project_are_read(tmp_path: Path, packages: str) -> None:
    scripts, package = tmp_path / "examples" / "one", tmp_path / packages
    scripts.mkdir(parents=True)
    package.mkdir(parents=True)
    (tmp_path / "pyproject.toml").touch()
    (scripts / "train.py").write_text("from mine.loop import train\ntrain()\n")
    (package / "loop.py").write_text("import deepspeed\nengine = deepspeed.initialize(config=os.environ['DSTUI_DS_CONFIG'])\n")
    facts = script_facts_of(load(PLAN, base=str(scripts)))
    assert isinstance(facts, ScriptFacts) and facts.why.startswith("line 2 of mine/loop.py: ")


def test_script_outside_a_project_finds_only_its_own_package(tmp_path: Path) -> None:
    inner = tmp_path / "mine" / "cli"
    inner.mkdir(parents=True)
    (tmp_path / "utils.py").write_text("import deepspeed\ndeepspeed.initialize(config=os.environ['DSTUI_DS_CONFIG'])\n")
    (tmp_path / "mine" / "loop.py").write_text("from accelerate import Accelerator\nAccelerator()\n")
    (inner / "train.py").write_text("import utils\nfrom mine.loop import train\n")
    facts = script_facts_of(load(PLAN, base=str(inner)))
    assert isinstance(facts, ScriptFacts) and facts.integration == "accelerate"
    (inner / "train.py").write_text("import utils\n")
    facts = script_facts_of(load(PLAN, base=str(inner)))
    assert isinstance(facts, ScriptFacts) and "line 1 imports utils, which was not read" in facts.why


PLAIN = "import torch\noptimizer = torch.optim.SGD(model.parameters(), 1)\nloss.backward()\noptimizer.step()\n"


@pytest.mark.parametrize(
    ("more", "severity"),
    [
        ("", "error"),
        ("import subprocess\nsubprocess.run(['git', 'rev-parse', 'HEAD'])\n", "error"),
        ("import helpers\n", "error"),
        ("import torch.distributed as dist\ndist.all_gather_object(found, scores)\n", "error"),
        ("from accelerate.utils import set_seed\nset_seed(0)\n", "error"),
        ("import pytorch_lightning as L\nL.Trainer.from_argparse_args(args).fit(model)\n", "warning"),
        ("import importlib\nimportlib.import_module(name)\n", "warning"),
        ("import runpy\nrunpy.run_path(name)\n", "warning"),
        ("import subprocess\nsubprocess.run(command)\n", "warning"),
        ("import an_engine_that_nobody_knows\n", "error"),
        ("import an_engine_that_nobody_knows as wheel\noptimizer = wheel.setup(model)\n", "warning"),
        ("from an_engine_that_nobody_knows import setup\nmodel, optimizer = setup(model)\n", "warning"),
        ("import an_engine_that_nobody_knows\nparser.add_argument('--deepspeed')\n", "warning"),
        ("from .missing import something\n", "warning"),
        ("import not_python\n", "warning"),
        ("from torch.nn.parallel import DistributedDataParallel\nmodel = DistributedDataParallel(model)\n", "warning"),
        ("import engine\n", None),
        ("from pkg.sub import setup\n", None),
    ],
)
def test_plain_loop_is_an_error_if_certain(tmp_path: Path, more: str, severity: str | None) -> None:
    (tmp_path / "helpers.py").write_text("import math\n")
    (tmp_path / "not_python.py").write_text("print 'python 2'\n")
    (tmp_path / "engine.py").write_text("import deepspeed\ndeepspeed.initialize(config={})\n")
    (tmp_path / "pkg" / "sub").mkdir(parents=True)
    (tmp_path / "pkg" / "sub" / "__init__.py").write_text("from ..wheel import setup\n")
    (tmp_path / "pkg" / "wheel.py").write_text("import deepspeed\nsetup = lambda m: deepspeed.initialize(model=m, config={})\n")
    (tmp_path / "train.py").write_text(more + PLAIN)
    plan = load(PLAN, base=str(tmp_path))
    found = {f.code: f for f in check_plan(Target(plan), PlanFacts(script=script_facts_of(plan)), world_size=2)}
    assert (found["PL027"].severity if "PL027" in found else None) == severity
    assert "PL027" not in found or "PL001" not in found  # PL001 would offer an argument that nobody reads
    if severity == "error":
        line = more.count("\n") + 3
        assert found["PL027"].message == (
            f"train.py never calls deepspeed.initialize: each rank would train alone (line {line}: loss.backward())"
        )
    elif severity is None:
        assert "line" in found["PL001"].message and ".py" in found["PL001"].message


@pytest.mark.parametrize(
    ("head", "given", "severity"),
    [
        ("import lightning as L", "", "error"),
        ("import pytorch_lightning as L", "devices=2", "error"),
        ("import lightning as L", 'strategy="ddp"', "error"),
        ("import lightning as L", "strategy=strategy", "warning"),
        ("import lightning as L", "**options", "warning"),
        ("import lightning as L", 'strategy="deepspeed_stage_2"', None),
        ("import lightning as L\nfrom lightning.pytorch.strategies import DeepSpeedStrategy", "strategy=DeepSpeedStrategy(config=c)", None),
    ],
)
def test_lightning_without_its_deepspeed_strategy_is_reported(tmp_path: Path, head: str, given: str, severity: str | None) -> None:
    (tmp_path / "train.py").write_text(f"{head}\ntrainer = L.Trainer({given})\ntrainer.fit(model)\n")
    plan = load(PLAN, base=str(tmp_path))
    found = {f.code: f for f in check_plan(Target(plan), PlanFacts(script=script_facts_of(plan)), world_size=2)}
    assert (found["PL027"].severity if "PL027" in found else None) == severity
    assert severity is None or "never calls DeepSpeedStrategy: Lightning would train without DeepSpeed" in found["PL027"].message
    assert severity != "error" or "(line 2: Lightning's Trainer)" in found["PL027"].message


def test_changed_module_is_inspected_again(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import engine\n" + PLAIN)
    plan = load(PLAN, base=str(tmp_path))
    severities = []
    for text in ("import deepspeed\ndeepspeed.initialize(config={})\n", "import math\n"):
        (tmp_path / "engine.py").write_text(text)
        severities.append(
            [f.severity for f in check_plan(Target(plan), PlanFacts(script=script_facts_of(plan)), world_size=2) if f.code == "PL027"]
        )
    assert severities == [[], ["error"]]


def test_plan_without_deepspeed_launches_a_plain_script_unchanged(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(PLAIN)
    plan = load("version: 1\njob: {script: train.py}\n", base=str(tmp_path))
    found = {f.code: f.severity for f in check_plan(Target(plan), PlanFacts(script=script_facts_of(plan)), world_size=2)}
    assert found["PL027"] == "warning" and "error" not in found.values() and "DS001" not in found


def test_folder_with_many_scripts_is_listed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(20):
        (tmp_path / f"train{number}.py").write_text("import helpers\n" + PLAIN)
    listed = list[str]()
    scandir = os.scandir
    monkeypatch.setattr(os, "scandir", lambda path: listed.append(str(path)) or scandir(path))
    for number in range(20):
        assert script_facts_of(load(PLAN.replace("train.py", f"train{number}.py"), base=str(tmp_path))) is not None
    assert listed.count(str(tmp_path)) == 1
