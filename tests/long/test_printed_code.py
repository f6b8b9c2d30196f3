"""Code that `dstui render --only code` prints, run unchanged on two CPU ranks: it does what it says."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import printed_code, releases

PLAN = """\
version: 1
name: printed
job: {{script: train.py, integration: {integration}{more}}}
{model}cluster: {{hosts: {{localhost: 2}}, env: {{DS_ACCELERATOR: cpu, OMP_NUM_THREADS: "1"}}}}
{configs}
"""
ADAM = "optimizer: {type: AdamW, params: {lr: 1e-2, torch_adam: true}}"
WARM = "scheduler: {type: WarmupLR, params: {warmup_min_lr: 1e-3, warmup_max_lr: 1.1e-2, warmup_num_steps: 10, warmup_type: linear}}"
BATCH = "train_micro_batch_size_per_gpu: 4, gradient_accumulation_steps: 4"
LORA = "model: {lora: {r: 2, task_type: CAUSAL_LM, target_modules: [c_attn]}}\n"


def environment(folder: Path) -> dict[str, str]:
    path = os.pathsep.join([str(releases.peft()), str(releases.accelerate()), os.environ.get("PYTHONPATH", "")])
    return {**os.environ, "PYTHONPATH": path, "DS_ACCELERATOR": "cpu", "XDG_STATE_HOME": str(folder / "state"), "WANDB_DISABLED": "true"}


def run_script(words: list[str], folder: Path, env: dict[str, str]) -> dict[str, Any]:
    """Run a script and return what it reports at its end."""
    done = subprocess.run([sys.executable, *words], cwd=folder, env=env, capture_output=True, text=True, timeout=400, check=False)
    line = next((line.partition("TOLD ")[2] for line in done.stdout.splitlines() if "TOLD " in line), "")
    assert done.returncode == 0 and line, done.stdout[-4000:] + done.stderr[-3000:]
    found: dict[str, Any] = json.loads(line)
    return found


def printed(folder: Path, plan: str) -> str:
    """Return the output of `dstui render --only code`."""
    (folder / "plan.yaml").write_text(plan)
    words = [sys.executable, "-m", "dstui", "render", "plan.yaml", "--only", "code"]
    return subprocess.run(words, cwd=folder, capture_output=True, text=True, check=True).stdout


def plan_of(integration: str, config: str, more: str = "", model: str = "") -> str:
    return PLAN.format(integration=integration, configs=f"deepspeed: {{{config}}}", more=more, model=model)


def trained(folder: Path, plan: str, **more: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the results of the training on two ranks, and of the code for later use."""
    env = environment(folder)
    script, later = printed_code.scripts(printed(folder, plan), **more)
    (folder / "train.py").write_text(script)
    (folder / "later.py").write_text(later)
    found = run_script(["-m", "dstui", "--headless", "plan.yaml"], folder, env)
    return found, run_script(["later.py"], folder, env) if "state_dict" in later.partition("import json")[0] else {}


WHOLE = {"equal": True, "in the file": True, "changed": True}
PLAIN = {
    "stage 0": ("zero_optimization: {stage: 0}", "", 0, 1e-4),
    "stage 2": (f"{ADAM}, {WARM}, zero_optimization: {{stage: 2}}", "", 2, 2e-3),
    "stage 3, by an argument": (
        "zero_optimization: {stage: 3}",
        ', optimizer: script, scheduler: script, args: ["--deepspeed_config", "{ds_config}"]',
        *(3, 1e-4 / 3),
    ),
}


@pytest.mark.parametrize("case", PLAIN)
def test_plain_deepspeed(case: str, tmp_path: Path) -> None:
    config, more, stage, lr = PLAIN[case]
    plan = plan_of("deepspeed", f"{BATCH}, {config}", more)
    after = "tell(**engine_summary(engine), first=first)"
    first, later = trained(tmp_path, plan, kind="ReturnsTheLoss", after=after)
    assert first == {"steps": 2, "micro": 8, "lr": pytest.approx(lr), "stage": stage, "first": 0}
    assert later == WHOLE
    again = run_script(["-m", "dstui", "--headless", "plan.yaml"], tmp_path, environment(tmp_path))
    assert (again["steps"], again["first"]) == (4, 8), "it resumes"


COMBINATIONS = {
    "a": (f"{ADAM}, {WARM}, zero_optimization: {{stage: 3, stage3_gather_16bit_weights_on_model_save: true}}", 3, 2e-3),
    "b": ("zero_optimization: {stage: 2}", 2, 1e-4 / 5),
    "c": (f"{WARM}, zero_optimization: {{stage: 1}}", 1, 2e-3),
    "d": (f"{ADAM}, zero_optimization: {{stage: 3}}", 3, 1e-2 / 3),
    "stage 0": (f"{ADAM}, {WARM}, zero_optimization: {{stage: 0}}", 0, 2e-3),
}


@pytest.mark.parametrize("case", COMBINATIONS)
def test_accelerate(case: str, tmp_path: Path) -> None:
    config, stage, lr = COMBINATIONS[case]
    more = ", optimizer: script" if case in "bc" else ""
    after = """
found = engine_summary(model)
del found["micro"]  # engine.step() is called where the accumulation is complete
trained_weights = weights(model.module)
accelerator.load_state("checkpoint")
found["state"] = all(torch.equal(value, trained_weights[name]) for name, value in weights(model.module).items())
found["zero 3"] = is_zero_3
if os.path.exists("out") and RANK == 0:
    from safetensors.torch import load_file
    saved = load_file("out/model.safetensors")
    found["saved"] = all(torch.allclose(value.float(), trained_weights[name]) for name, value in saved.items()) and len(saved)
tell(**found)
"""
    found, later = trained(tmp_path, plan_of("accelerate", f"{BATCH}, {config}", more), after=after)
    saved = found.pop("saved", None)
    assert found == {"steps": 2, "lr": pytest.approx(lr), "stage": stage, "state": True, "zero 3": stage == 3}
    assert saved == (17 if case == "a" else None), saved
    assert later == WHOLE


def test_lora_through_accelerate(tmp_path: Path) -> None:
    plan = plan_of("accelerate", f"{BATCH}, {ADAM}, zero_optimization: {{stage: 2}}", model=LORA)
    found, later = trained(tmp_path, plan, after="tell(**engine_summary(model))")
    assert (found["steps"], later) == (2, WHOLE)


def test_inference_through_accelerate(tmp_path: Path) -> None:
    after = "tell(made=list(outputs.shape), split=any(hasattr(p, 'ds_id') for p in model.parameters()), zero=is_zero_3)"
    plan = plan_of("accelerate", "train_micro_batch_size_per_gpu: 1, zero_optimization: {stage: 3}", ", optimizer: none")
    found, _ = trained(tmp_path, plan, after=after, trains=False)
    assert found["split"] and found["zero"] and found["made"][0] == 1 and found["made"][1] > 8


TRAINER = """
from safetensors.torch import load_file
from pathlib import Path
found = engine_summary(trainer.model_wrapped)
file = Path(args.output_dir, "model.safetensors")
found["saved"] = not file.exists() or all(
    torch.allclose(value.float(), torch.load("trained.pt")[name]) for name, value in load_file(file).items())
found["split"] = any(hasattr(p, "ds_id") for p in model.parameters())
tell(**found, file=file.exists(), adapter=Path(args.output_dir, "adapter_model.safetensors").exists())
"""


@pytest.mark.parametrize("case", ["parsed, stage 3", "made in the script, stage 2", "LoRA"])
def test_the_trainer(case: str, tmp_path: Path) -> None:
    stage = 3 if "3" in case else 2
    words = '"--deepspeed", "{ds_config}", --use_cpu, --output_dir, out, --per_device_train_batch_size, "4"'
    more = f', args: [{words}, --gradient_accumulation_steps, "4", --num_train_epochs, "1", --report_to, none]' if "parsed" in case else ""
    config = "train_micro_batch_size_per_gpu: auto, gradient_accumulation_steps: auto, "
    config += f"zero_optimization: {{stage: {stage}, stage3_gather_16bit_weights_on_model_save: {str(stage == 3).lower()}}}"
    plan = plan_of("trainer", config, more, LORA if case == "LoRA" else "")
    found, _ = trained(tmp_path, plan, after=TRAINER)
    assert found["steps"] == (2 if "parsed" in case else 12), "64 samples: 2 ranks of 4 in 4 parts; of 8 and 1, in 3 epochs"
    assert found["stage"] == stage and found["saved"] and found["split"] is (stage == 3)
    assert (found["file"], found["adapter"]) == (case != "LoRA", case == "LoRA")


def of(sections: str, stage: int) -> str:
    """Return the configuration of one of several models."""
    return f"{{{BATCH}, {sections}zero_optimization: {{stage: {stage}}}}}"


STUDENT = of(f"{ADAM}, {WARM}, ", 2)
MODELS = {
    "a, and a teacher": f"student: {{deepspeed: {STUDENT}}}\n  teacher: {{role: inference, deepspeed: {of('', 3)}}}",
    "a and b": f"student: {{deepspeed: {STUDENT}}}\n  critic: {{deepspeed: {of('', 2)}}}",
    "c and d": f"student: {{deepspeed: {of(f'{WARM}, ', 2)}}}\n  critic: {{deepspeed: {of(f'{ADAM}, ', 2)}}}",
}
"""Who builds what, as for one model: a both, b neither, c the scheduler, d the optimizer."""


@pytest.mark.parametrize("integration", ["accelerate", "deepspeed"])
@pytest.mark.parametrize("case", MODELS)
def test_several_models(case: str, integration: str, tmp_path: Path) -> None:
    two = "teacher" not in case
    critic = ", critic=engine_summary(critic), kept=os.path.exists('checkpoints/critic/latest')" if two else ""
    after = f"tell(student=engine_summary(student), saved=os.path.exists('checkpoints/student/latest'){critic})"
    plan = PLAN.format(integration=integration, configs=f"models:\n  {MODELS[case]}", more="", model="")
    kind = "tiny" if integration == "accelerate" else "ReturnsTheLoss"
    found, _ = trained(tmp_path, plan, after=after, kind=kind)
    assert (found["student"]["steps"], found["student"]["stage"], found["saved"]) == (2, 2, True)
    assert found["student"]["lr"] == pytest.approx(2e-3)
    if two:
        assert (found["critic"]["steps"], found["kept"]) == (2, True)
        if integration == "accelerate":
            assert found["critic"]["lr"] == pytest.approx(1e-4 / 5 if "b" in case else 1e-2 / 3), "its scheduler moved"


LIGHTNING = {
    "the script's optimizer, stage 2": ("zero_optimization: {stage: 2}", 2, 1e-4),
    "the configuration's optimizer, stage 3": (f"{ADAM}, {WARM}, zero_optimization: {{stage: 3}}", 3, 2e-3),
}


@pytest.mark.parametrize("case", LIGHTNING)
def test_lightning(case: str, tmp_path: Path) -> None:
    config, stage, lr = LIGHTNING[case]
    config = f"{BATCH}, gradient_clipping: 0.5, {config}"
    plan = plan_of("deepspeed", config).replace("DS_ACCELERATOR: cpu, ", "")
    after = """
engine = trainer.strategy.deepspeed_engine
found = engine_summary(engine)
found["clipping"] = engine.gradient_clipping()
found["saved"] = os.path.isdir("lightning/checkpoint")
tell(**found)
"""
    (tmp_path / "train.py").write_text(printed_code.lightning_script(printed(tmp_path, plan), after))
    env = environment(tmp_path)
    env["PYTHONPATH"] = os.pathsep.join([str(releases.lightning()), env["PYTHONPATH"]])
    found = run_script(["-m", "dstui", "--headless", "plan.yaml"], tmp_path, env)
    assert found == {"steps": 2, "micro": 8, "lr": pytest.approx(lr), "stage": stage, "clipping": 0.5, "saved": True}
