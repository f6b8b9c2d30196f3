"""The facts of a model: its tensors, or only its number of parameters, or why neither is known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from dstui.base.dataclass import dataclass
from dstui.forecast.architecture import KNOWN, NOT_ALL_ATTENTION, Architecture, Config, ModelProblem, TensorShape, architecture
from dstui.plan.model import Lora, Model

if TYPE_CHECKING:
    from dstui.adopt.script import NoScript, ScriptFacts

QUANTIZED = {"int8": 1.0 + 4 / 4096, "nf4": 0.5 + 1 / 64 + 4 / (64 * 256)}
"""Bytes per weight: bitsandbytes' int8 has a scale per row; nf4 has an 8-bit scale per 64 weights, and a 32-bit one per 256 of these."""
STORED = QUANTIZED | {"4 bits": 0.5 + 2.5 / 128, "8 bits": 1 + 3 / 128}
"""The same, and of checkpoints made by GPTQ and AWQ: a scale of 16 bits and a zero point for each 128 weights."""
UNSURE, GUESSED = 1.15, 1.3
"""Factors that widen the range if the model's shape is a stand-in, and if its size is also a guess."""
STAND_IN = "the model's shape is unknown: activations are those of a LLaMA-like decoder of its size (set model.source)"


@dataclass(frozen=True, kw_only=True)
class ModelFacts:
    """A model as the forecast needs it. Create one with `facts_of_config`, `facts_of_params` or `unknown_model`."""

    source: str
    """The source of the facts, for a sentence: config.json, its weights, a preset, the Plan."""
    params: int | None = None
    architecture: Architecture | None = None
    problem: str = ""
    """The reason why it is unknown, and what to do; empty if it is known."""
    notes: tuple[str, ...] = ()
    """Assumptions."""
    by_name: bool = False
    """True if it is only taken for a fine-tune of a known model, by its name."""
    stored: str = ""
    """The form of the linear layers in the checkpoint, a key of STORED; empty if it is not quantized."""
    guess: TensorShape | None = None
    """The estimated sizes of an unknown architecture, from its configuration."""
    libraries: frozenset[str] | None = None
    """The packages that the training script imports; None if they are not known."""
    placed: str = ""
    """The type of the weights that the script puts on the GPU before DeepSpeed has them: as written, "default", or "" for none."""
    options: Mapping[str, str] = field(default_factory=dict)
    """Batch and precision from the YAML files that the script's arguments name."""
    memo: dict[Any, Any] = field(default_factory=dict, repr=False, compare=False)
    """Results for settings of the Plan, cached because forecasts are made at each keystroke."""

    @cached_property
    def shape(self) -> TensorShape | None:
        """The sizes that determine the activations; those of a stand-in if only the number of parameters is known."""
        if self.architecture:
            return self.architecture.shape
        return self.guess or (stand_in(self.params) if self.params else None)

    def for_script(self, script: ScriptFacts | NoScript | None) -> ModelFacts:
        """Return the facts with the packages that the training script imports, and how it loads the model."""
        return replace(self, libraries=getattr(script, "packages", None), placed=getattr(script, "placed", ""))

    @property
    def widening(self) -> float:
        """The factor by which a range is wider if the shape is a stand-in, or the model is known by its name, or its size is a guess."""
        return GUESSED if self.guess else UNSURE if self.architecture is None or self.by_name else 1.0

    @property
    def hidden(self) -> int | None:
        """The hidden size that replaces "auto"; None if only the number of parameters is known."""
        shape = self.architecture.shape if self.architecture else self.guess
        return shape.hidden if shape else None


@dataclass(frozen=True, slots=True)
class Counts:
    """The numbers of trained and frozen parameters, and their bytes."""

    params: int
    trained: int
    frozen: int
    frozen_bytes: float
    """Mean bytes of a frozen parameter; 0.0 if it has the model's own type."""
    adapters: int
    """Trained parameters that LoRA adds, included in `params`."""
    largest: int
    """Parameters of the largest tensor."""
    largest_trained: int
    layer: int
    head: int
    """Parameters of the tensor that computes the logits."""
    experts: int
    """Parameters of experts."""
    small: int
    """Parameters in tensors below stage 3's persistence threshold."""
    adapted: tuple[float, float] = (0.0, 0.0)
    """Elements per token that LoRA's layers read, with dropout three times, and that they write."""
    unpacked: tuple[float, float] = (0.0, 0.0)
    """Bytes that unpacking a frozen parameter moves in a forward and in a backward pass."""


def facts_of_config(config: Mapping[str, Any], source: str = "config.json") -> ModelFacts:
    """Read a `config.json`. `problem` is set if its parameters cannot be counted."""
    try:
        found = architecture(config)
    except ModelProblem as problem:
        return _guessed(config, source) or unknown_model(source, str(problem))
    notes = (NOTES[found.kind],) if found.kind in NOTES else (NOT_MEASURED.format(found.kind),) if found.kind in NOT_ALL_ATTENTION else ()
    facts = ModelFacts(source=source, params=found.params, architecture=found, notes=notes)
    return stored_as(facts, _stored_by(config)) if isinstance(config.get("quantization_config"), Mapping) else facts


def _stored_by(config: Mapping[str, Any]) -> str:
    """Return how the `quantization_config` of a file says that its linear layers are stored; "" if it is not known."""
    c = Config(config).part("quantization_config")
    if c.text("quant_method") in ("gptq", "awq"):
        return next((stored for bits, stored in ((4, "4 bits"), (8, "8 bits")) if c.value("bits") == bits), "")
    return "nf4" if c.flag(("load_in_4bit", False)) else "int8" if c.flag(("load_in_8bit", False)) else ""


def stored_as(facts: ModelFacts, stored: str) -> ModelFacts:
    """Return the facts of a checkpoint whose linear layers are stored in fewer bits, with a sentence about them."""
    if not stored or facts.problem:
        return facts
    bits = 4 if stored in ("nf4", "4 bits") else 8
    note = QUANTIZED_COPY.format(bits, STORED[stored])
    return replace(facts, stored=stored, notes=(*facts.notes, note), memo={})


QUANTIZED_COPY = (
    "the checkpoint holds its linear layers in {} bits ({:.2f} bytes a weight): only adapters of it can be trained (model.lora), "
    "so train the model that it was made from to train everything"
)


THINKER = "of an Omni model, the thinker is counted, which reads and writes text: scripts train it alone, without the talker"
NOTES: Mapping[str, str] = {
    "whisper": "Whisper's encoder reads 1500 positions of each audio, whatever the length of its text: set model.sequence_length: 1500",
    "qwen2_5_omni": THINKER,
    "qwen3_omni_moe": THINKER,
    "deepseek_v4": "DeepSeek-V4's activations were not measured: those of other mixtures are assumed, with all its residual streams",
}
"""`model_type` -> what its forecast assumes."""
NOT_MEASURED = "the activations of {}'s layers without attention were not measured: those of layers with attention are assumed"


def _guessed(config: Mapping[str, Any], source: str) -> ModelFacts | None:
    """Return a conservative estimate of an unknown architecture from the keys of most decoders; None if those are missing."""
    kind, c = config.get("model_type"), Config(config)
    if not isinstance(kind, str) or kind in KNOWN or not kind:
        return None
    try:
        hidden = c.number("hidden_size", "n_embd", "d_model")
        layers = c.number("num_hidden_layers", "n_layer", "n_layers", most=10_000)
        heads = c.number("num_attention_heads", "n_head", "n_heads", default=max(hidden // 128, 1))
        vocabulary = c.number("vocab_size")
        ffn = c.number("intermediate_size", "n_inner", "ffn_hidden_size", default=4 * hidden)
        experts = c.number("num_experts", "num_local_experts", "n_routed_experts", default=1)
        used = min(c.number("num_experts_per_tok", "moe_top_k", default=1), experts)
        width = c.number("moe_intermediate_size", default=ffn)
    except ModelProblem:
        return None
    mlp = 3 * hidden * (experts * width if experts > 1 else ffn)
    params = layers * (4 * hidden * hidden + mlp + 2 * hidden) + 2 * vocabulary * hidden
    shape = TensorShape(
        family="llama", hidden=hidden, layers=layers, heads=heads, kv_heads=heads, head_dim=max(hidden // heads, 1),
        ffn=used * width if experts > 1 else ffn, vocabulary=vocabulary, positions=0,
    )  # fmt: skip
    note = f"the architecture {kind[:80]!r} is not known: its size is a guess from config.json, rather too large (set model.params)"
    return ModelFacts(source=source, params=params, guess=shape, notes=(note,))


def facts_of_params(params: float, source: str = "model.params") -> ModelFacts:
    """Return the facts for a mere number of parameters."""
    return ModelFacts(source=source, params=int(params), notes=(STAND_IN,))


def unknown_model(source: str, problem: str) -> ModelFacts:
    """Return a model without facts, with the reason."""
    return ModelFacts(source=source, problem=problem)


def stand_in(params: int) -> TensorShape:
    """Return a LLaMA-like decoder with about this many parameters and 128 hidden units per layer, as in that family."""
    hidden = max(round((params / 12 / 0.0095) ** (1 / 3) / 64) * 64, 64)  # 12 h^2 per layer, h / 105 layers
    layers = max(round(params / (12 * hidden * hidden)), 1)
    heads = max(hidden // 128, 1)
    return TensorShape(
        family="llama",
        hidden=hidden,
        layers=layers,
        heads=heads,
        kv_heads=heads,
        head_dim=128,
        ffn=int(hidden * 8 / 3),
        vocabulary=min(32000 if params > 5e8 else 50257, max(params // (2 * hidden), 64)),
        positions=0,
    )


def counts(facts: ModelFacts, model: Model | None, *, persistence: int = 0, split_experts: bool = False) -> Counts | None:
    """Return how the parameters of a model are trained under a Plan's `model:`; None if their number is unknown.

    `split_experts`: each expert has linear layers of its own, which quantization compresses.
    """
    lora, trainable, stored = (model.lora, model.trainable, model.quantization or facts.stored) if model else (None, None, facts.stored)
    key = (lora, trainable, stored, persistence, split_experts)
    if key not in facts.memo:
        facts.memo[key] = _counts(facts, lora, trainable, stored, persistence, split_experts)
    found: Counts | None = facts.memo[key]
    return found


def _counts(  # noqa: PLR0913, PLR0917 - the settings of a Plan that decide
    facts: ModelFacts, lora: Lora | None, trainable: float | None, stored: str | None, persistence: int, split_experts: bool
) -> Counts | None:
    if facts.params is None:
        return None
    base, arch = facts.params, facts.architecture
    adapters = adapter_params(facts, lora) if lora else 0
    trained = adapters if lora else base
    if trainable is not None:
        trained = min(int(trainable), base + adapters)
    params = base + adapters
    shape = facts.shape
    assert shape is not None
    largest = arch.largest if arch else max(shape.vocabulary, shape.ffn) * shape.hidden
    return Counts(
        params=params,
        trained=trained,
        frozen=params - trained,
        frozen_bytes=_frozen_bytes(facts, stored, split_experts) if stored else 0.0,
        adapters=adapters,
        largest=largest,
        largest_trained=min(largest, trained) if not lora else max((lora.r * n for n in _widths(facts)), default=0),
        layer=arch.layer if arch else base // shape.layers,
        head=arch.head if arch else shape.vocabulary * shape.hidden,
        experts=sum(t.size * t.times for t in arch.tensors if t.kind == "experts") if arch else 0,
        small=sum(t.size * t.times for t in arch.tensors if t.size < persistence) + adapters * _all_small(facts, lora, persistence)
        if arch
        else 0,
        adapted=_adapter_traffic(facts, lora) if lora else (0.0, 0.0),
        unpacked=_unpacking(stored) if stored else (0.0, 0.0),
    )


def _adapter_traffic(facts: ModelFacts, lora: Lora) -> tuple[float, float]:
    """Return the elements per token that the adapted layers of the whole model read and write; of a stand-in, by its shape."""
    reads = 3 if lora.dropout else 1
    if facts.architecture:
        layers = list(facts.architecture.targets(lora.target_modules))
        return float(sum(reads * t.shape[1] * t.times for t in layers)), float(sum(t.shape[0] * t.times for t in layers))
    shape = facts.shape
    assert shape is not None
    share = 1.0 if "all-linear" in lora.target_modules else min(len(lora.target_modules) / 7, 1.0)
    wide = (6 * shape.hidden + shape.ffn) * shape.layers * share
    return reads * wide, (5 * shape.hidden + 2 * shape.ffn) * shape.layers * share


def _all_small(facts: ModelFacts, lora: Lora | None, persistence: int) -> int:
    """Return 1 if LoRA's matrices are below the threshold, as they usually are."""
    return int(lora is not None and max((lora.r * n for n in _widths(facts)), default=0) < persistence)


def _widths(facts: ModelFacts) -> list[int]:
    return [n for t in facts.architecture.linears for n in t.shape] if facts.architecture else []


def adapter_params(facts: ModelFacts, lora: Lora) -> int:
    """Return the parameters that LoRA adds: r x (in + out) for each adapted layer; of a stand-in for an unknown architecture."""
    if facts.architecture:
        return sum(lora.r * (t.shape[0] + t.shape[1]) * t.times for t in facts.architecture.targets(lora.target_modules))
    shape = facts.shape
    assert shape is not None
    of_all = 4 * 2 * shape.hidden + 3 * (shape.hidden + shape.ffn)
    share = 1.0 if "all-linear" in lora.target_modules else min(len(lora.target_modules) / 7, 1.0)
    return int(lora.r * of_all * shape.layers * share)


ALWAYS_FUSED = frozenset({"gpt_oss", "llama4", "llama4_text", "granitemoe"})
"""Architectures whose experts were one tensor before transformers 5 already."""


WHOLE_EXPERTS = (
    "the experts stay in 16 bits: since transformers 5 those of a layer are one tensor, which bitsandbytes does not quantize; "
    "with transformers 4 they are quantized too"
)


def has_whole_experts(facts: ModelFacts, model: Model | None, split_experts: bool) -> bool:
    """Return whether a quantized model has experts that only an older release of transformers would quantize."""
    arch = facts.architecture
    quantized = bool((model and model.quantization) or facts.stored) and not split_experts
    return quantized and arch is not None and arch.shape.experts > 0 and arch.kind not in ALWAYS_FUSED


def _frozen_bytes(facts: ModelFacts, stored: str, split_experts: bool) -> float:
    """Return the mean bytes of a frozen parameter: linear layers are quantized, while embeddings, head and norms have 16 bits.

    So have experts that are one tensor (transformers/integrations/bitsandbytes.py replaces linear layers only).
    """
    arch, of_linear = facts.architecture, STORED[stored]
    if arch is None:
        return 0.95 * of_linear + 0.05 * 2
    linear = sum(t.size * t.times for t in arch.linears)
    if split_experts and arch.kind not in ALWAYS_FUSED:
        linear += sum(t.size * t.times for t in arch.tensors if t.kind == "experts")
    return (linear * of_linear + (arch.params - linear) * 2) / arch.params


BY_TORCH = 16.5
"""Bytes per weight that GPTQ's layers move while they are trained, in torch's operations: shift (read 0.5, write 4), to 8 bits (4, 1), mask
(1, 1), zeros (1, 1), scales (1, 2). The backward pass finds the result (AutoGPTQ, nn_modules/qlinear/qlinear_cuda_old.py)."""


def _unpacking(stored: str) -> tuple[float, float]:
    """Return the bytes that both passes move to unpack a weight: bitsandbytes reads it and writes 16 bits, in each."""
    by_kernel = STORED[stored] + 2
    return (by_kernel, by_kernel) if stored in QUANTIZED else (BY_TORCH, 0.0)


def adapted_elements(facts: ModelFacts, model: Model | None) -> float:
    """Return the elements per token and layer that LoRA keeps.

    They are the input of each adapted layer (shared by layers that read the same tensor; the attention's output is kept anyway); with
    dropout twice, plus a mask.
    """
    lora, arch = model.lora if model else None, facts.architecture
    if lora is None:
        return 0.0
    key = ("adapted", lora)
    if key not in facts.memo:
        facts.memo[key] = 0.0
        if arch is not None:
            groups = [set(group) for group in arch.groups]
            met, total = set[int](), 0.0
            for t in arch.targets(lora.target_modules):
                group = next((number for number, names in enumerate(groups) if t.module in names), None)
                layers = t.times / max(arch.shape.layers, 1)
                if group is None or group not in met:
                    total += t.shape[1] * min(layers, 1)
                    met |= {group} if group is not None else set()
                total += (t.shape[1] * 1.5 if lora.dropout else 0) * min(layers, 1) + 2 * lora.r
            facts.memo[key] = total
    found: float = facts.memo[key]
    return found
