"""The model of a launch, from the pasted command to the forecast."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from targets import EIGHT_H100

from dstui.adopt.model_options import model_section
from dstui.adopt.script_options import options_of, options_of_yamls
from dstui.check import check_plan
from dstui.documents.open import open_document
from dstui.facts.model_files import read_model
from dstui.forecast.forecast import forecast
from dstui.forecast.model import facts_of_config, facts_of_params
from dstui.forecast.presets import presets
from dstui.plan import load
from dstui.render.target import Target
from tests.command import dstui

AUTO = {
    "train_micro_batch_size_per_gpu": "auto",
    "gradient_accumulation_steps": "auto",
    "train_batch_size": "auto",
    "bf16": {"enabled": "auto"},
    "fp16": {"enabled": "auto"},
    "zero_optimization": {"stage": 3},
}
LAUNCH = "deepspeed train.py --deepspeed ds.json --model_name_or_path lmsys/vicuna-7b-v1.5 --per_device_train_batch_size 4 "
LAUNCH += "--gradient_accumulation_steps 2 --bf16 True --gradient_checkpointing True --model_max_length 1024\n"
HANDBOOK = """\
model_name_or_path: mistralai/Mistral-7B-v0.1
bf16: true
per_device_train_batch_size: 3
gradient_accumulation_steps: 5
gradient_checkpointing: true
max_seq_length: 512
use_peft: true
lora_r: 16
lora_target_modules: [q_proj, v_proj]
load_in_4bit: true
"""


@pytest.mark.parametrize(
    ("words", "section"),
    [
        ("--model_name_or_path a/b --model_max_length=4096 --gradient_checkpointing", {"sequence_length": 4096, "activation_checkpointing": True}),
        ("--base_model a/b --lora_r 16 --lora_alpha 32 --lora_target_modules q_proj, v_proj --bf16", {"lora": {"r": 16, "alpha": 32, "target_modules": ["q_proj", "v_proj"]}}),
        ("--model_id a/b --lora_r 16 --lora_enable False", {}),
        ("--model a/b --recompute_granularity full --recompute_method uniform", {"activation_checkpointing": True}),
        ("--model a/b --recompute-activations", {"activation_checkpointing": True, "recompute": "attention"}),
        ("--model_id a/b --lora_r 16 --q_lora False", {"lora": {"r": 16}}),
        ("--model_name_or_path a/b --finetuning_type lora --lora_rank 4 --lora_target all --quantization_bit 4", {"lora": {"r": 4}, "quantization": "nf4"}),
        ("--model_name_or_path a/b --lora_enable True --lora_r 64 --bits 8", {"lora": {"r": 64}, "quantization": "int8"}),
        ("--model_name_or_path a/b --finetuning_type full --lora_rank 4", {}),
        ("--model a/b --attn_implementation flash_attention_2 --use_liger_kernel True", {"attention": "flash", "fused_loss": True}),
        ("--model_name_or_path a/b --max_seq_length ${LENGTH} --cutoff_len 512", {"sequence_length": 512}),
        ("--model_name_or_path a/b --max_prompt_length 512 --max_completion_length 256", {"sequence_length": 768}),
    ],
)  # fmt: skip
def test_options_of_a_script_give_the_plans_model(words: str, section: dict[str, Any]) -> None:
    assert model_section(options_of(words.split()))[0] == {"source": "a/b", **section}


def test_model_with_a_hole_is_known_once_it_is_filled() -> None:
    assert model_section(options_of(["--model_name_or_path", "./${MODEL}"]), "sub") == ({"source": "sub/${MODEL}"}, [])


@pytest.mark.parametrize("words", ["--model_name_or_path $MODEL", "--model_name_or_path <your_model>", "--model nextgpt", "--epochs 3"])
def test_launch_without_a_model_gives_none(words: str) -> None:
    assert model_section(options_of(words.split())) == ({}, [])


GPT = "--num-layers 24 --hidden-size 1024 --num-attention-heads 16 --seq-length 1024 --max-position-embeddings 2048 "
LLAMA = "--num-layers 32 --hidden-size 4096 --num-attention-heads 32 --ffn-hidden-size 11008 --seq-length 4096 --swiglu --vocab-size 32000 "


@pytest.mark.parametrize(
    ("words", "params"),
    [
        # 12 h^2 + 13 h for each layer, the embeddings, and the last norm; the vocabulary is padded to 128 rows for each part of the tensors
        (GPT, 24 * (12 * 1024**2 + 13 * 1024) + (50304 + 2048) * 1024 + 2 * 1024),
        (f"{GPT} --tensor-model-parallel-size 4", 24 * (12 * 1024**2 + 13 * 1024) + (50688 + 2048) * 1024 + 2 * 1024),
        (f"{GPT} --pad-vocab-size-to 250880 --position-embedding-type alibi", 24 * (12 * 1024**2 + 13 * 1024) + 250880 * 1024 + 4 * 1024),
        (f"{LLAMA} --untie-embeddings-and-output-weights", 6_738_415_616),
        ("--model_type gpt2 --config_overrides n_embd=1600,n_layer=48,n_head=25", 1_557_611_200),
    ],
)
def test_sizes_in_the_options_are_the_model(words: str, params: int) -> None:
    section, _ = model_section(options_of(words.split()))
    assert read_model(section["source"], None, ".").params == params


@pytest.mark.parametrize("script", ["pretrain_bert.py", "pretrain_gpt.py --num-experts 8", "pretrain_gpt.py --model_name_or_path gpt2"])
def test_sizes_of_other_models_are_not_a_decoders(script: str) -> None:
    section, _ = model_section(options_of([*script.split()[1:], *GPT.split()]), script=script.partition(" ")[0])
    assert section.get("source") in (None, "gpt2")


def test_megatrons_parallelism_splits_model_and_batch(tmp_path: Path) -> None:
    """8 ranks hold two copies of the model, so 16 samples are 2 of each, 8 times."""
    words = f"{GPT} --tensor-model-parallel-size 2 --pipeline-model-parallel-size 2 --micro-batch-size 1 --checkpoint-activations"
    config = {"train_micro_batch_size_per_gpu": 1, "train_batch_size": 16, "zero_optimization": {"stage": 1}, "fp16": {"enabled": True}}
    launch = f"cat > mine.json <<EOF\n{json.dumps(config)}\nEOF\ndeepspeed pretrain_gpt.py --deepspeed --deepspeed_config mine.json "
    whole = forecast_of(tmp_path, launch + GPT)
    (tmp_path / "plan.yaml").unlink()
    split = forecast_of(tmp_path, launch + words)
    assert split["first line"].endswith("micro-batch 1 of 1024 tokens, accumulated 8 times")
    of_embedding = 2 * 50304 * 1024  # which both stages have whole
    assert split["parts"]["gpu"]["weights"] == pytest.approx((whole["parts"]["gpu"]["weights"] + of_embedding) / 4, rel=0.01)
    assert split["gpu_bytes"] < 0.6 * whole["gpu_bytes"]
    assert any("a pipeline of 2 stages" in sentence for sentence in split["unknown"])
    plan = open_document(str(tmp_path / "plan.yaml")).plan
    assert not [f for f in check_plan(Target(plan), world_size=8) if f.path.startswith("deepspeed.train")]


@pytest.mark.parametrize(
    ("words", "begins"),
    [("--cutoff_len 4096", True), ("--cutoff_len 4096 --packing true", False), ("--block_size 4096", False)],
)
def test_range_begins_at_shorter_samples_where_their_length_is_only_limited(words: str, begins: bool, tmp_path: Path) -> None:
    model = "--model_name_or_path meta-llama/Llama-2-7b-hf --per_device_train_batch_size 4 --gradient_checkpointing true"
    found = forecast_of(tmp_path, f"deepspeed train.py --deepspeed ds.json {model} {words}")
    assert any("the ranges begin at 512 tokens" in sentence for sentence in found["unknown"]) == begins
    assert (found["gpu_bytes_range"][0] < 0.8 * found["gpu_bytes"]) == begins


def test_frozen_or_added_part_is_reported() -> None:
    _, (note,) = model_section(options_of(["--model_id", "a/b", "--tune_mm_mlp_adapter", "True", "--freeze_llm", "False"]))
    assert note.startswith("--tune_mm_mlp_adapter True: the forecast counts a/b alone")


def test_folder_beside_the_script_is_found_from_the_plan() -> None:
    assert model_section({"model_name_or_path": "../models/x"}, "src/train")[0]["source"] == "src/models/x"


def test_values_of_a_yaml_are_options_and_a_broken_one_gives_none() -> None:
    files = {"sft.yaml": HANDBOOK, "broken.yml": "a: [", "list.yaml": "- 1"}
    found = options_of_yamls(["sft.yaml", "broken.yml", "--more=list.yaml", "gone.yaml", "--epochs", "1"], files.get)
    assert (found["lora_target_modules"], found["bf16"], found["lora_r"]) == ("q_proj,v_proj", "True", "16")


def forecast_of(folder: Path, launch: str) -> dict[str, Any]:
    """Return the first forecast for a pasted launch."""
    (folder / "run.sh").write_text(launch)
    (folder / "ds.json").write_text(json.dumps(AUTO))
    (folder / "train.py").write_text("from transformers import HfArgumentParser, TrainingArguments\nHfArgumentParser(TrainingArguments)\n")
    (folder / "machine.json").write_text(json.dumps(EIGHT_H100.to_json()))
    env = {"HF_HOME": str(folder), "XDG_CACHE_HOME": str(folder)}
    made = dstui("import", "run.sh", "-o", "plan.yaml", cwd=folder, env=env)
    assert made.returncode == 0, made.stderr
    done = dstui("forecast", "plan.yaml", "--machine", "machine.json", "--json", cwd=folder, env=env)
    found: dict[str, Any] = json.loads(done.stdout)
    text = dstui("forecast", "plan.yaml", "--machine", "machine.json", cwd=folder, env=env).stdout
    return {**found, "first line": text.partition("\n")[0].partition(", activations ")[0]}


def test_verdict_is_available_right_after_the_import(tmp_path: Path) -> None:
    found = forecast_of(tmp_path, LAUNCH)
    assert (found["verdict"], found["params"]) == ("fits", 6_738_415_616)
    assert found["first line"].endswith("8 ranks, ZeRO-3, bf16, micro-batch 4 of 1024 tokens, accumulated 2 times")
    assert not [sentence for sentence in found["unknown"] if "batch" in sentence or "precision" in sentence]


def test_numbers_of_a_yaml_reach_the_forecast(tmp_path: Path) -> None:
    (tmp_path / "sft.yaml").write_text(HANDBOOK)
    found = forecast_of(tmp_path, "deepspeed train.py sft.yaml --deepspeed ds.json --gradient_accumulation_steps 7\n")
    assert found["first line"].endswith("8 ranks, ZeRO-3, bf16, micro-batch 3 of 512 tokens, accumulated 7 times")
    assert found["trainable"] == 32 * 16 * (2 * 4096 + 4096 + 1024)
    lora = open_document(str(tmp_path / "plan.yaml")).plan.model
    assert lora is not None and lora.quantization == "nf4"


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("--zero_stage 3 --offload --per_device_train_batch_size 4 --max_seq_len 512 --dtype fp16", "ZeRO-3, optimizer in RAM, weights in RAM, fp16, micro-batch 4 of 512 tokens"),
        ("--ds.zero_stage 2 --train.micro_batch_size 2 --train.batch_size 64 --data.max_len 1024 --bf16", "ZeRO-2, bf16, micro-batch 2 of 1024 tokens, accumulated 4 times"),
    ],
)  # fmt: skip
def test_script_that_builds_its_configuration_from_arguments_gets_a_verdict(tmp_path: Path, words: str, line: str) -> None:
    found = forecast_of(tmp_path, f"deepspeed main.py --model_name_or_path gpt2 {words}\n")
    assert found["first line"].endswith(line) and "the script builds its configuration itself" in " ".join(found["unknown"])


def test_open_stage_is_reported_as_missing(tmp_path: Path) -> None:
    found = forecast_of(tmp_path, "deepspeed main.py --model_name_or_path gpt2 --zero_stage $Z\n")
    assert found["problem"] == "--zero_stage ${Z} sets no ZeRO stage yet: write its number"


def test_framework_command_gives_its_model(tmp_path: Path) -> None:
    (tmp_path / "sft.yaml").write_text(
        "model_name_or_path: Qwen/Qwen2.5-7B-Instruct\ncutoff_len: 1024\nfinetuning_type: lora\nlora_rank: 8\ndeepspeed: ds.json\n"
    )
    found = forecast_of(tmp_path, "llamafactory-cli train sft.yaml\n")
    assert found["params"] and found["trainable"] and "1024 tokens" in found["first line"]


def test_launch_without_its_configuration_gets_no_verdict(tmp_path: Path) -> None:
    found = forecast_of(tmp_path, "deepspeed train.py --model_name_or_path gpt2\n")
    assert found["verdict"] == "unknown" and "the Plan's deepspeed section is empty" in found["problem"]


def test_accelerate_launch_gives_its_model(tmp_path: Path) -> None:
    (tmp_path / "zero2.yaml").write_text(
        "distributed_type: DEEPSPEED\nnum_processes: 8\nmixed_precision: bf16\ndeepspeed_config: {zero_stage: 2}\n"
    )
    launch = (
        "accelerate launch --config_file zero2.yaml train.py --model_name_or_path Qwen/Qwen2-7B-Instruct --per_device_train_batch_size 2\n"
    )
    found = forecast_of(tmp_path, launch)
    assert found["params"] == 7_615_616_512 and "ZeRO-2, bf16, micro-batch 2 of" in found["first line"]


def test_configuration_overrides_the_options(tmp_path: Path) -> None:
    plan = load(
        "version: 1\njob: {script: t.py, integration: trainer, args: [--per_device_train_batch_size, '4', --fp16]}\n"
        "model: {source: gpt2}\ndeepspeed: {train_micro_batch_size_per_gpu: 2, bf16: {enabled: true}}\n"
    )
    (tmp_path / "plan.yaml").write_text(plan.text)
    (tmp_path / "machine.json").write_text(json.dumps(EIGHT_H100.to_json()))
    done = dstui("forecast", "plan.yaml", "--machine", "machine.json", cwd=tmp_path, env={"HF_HOME": str(tmp_path)})
    assert "bf16, micro-batch 2 of" in done.stdout.partition("\n")[0]


@pytest.mark.parametrize(
    ("optim", "share"), [("adamw_torch", 1), ("adamw_bnb_8bit", 2.1 / 8), ("adafactor", 0.5), ("sgd", 0), ("galore_adamw", 1)]
)
def test_optimizer_of_the_arguments_is_used(optim: str, share: float) -> None:
    def states(args: str) -> int:
        text = f"version: 1\njob: {{script: t.py, integration: trainer, args: [{args}]}}\ndeepspeed: {{zero_optimization: {{stage: 2}}}}\n"
        return forecast(load(text), facts_of_params(1e9), EIGHT_H100).gpu.parts.get("optimizer_states", 0)

    assert states(f"--optim, {optim}") == pytest.approx(share * states(""), rel=0.01)


def test_ms_swift_loss_holds_more_copies_of_the_logits() -> None:
    def logits(job: str) -> int:
        plan = load(
            f"version: 1\njob: {{{job}, integration: trainer}}\nmodel: {{source: Qwen/Qwen2.5-7B, activation_checkpointing: true}}\n"
            "deepspeed: {train_micro_batch_size_per_gpu: 2, bf16: {enabled: true}, zero_optimization: {stage: 3, offload_optimizer: {device: cpu}}}\n"
        )
        found = forecast(plan, facts_of_config(presets()["Qwen/Qwen2.5-7B"]), EIGHT_H100)
        return found.gpu.parts["logits_and_loss"]

    plain = logits("script: t.py")
    assert logits("command: [swift, sft]") == pytest.approx(1.5 * plain, rel=0.01)
    assert logits("command: [swift, rlhf]") == pytest.approx(9.5 / 12 * plain, rel=0.01)
