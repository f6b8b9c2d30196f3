"""What dstui's texts claim about DeepSpeed and accelerate, compared with these programs."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from pathlib import Path

import pytest

from dstui.check import PlanFacts, check_config, check_plan
from dstui.check.accelerate import check_accelerate
from dstui.commands.ask_reference import ask
from dstui.commands.checked_file import Asked, CheckedFile, check_file
from dstui.documents.training_script import script_facts_of
from dstui.plan import load
from dstui.plan.finding import Finding
from dstui.render.code import render_code
from dstui.render.target import Target
from tests import releases

ZENFLOW = {
    "train_batch_size": 2,
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}},
    "zero_optimization": {
        "stage": 2,
        "offload_optimizer": {"device": "cpu"},
        "zenflow": {"topk_ratio": 0.1, "select_strategy": "auto", "select_interval": "auto", "update_interval": "auto"},
    },
}
LAUNCH = """\
import json, sys
sys.path.insert(0, sys.argv[1])
from accelerate.commands.launch import launch_command_parser
from accelerate.utils.launch import prepare_deepspeed_cmd_env
words = "--use_deepspeed --num_processes 4 --num_machines 2 --main_process_ip 10.0.0.1 --main_process_port 0 --machine_rank 1 --mixed_precision no".split()
words += "--deepspeed_hostfile hosts --deepspeed_multinode_launcher openmpi --offload_optimizer_device CPU".split()
told = []
for more in ([], ["--deepspeed_exclusion_filter", "h1:0"]):
    args = launch_command_parser().parse_args([*words, *more, "t.py"])
    args.dynamo_backend, args.debug, args.deepspeed_fields_from_accelerate_config = "no", False, ""
    command, environment = prepare_deepspeed_cmd_env(args)
    told.append([command, environment["ACCELERATE_DEEPSPEED_OFFLOAD_OPTIMIZER_DEVICE"]])
print(json.dumps(told))
"""


def output_of(program: str, *words: str, folder: Path | None = None) -> str:
    """Return the output of a program that imports DeepSpeed or accelerate."""
    command = [sys.executable, "-c", "# asks DeepSpeed\n" + program, *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, cwd=folder, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
    return done.stdout


def test_accelerate_lowercases_devices_and_adds_num_gpus_only_without_a_filter() -> None:
    (plain, device), (filtered, _) = json.loads(output_of(LAUNCH, str(releases.accelerate())).splitlines()[-1])
    assert device == "cpu"
    assert "--num_gpus" in plain and "--exclude" in filtered and "--num_gpus" not in filtered
    inner = {"zero_stage": 2, "deepspeed_multinode_launcher": "openmpi", "deepspeed_hostfile": "hosts"}
    said = []
    for more in ({}, {"deepspeed_exclusion_filter": "h1:0"}):
        config = {"distributed_type": "DEEPSPEED", "num_machines": 2, "num_processes": 4, "deepspeed_config": {**inner, **more}}
        said += [f.why for f in check_accelerate(config) if f.code == "AC021"]
    assert "--num_gpus" in said[0] and "worker include/exclusion" in said[1]


def test_launcher_unknown_to_deepspeed_is_an_error_in_its_words() -> None:
    inner = {"zero_stage": 2, "deepspeed_multinode_launcher": "foo", "deepspeed_hostfile": "hosts"}
    config = {"distributed_type": "DEEPSPEED", "num_machines": 2, "num_processes": 4, "main_process_ip": "a", "deepspeed_config": inner}
    finding = next(f for f in check_accelerate(config) if f.code == "AC021")
    assert (finding.severity, finding.when) == ("error", "launch")
    assert "Unknown launcher" in finding.why and "Unknown launcher" in output_of(
        "import inspect, deepspeed.launcher.runner as r; print(inspect.getsource(r))"
    )


def test_auto_in_zenflow_is_deepspeeds(tmp_path: Path) -> None:
    (tmp_path / "z.json").write_text(json.dumps(ZENFLOW))
    checked = check_file(tmp_path / "z.json", Asked(world_size=2))
    verdicts = ask([checked], "parse")
    assert checked.integration == "deepspeed" and all(one["ok"] for one in verdicts.values())
    assert not [f for f in checked.findings if f.severity != "info"], checked.findings


def test_parser_that_accepts_what_a_rule_refuses_is_reported_as_a_defect(tmp_path: Path) -> None:
    wrong = Finding("DS019", "error", "train_batch_size", "it is made up", when="parse")
    checked = CheckedFile("x.json", "ds_config", configs={"": {"train_batch_size": 2}}, integration="deepspeed", findings=[wrong])
    ask([checked], "parse")
    said = [f.message for f in checked.findings if f.code == "ORACLE"]
    assert len(said) == 1 and "own parser accepts this configuration: please report DS019" in said[0]


def test_deepcompile_does_not_split_sequences_above_stage_1() -> None:
    program = """
from types import SimpleNamespace
from deepspeed.runtime.engine import DeepSpeedEngine
for stage in (2, 3):
    engine = SimpleNamespace(compile_autosp=lambda: True, zero_optimization_stage=lambda stage=stage: stage)
    print(DeepSpeedEngine.get_autosp_backend(engine, {}))
"""
    assert output_of(program).split()[-2:] == ["None", "None"]
    config = {"train_batch_size": 2, "compile": {"deepcompile": True, "passes": ["autosp"]}, "zero_optimization": {"stage": 3}}
    assert "DS224" in {f.code for f in check_config(config, world_size=2)}


@pytest.mark.parametrize(("key", "value"), [("loss_scale", "a"), ("min_loss_scale", "x"), ("loss_scale", -1)])
def test_value_is_reported_once_and_quotations_are_closed(key: str, value: object) -> None:
    found = [f for f in check_config({"train_batch_size": 2, "fp16": {"enabled": True, key: value}}) if f.path == f"fp16.{key}"]
    assert len(found) == 1 and not found[0].why.endswith(" be")


TRAINER = "from transformers import Trainer, TrainingArguments\nargs = TrainingArguments(output_dir='out')\nTrainer(args=args).train()\n"
SEVERAL = """version: 1
job: {script: t.py, integration: INTEGRATION}
models:
  student: {deepspeed: {train_micro_batch_size_per_gpu: 1, optimizer: {type: AdamW}, zero_optimization: {stage: 2}}}
  teacher: {role: inference, deepspeed: {train_micro_batch_size_per_gpu: 1, zero_optimization: {stage: 3}}}
"""


def codes(folder: Path, plan: str, script: str) -> dict[str, Finding]:
    (folder / "t.py").write_text(script)
    loaded = load(plan, base=str(folder))
    return {f.code: f for f in check_plan(Target(loaded), PlanFacts(script=script_facts_of(loaded)), world_size=2)}


def test_trainer_under_accelerate_needs_no_argument(tmp_path: Path) -> None:
    plan = "version: 1\njob: {script: t.py, integration: accelerate}\ndeepspeed: {zero_optimization: {stage: 2}}\n"
    assert not {"PL001", "PL023"} & set(codes(tmp_path, plan, TRAINER))
    own = TRAINER.replace("'out'", "'out', deepspeed={'zero_optimization': {'stage': 3}}")
    assert "PL001" in codes(tmp_path, plan, own)


@pytest.mark.parametrize("integration", ["accelerate", "deepspeed"])
def test_printed_code_for_several_models_reads_their_configurations(integration: str, tmp_path: Path) -> None:
    plan = SEVERAL.replace("INTEGRATION", integration)
    assert not {"PL001", "PL023", "DS338"} & set(codes(tmp_path, plan, render_code(load(plan))))


def test_unread_empty_section_is_no_error(tmp_path: Path) -> None:
    for integration in ("deepspeed", "trainer"):
        found = codes(tmp_path, f"version: 1\njob: {{script: t.py, integration: {integration}}}\n", "import mine\nmine.train()\n")
        assert not [f for f in found.values() if f.severity == "error"] and "nothing passes it" in found["DS001"].message
    handed = "version: 1\njob: {script: t.py, args: ['{ds_config}']}\n"
    assert codes(tmp_path, handed, "import mine\n")["DS001"].when == "parse"


PREPARES = """
import torch
from accelerate import Accelerator
from accelerate.utils import DummyOptim, DummyScheduler
accelerator = Accelerator()
model = torch.nn.Linear(2, 2)
optimizer = OPTIMIZER
scheduler = SCHEDULER
model, optimizer, scheduler = accelerator.prepare(model, optimizer, scheduler)
"""
OPTIMIZERS = {"real": "torch.optim.AdamW(model.parameters())", "dummy": "DummyOptim(model.parameters())"}
SCHEDULERS = {
    "real": "torch.optim.lr_scheduler.LambdaLR(optimizer if isinstance(optimizer, torch.optim.Optimizer) else other, lambda step: 1)",
    "dummy": "DummyScheduler(optimizer)",
    "function": "DummyScheduler(optimizer, lr_scheduler_callable=lambda made: torch.optim.lr_scheduler.LambdaLR(made, lambda step: 1))",
}
PREPARE = """
import json, os, sys
sys.path.insert(0, sys.argv[1])
import torch, deepspeed, deepspeed.ops
from accelerate.state import AcceleratorState
deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # otherwise it is compiled, for a minute
deepspeed.initialize = lambda **given: sys.exit("initialize")  # accelerate has refused nothing
os.environ |= {"ACCELERATE_USE_DEEPSPEED": "true", "ACCELERATE_DEEPSPEED_CONFIG_FILE": "ds.json", "RANK": "0", "WORLD_SIZE": "1",
               "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
for config, script in json.load(sys.stdin):
    with open("ds.json", "w") as file:
        json.dump(config, file)
    try:
        exec(script, {"other": torch.optim.SGD([torch.zeros(1)])})
    except BaseException as error:
        print("SAID", json.dumps(str(error)))
    AcceleratorState._reset_state(reset_partial_state=True)
    torch.distributed.destroy_process_group()
"""


def test_optimizers_and_schedulers_refused_by_prepare_are_refused(tmp_path: Path) -> None:
    sections = {
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}},
        "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 10}},
    }
    asked_of: list[tuple[dict[str, object], str]] = []
    for chosen in ((), ("optimizer",), ("scheduler",), ("optimizer", "scheduler")):
        config = {"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 2}, **{name: sections[name] for name in chosen}}
        for optimizer, scheduler in itertools.product(OPTIMIZERS.values(), SCHEDULERS.values()):
            asked_of.append((config, PREPARES.replace("OPTIMIZER", optimizer).replace("SCHEDULER", scheduler)))
    words = [sys.executable, "-c", "# asks DeepSpeed\n" + PREPARE, str(releases.accelerate())]
    done = subprocess.run(words, input=json.dumps(asked_of), capture_output=True, text=True, cwd=tmp_path, timeout=180, check=False)
    said = [json.loads(line.removeprefix("SAID ")) for line in done.stdout.splitlines() if line.startswith("SAID ")]
    assert len(said) == len(asked_of), done.stderr[-3000:]
    for (config, script), answer in zip(asked_of, said, strict=True):
        builder = "script" if "AdamW(" in script else "config"
        plan = f"version: 1\njob: {{script: t.py, integration: accelerate, optimizer: {builder}}}\ndeepspeed: {json.dumps(config)}\n"
        errors = [f for f in codes(tmp_path, plan, script).values() if f.severity == "error"]
        assert bool(errors) == (answer != "initialize"), (config, script, answer, errors)
        assert not errors or any(answer[:60] in f.why for f in errors), (answer, errors)


STATE = """
from accelerate import Accelerator
accelerator = Accelerator()
print("SAID", accelerator.state.deepspeed_plugin.deepspeed_config["zero_optimization"])
"""


def test_script_without_prepare_is_not_checked_for_engine_errors(tmp_path: Path) -> None:
    config = {"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "nvme"}}, "train_micro_batch_size_per_gpu": 1}
    plan = f"version: 1\njob: {{script: t.py, integration: accelerate, optimizer: script}}\ndeepspeed: {json.dumps(config)}\n"
    for script, severity in ((STATE, "warning"), (PREPARES, "error"), (f"import mine\n{STATE}\nmine.train(accelerator)\n", "error")):
        assert codes(tmp_path, plan, script)["DS141"].severity == severity
    program = PREPARE.split("for config", maxsplit=1)[0] + f"json.dump({config!r}, open('ds.json', 'w'))\n{STATE}"
    assert "nvme" in output_of(program, str(releases.accelerate()), folder=tmp_path).partition("SAID")[2]
    assert codes(tmp_path, plan.replace('"zero_optimization"', '"other"'), STATE)["DS320"].severity == "error", "Accelerator() refuses that"
