"""Facts from a model's files, and messages for unusable files."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from shapes import SMALL
from targets import NO_GPU, ONE_4090

from dstui.facts.model_files import read_model, read_models
from dstui.forecast.forecast import forecast
from dstui.forecast.hardware import named_machine
from dstui.machine.snapshot import Machine
from dstui.plan import load

CONFIG = {"model_type": "llama", **SMALL}
PARAMS = 2 * 311 * 96 + 3 * (96 * 96 * 2 + 2 * 32 * 96 + 3 * 96 * 200 + 2 * 96) + 96


def header(tensors: dict[str, tuple[str, list[int]]]) -> bytes:
    text = json.dumps(
        {"__metadata__": {"format": "pt"}, **{n: {"dtype": d, "shape": s, "data_offsets": [0, 0]} for n, (d, s) in tensors.items()}}
    )
    return len(text).to_bytes(8, "little") + text.encode()


def test_folder_or_its_config_json_is_counted(tmp_path: Path) -> None:
    (tmp_path / "llama").mkdir()
    (tmp_path / "llama" / "config.json").write_text(json.dumps(CONFIG))
    for source in ("llama", "./llama/config.json", str(tmp_path / "llama")):
        facts = read_model(source, None, str(tmp_path))
        assert (facts.params, facts.problem) == (PARAMS, "")
        assert facts.architecture is not None


def test_weights_without_a_known_config_give_the_count_without_a_shape(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "new-thing"}')
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": "one.safetensors", "b": "two.safetensors"}}))
    (tmp_path / "one.safetensors").write_bytes(header({"a": ("BF16", [1000, 30]), "layer.rotary.inv_freq": ("F32", [64])}))
    (tmp_path / "two.safetensors").write_bytes(header({"b": ("F32", [7])}))
    facts = read_model(".", None, str(tmp_path))
    assert (facts.params, facts.architecture, facts.problem) == (30007, None, "")


def test_model_in_the_hubs_cache_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "hub" / "models--me--mine"
    (folder / "refs").mkdir(parents=True)
    (folder / "refs" / "main").write_text("abcdef1234")
    (folder / "snapshots" / "abcdef1234").mkdir(parents=True)
    (folder / "snapshots" / "abcdef1234" / "config.json").write_text(json.dumps(CONFIG))
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    monkeypatch.delenv("HF_HUB_CACHE", raising=False)
    assert read_model("me/mine", None, "/nowhere").params == PARAMS


def test_included_model_needs_no_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    assert read_model("meta-llama/Llama-2-7b-hf", None, str(tmp_path)).params == 6_738_415_616


def test_each_of_several_models_is_read_by_its_name() -> None:
    plan = load(
        "version: 1\njob: {script: a}\nmodels:\n"
        "  student: {role: train, model: {source: gpt2}, deepspeed: {train_micro_batch_size_per_gpu: 1}}\n"
        "  teacher: {role: inference, model: {params: 1.0e9}, deepspeed: {train_micro_batch_size_per_gpu: 1}}\n"
    )
    found = read_models(plan)
    assert isinstance(found, dict)
    assert {name: facts.params for name, facts in found.items()} == {"student": 124_439_808, "teacher": 10**9}


def test_rank_takes_the_ram_of_what_its_script_imports(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text("import deepspeed, torch\nengine = deepspeed.initialize()\n")
    (tmp_path / "helper.py").write_text("from transformers import AutoModel\n")
    (tmp_path / "helped.py").write_text("import deepspeed, helper\n")
    (tmp_path / "tuned.py").write_text("from trl import SFTTrainer\n")
    (tmp_path / "foreign.py").write_text("import deepspeed, my_framework\n")

    def ram(script: str, machine: Machine = NO_GPU, integration: str = "deepspeed") -> float:
        job = f"{{script: {script}, integration: {integration}}}"
        text = f"version: 1\njob: {job}\nmodel: {{params: 1e6}}\ncluster: {{cpu_ranks: 1}}\ndeepspeed: {{train_batch_size: 1}}\n"
        written = load(text, base=str(tmp_path))
        return forecast(written, read_models(written), machine).host.parts["processes"] / (1 << 20)

    found = [round(ram(f"{name}.py")) for name in ("own", "helped", "tuned", "foreign", "missing")]
    assert found == [385, 437, 560, 560, 560]  # measured on CPU ranks; what is not read here may be trl
    assert [round(ram(name, integration="trainer")) for name in ("own.py", "missing.py")] == [540, 540]
    assert ram("own.py", ONE_4090) - ram("own.py") == pytest.approx(3.07 * 1024, abs=1)


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("config.json", b"{", "not valid JSON"),
        ("config.json", b"[" * 100_000, "not valid JSON"),
        ("config.json", b"[]", "not an object"),
        ("config.json", b"\x00", "binary"),
        ("config.json", b'{"model_type": "llama", "hidden_size": 1e400}', "hidden_size"),
        ("model.safetensors", b"", "is not a safetensors file"),
        ("model.safetensors", b"\xff" * 100, "is not a safetensors file"),
        ("model.safetensors", (10).to_bytes(8, "little") + b"not json..", "its header is not JSON"),
        ("model.safetensors", header({"a": ("U8", [10, 10])}), "packed numbers (U8)"),
        ("model.safetensors", header({"a": ("F32", [-1])}), "has no shape"),
        ("model.safetensors.index.json", b'{"weight_map": {"a": "../../etc/passwd"}}', "names files that do not exist beside it"),
        ("model.safetensors.index.json", b'{"weight_map": {"a": "gone.safetensors"}}', "is missing"),
    ],
)
def test_useless_file_gives_a_message(tmp_path: Path, name: str, content: bytes, says: str) -> None:
    (tmp_path / name).write_bytes(content)
    facts = read_model(".", None, str(tmp_path))
    assert facts.params is None and says in facts.problem


@pytest.mark.parametrize(
    ("source", "params", "says"),
    [
        (None, None, "the Plan names no model"),
        ("no/such-model", None, "hf download no/such-model config.json, or give model.params"),
        ("../somewhere", None, "there is no ../somewhere"),
        (None, 1e30, "more than any model has"),
    ],
)
def test_missing_model_gives_a_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str | None, params: float | None, says: str
) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    facts = read_model(source, params, str(tmp_path / "plans"))
    assert facts.params is None and says in facts.problem


def test_parameter_count_beside_a_missing_model_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    assert read_model("no/such-model", 7e9, str(tmp_path)).params == 7 * 10**9


def test_pipe_in_place_of_the_weights_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "model.safetensors")
    assert read_model(str(tmp_path / "model.safetensors"), None, "/").problem


@pytest.mark.parametrize(
    ("source", "base", "stored"),
    [
        ("Qwen/Qwen2.5-7B-Instruct-GPTQ-Int4", "Qwen/Qwen2.5-7B", "4 bits"),
        ("Qwen/Qwen2.5-7B-Instruct-AWQ", "Qwen/Qwen2.5-7B", "4 bits"),
        ("Qwen/Qwen1.5-110B-Chat-GPTQ-Int8", "Qwen/Qwen1.5-110B", "8 bits"),
        ("Qwen/Qwen3-8B-FP8", "Qwen/Qwen3-8B", "8 bits"),
        ("TheBloke/Llama-2-13B-GPTQ", "meta-llama/Llama-2-13b-hf", "4 bits"),
        ("unsloth/llama-2-7b-bnb-4bit", "meta-llama/Llama-2-7b-hf", "nf4"),
        ("nvidia/DeepSeek-V4-Flash-NVFP4", "deepseek-ai/DeepSeek-V4-Flash", "4 bits"),
        ("TheBloke/Nous-Hermes-Llama-2-13b-AWQ", "meta-llama/Llama-2-13b-hf", "4 bits"),
    ],
)
def test_quantized_copy_has_the_tensors_of_its_base_in_fewer_bits(source: str, base: str, stored: str) -> None:
    found = read_model(source, None, "/nowhere")
    assert (found.params, found.stored) == (read_model(base, None, "/nowhere").params, stored)
    assert any("only adapters of it can be trained" in note for note in found.notes)


@pytest.mark.parametrize(
    ("section", "stored"),
    [
        ({"quant_method": "gptq", "bits": 4, "group_size": 128}, "4 bits"),
        ({"quant_method": "awq", "bits": 4}, "4 bits"),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, "nf4"),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, "int8"),
        ({"quant_method": "fp8"}, ""),
        ({"quant_method": "gptq", "bits": "four"}, ""),
    ],
)
def test_file_says_how_its_weights_are_stored(tmp_path: Path, section: dict[str, object], stored: str) -> None:
    (tmp_path / "config.json").write_text(json.dumps({**CONFIG, "quantization_config": section}))
    found = read_model(".", None, str(tmp_path))
    assert (found.params, found.stored, bool(found.notes)) == (PARAMS, stored, bool(stored))


def test_quantized_copy_needs_a_quarter_of_the_weights_under_lora() -> None:
    weights = {}
    for source in ("Qwen/Qwen2.5-7B", "Qwen/Qwen2.5-7B-Instruct-AWQ"):
        plan = load(
            f"version: 1\njob: {{script: t.py}}\nmodel: {{source: {source}, lora: {{r: 8}}}}\ndeepspeed: {{bf16: {{enabled: true}}}}\n"
        )
        found = forecast(plan, read_model(source, None, "/nowhere"), named_machine("1xA100-80"))
        weights[source] = found.gpu.parts["weights"]
    whole, copy = weights.values()
    assert copy == pytest.approx((whole - 2 * 2 * 152064 * 3584) * 0.26 + 2 * 2 * 152064 * 3584, rel=0.02)
