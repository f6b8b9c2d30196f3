"""Parameter counts, compared to transformers, which builds every configuration on torch's meta device."""

from __future__ import annotations

import re
import warnings
from typing import Any

import pytest
from newer_shapes import MOE_THINKER, NEWER, THINKER
from shapes import CASES, SMALL

from dstui.forecast.activations import activations
from dstui.forecast.architecture import KNOWN, ModelProblem, architecture
from dstui.forecast.model import adapter_params, counts, facts_of_config, facts_of_params
from dstui.forecast.presets import base_name, preset, presets, tuned_from
from dstui.forecast.setup import Setup
from dstui.plan.model import Lora, Model

PUBLISHED = {
    "meta-llama/Llama-2-7b-hf": 6_738_415_616,
    "meta-llama/Llama-3.1-8B": 8_030_261_248,
    "meta-llama/Llama-3.1-70B": 70_553_706_496,
    "mistralai/Mistral-7B-v0.1": 7_241_732_096,
    "mistralai/Mixtral-8x7B-v0.1": 46_702_792_704,
    "Qwen/Qwen2.5-7B": 7_615_616_512,
    "Qwen/Qwen3-30B-A3B": 30_532_122_624,
    "google/gemma-2-9b": 9_241_705_984,
    "microsoft/phi-2": 2_779_683_840,
    "tiiuae/falcon-40b": 41_303_293_952,
    "EleutherAI/gpt-neox-20b": 20_554_567_680,
    "bigscience/bloom": 176_247_271_424,
    "bigscience/bloom-1b1": 1_065_314_304,
    "openai-community/gpt2": 124_439_808,
    "google-bert/bert-base-uncased": 109_514_298,
    "baichuan-inc/Baichuan2-7B-Base": 7_505_973_248,
    "THUDM/chatglm-6b": 6_173_286_400,
    "THUDM/chatglm3-6b": 6_243_584_000,
    "Qwen/Qwen-7B": 7_721_324_544,
    "bigcode/starcoder": 15_517_456_384,
    "Qwen/Qwen2-VL-7B-Instruct": 8_291_375_616,
    "Qwen/Qwen2.5-VL-7B-Instruct": 8_292_166_656,
    "deepseek-ai/DeepSeek-V2-Lite": 15_706_484_224,
    "ibm-granite/granite-3.3-8b-instruct": 8_170_864_640,
    "openai/gpt-oss-20b": 20_914_757_184,
    "llava-hf/llava-1.5-7b-hf": 7_063_427_072,
    "google/gemma-3n-E4B-it": 7_818_517_072,  # counted once with timm 1.0.22, which has its vision tower
    "openai/whisper-large-v3": 1_543_490_560,
    "Qwen/Qwen1.5-0.5B": 463_987_712,
    "Qwen/Qwen1.5-32B": 32_512_218_112,
    "Qwen/Qwen1.5-110B": 111_209_914_368,
}
"""Published totals: from model cards on the hub, or files that quote them."""

# importing it takes seconds: run in one process
pytestmark = pytest.mark.xdist_group("torch")


def built(kind: str, name: str, values: dict[str, Any]) -> tuple[dict[str, Any], Any]:
    """Return the config.json that transformers would save, and the model on the meta device."""
    import torch
    import transformers

    with warnings.catch_warnings(), torch.device("meta"):
        warnings.simplefilter("ignore")
        config = transformers.CONFIG_MAPPING[kind](**values, architectures=[name])
        return config.to_dict(), getattr(transformers, name)(config)


BUILT = (*CASES, *NEWER)


@pytest.mark.parametrize(("kind", "name", "values"), BUILT, ids=[f"{n}-{name}" for n, (_, name, _v) in enumerate(BUILT)])
def test_parameter_count_equals_transformers(kind: str, name: str, values: dict[str, Any]) -> None:
    config, model = built(kind, name, values)
    assert architecture(config).params == sum(parameter.numel() for parameter in model.parameters())


def test_every_known_architecture_is_tested() -> None:
    others = {"siglip_vision_model", "kimi_k2", "gemma3n", "internvl_chat", "ernie4_5_moe_vl", "qwen2_5_omni", "qwen3_omni_moe"}
    assert set(KNOWN) - others == {kind for kind, _name, _values in BUILT}


@pytest.mark.parametrize(("kind", "thinker"), [("qwen2_5_omni", THINKER), ("qwen3_omni_moe", MOE_THINKER)])
def test_of_an_omni_model_the_thinker_is_counted(kind: str, thinker: dict[str, Any]) -> None:
    whole = facts_of_config({"model_type": kind, "thinker_config": thinker, "talker_config": {"hidden_size": 10**6}})
    assert whole.params == architecture({"model_type": f"{kind}_thinker", **thinker}).params
    assert any("thinker" in note for note in whole.notes)


def test_residual_streams_are_kept_between_recomputed_layers() -> None:
    flash = facts_of_config(presets()["deepseek-ai/DeepSeek-V4-Flash"])
    assert flash.shape
    found = activations(Setup(precision="bf16", micro_batch=1, sequence=4096, checkpointing=True), flash.shape)
    assert found.kept == 43 * 4096 * 2 * 4 * 4096  # layers, tokens, bytes, streams, width


@pytest.mark.parametrize("targets", [("q_proj", "v_proj"), ("self_attn.q_proj", "down_proj"), "all-linear"])
def test_lora_adds_the_parameters_of_its_matrices(targets: tuple[str, ...] | str) -> None:
    import torch

    config, model = built("llama", "LlamaForCausalLM", SMALL)
    layers = [
        (module.in_features + module.out_features)
        for name, module in model.named_modules()
        if isinstance(module, torch.nn.Linear)
        and name != "lm_head"
        and (targets == "all-linear" or any(name.endswith(f".{target}") for target in targets))
    ]
    assert layers
    assert adapter_params(facts_of_config(config), Lora(r=16, target_modules=targets)) == 16 * sum(layers)


def test_included_models_have_the_counts_of_their_cards() -> None:
    assert {name: architecture(presets()[name]).params for name in PUBLISHED} == PUBLISHED


ROUNDED = {
    "google/gemma-3-270m": 0.268,
    "allenai/OLMo-2-0425-1B": 1.48,
    "allenai/OLMo-2-0325-32B": 32.2,
    "allenai/OLMo-7B-hf": 6.89,
    "tiiuae/falcon-180B": 180,
    "Qwen/Qwen1.5-72B": 72.29,
    "OpenGVLab/InternVL2_5-8B": 8.08,
    "OpenGVLab/InternVL3-1B": 0.94,
    "OpenGVLab/InternVL3-2B": 2.09,
    "OpenGVLab/InternVL3-8B": 7.94,
    "OpenGVLab/InternVL3-14B": 15.12,
    "OpenGVLab/InternVL3-38B": 38.39,
    "OpenGVLab/InternVL3-78B": 78.41,
    "OpenGVLab/InternVL3_5-8B": 8.53,
    "zai-org/GLM-5": 744,
    "google/gemma-4-E2B": 5.1,
    "google/gemma-4-E4B": 7.94,
    "google/gemma-4-31B": 30.7 + 0.576,
    "google/gemma-4-26B-A4B": 25.2 + 0.573,
    "baidu/ERNIE-4.5-21B-A3B-PT": 21.8,
    "baidu/ERNIE-4.5-0.3B-PT": 0.36,
    "deepseek-ai/DeepSeek-V4-Pro": 1573,
    "Qwen/Qwen2.5-Omni-7B": 8.93,
    "Qwen/Qwen2.5-Omni-3B": 4.7,
    "Qwen/Qwen3-Omni-30B-A3B-Instruct": 31.7,
    "Qwen/Qwen3.5-2B": 2.27 - 0.061,
    "Qwen/Qwen3.5-0.8B": 0.873 - 0.02,
    "google/gemma-4-12B": 11.95,
    "mistralai/Mistral-Small-4-119B-2603": 119,
    "nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-BF16": 120.6,
    "nvidia/NVIDIA-Nemotron-3-Ultra-550B-A55B-BF16": 550,
    "nvidia/Nemotron-H-56B-Base-8K": 56,
    "mistralai/Voxtral-Mini-3B-2507": 4.68,
    "mistralai/Voxtral-Small-24B-2507": 24.3,
}
"""Billions of parameters as cards round them; of Gemma 4's larger ones, whose cards leave it out, with the tower; of Omni models the thinker; of Qwen3.5's small ones without the last layer, which predicts further tokens."""


CARD = re.compile(r"; its card: ([\d.]+)B$")


def test_included_models_have_the_rounded_counts_of_their_cards() -> None:
    """As given above, and as their sources give them."""
    told = {name: card[1] for name, config in presets().items() if (card := CARD.search(config.get("_source", "")))}
    assert len(told) > 100
    for name, billions in {**told, **ROUNDED}.items():
        assert architecture(presets()[name]).params / 1e9 == pytest.approx(float(billions), rel=0.012), name


def test_both_forms_of_internvl_have_the_same_tensors() -> None:
    language = {**SMALL, "model_type": "qwen3"}
    vision = {"hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 96, "image_size": 56}
    theirs = {
        "model_type": "internvl",
        "text_config": language,
        "vision_config": {**vision, "attention_bias": True},
        "tie_word_embeddings": False,
    }
    own = {
        "model_type": "internvl_chat",
        "llm_config": {**language, "tie_word_embeddings": False},
        "vision_config": {**vision, "qkv_bias": True},
    }
    assert architecture(own).params == architecture(theirs).params


def test_every_included_model_can_be_counted_and_is_found_by_name() -> None:
    assert all(architecture(config).params > 10**7 for config in presets().values())
    assert preset("meta-llama/Llama-3.1-8B-Instruct") is presets()["meta-llama/Llama-3.1-8B"]
    assert preset("META-LLAMA/llama-3.1-8b") is presets()["meta-llama/Llama-3.1-8B"]
    assert preset("somebody/else") is None


@pytest.mark.parametrize(
    ("name", "base"),
    [
        ("meta-llama/Llama-2-7b-chat-hf", "meta-llama/Llama-2-7b-hf"),
        ("Qwen/Qwen3-4B-Instruct-2507", "Qwen/Qwen3-4B"),
        ("google/gemma-3-1b-pt", "google/gemma-3-1b-it"),
        ("bigscience/bloom-1b1", "bigscience/bloom-1b1"),  # 1.1 billion parameters, as opposed to the 176 of bigscience/bloom
        (
            "microsoft/phi-4-mini-instruct",
            "microsoft/Phi-4-mini-instruct",
        ),  # 3.8 billion parameters, as opposed to the 14.7 of microsoft/phi-4
        ("microsoft/phi-4-multimodal-instruct", None),
        ("Qwen/Qwen2.5-7B-Instruct-GPTQ-Int4", None),  # its own name is not listed: read_model takes it for a quantized copy
        ("OpenGVLab/InternVL3-8B-Instruct", "OpenGVLab/InternVL3-8B"),
        ("lmsys/vicuna-13b-v1.5", "meta-llama/Llama-2-13b-hf"),
        ("./checkpoints/vicuna-7b-v1-5", "meta-llama/Llama-2-7b-hf"),
        ("unsloth/llama-2-7b-bnb-4bit", "meta-llama/Llama-2-7b-hf"),
        ("trl-lib/pythia-1b-deduped-tldr-rm", "EleutherAI/pythia-1b"),
        ("somebody/llama-2-7b-vision", None),
        ("AI-ModelScope/phi-2", "microsoft/phi-2"),
        ("ZhipuAI/GLM-4.5-Air/", "zai-org/GLM-4.5-Air"),
        ("Qwen/Qwen3-Embedding-4B", "Qwen/Qwen3-4B"),
        ("deepseek-ai/DeepSeek-V3-0324-BF16", "deepseek-ai/DeepSeek-V3-0324"),
        ("somebody/phi-2-vision", None),
    ],
)
def test_model_has_the_sizes_of_its_base_and_not_of_a_namesake(name: str, base: str | None) -> None:
    assert preset(name) is (presets()[base] if base else None)


@pytest.mark.parametrize(
    ("name", "base"),
    [
        ("NousResearch/Hermes-3-Llama-3.1-8B", "meta-llama/Llama-3.1-8B"),
        ("teknium/OpenHermes-2.5-Mistral-7B", "mistralai/Mistral-7B-v0.1"),
        ("NousResearch/Nous-Hermes-2-Mixtral-8x7B-DPO", "mistralai/Mixtral-8x7B-v0.1"),
        ("somebody/finance-Qwen3-8B-sft", "Qwen/Qwen3-8B"),
        ("somebody/Qwen2.5-Math-7B-long", "Qwen/Qwen2.5-Math-7B"),
        ("somebody/Llama-3.1-Story-8B-SFT", "meta-llama/Llama-3.1-8B"),
        ("somebody/Llama-3.1-Story-51B", None),
        ("somebody/Qwen2.5-Speech-7B", None),
        ("somebody/Yi-Story-9B", None),
        ("somebody/llava-Llama-3.1-8B", None),
        ("somebody/Llama-3.1-8B-pruned", None),
        ("somebody/mini-7b", None),
    ],
)
def test_name_with_that_of_a_known_model_is_its_fine_tune(name: str, base: str | None) -> None:
    assert tuned_from(name) == base


def test_names_that_differ_only_in_variant_have_equal_sizes() -> None:
    counted: dict[str, set[int]] = {}
    for name, config in presets().items():
        counted.setdefault(base_name(name), set()).add(architecture(config).params)
    assert [name for name, sizes in counted.items() if name and len(sizes) > 1] == []


def test_only_linear_layers_are_quantized() -> None:
    facts = facts_of_config(presets()["meta-llama/Llama-2-7b-hf"])
    n = counts(facts, Model(lora=Lora(r=64), quantization="nf4"))
    assert n is not None
    embeddings_and_norms = 2 * 32000 * 4096 + 65 * 4096
    stored = n.frozen_bytes * 6_738_415_616
    assert stored == pytest.approx((6_738_415_616 - embeddings_and_norms) * 0.516 + 2 * embeddings_and_norms, rel=0.002)
    assert n.trained == n.adapters == 159_907_840


def test_frozen_part_is_what_the_plan_does_not_train() -> None:
    n = counts(facts_of_config(presets()["google/gemma-3-4b-it"]), Model(trainable=3.88e9))
    assert n is not None and (n.trained, n.frozen) == (3_880_000_000, 4_300_079_472 - 3_880_000_000)


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({}, "no model_type"),
        ({"model_type": "rwkv"}, "the architecture 'rwkv' is not known here"),
        ({"model_type": "llama"}, "has no hidden_size"),
        ({"model_type": "llama", **SMALL, "hidden_size": -4}, "hidden_size is '-4', but must be between"),
        ({"model_type": "llama", **SMALL, "num_hidden_layers": 10**9}, "num_hidden_layers is '1000000000'"),
        ({"model_type": "llama", **SMALL, "vocab_size": "many"}, "vocab_size is 'many'"),
        ({"model_type": "llama", **SMALL, "num_attention_heads": True}, "num_attention_heads is 'True'"),
        ({"model_type": "gemma3"}, "has no section text_config"),
        ({"model_type": ["llama"]}, "no model_type"),
    ],
)
def test_uncountable_model_is_reported_and_never_guessed(config: dict[str, Any], says: str) -> None:
    with pytest.raises(ModelProblem) as refused:
        architecture(config)
    assert says in str(refused.value)
    assert facts_of_config(config).params is None


@pytest.mark.parametrize(("params", "hidden"), [(1.1e9, 2048), (6.7e9, 4096), (13e9, 5120), (65e9, 8192)])
def test_parameter_count_alone_is_a_decoder_of_usual_shape(params: float, hidden: int) -> None:
    facts = facts_of_params(params)
    assert facts.shape is not None and facts.architecture is None and facts.hidden is None
    assert facts.shape.hidden == pytest.approx(hidden, rel=0.15)
    assert facts.notes
