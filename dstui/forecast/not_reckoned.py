"""List what a forecast leaves out and reports as unknown: keys of DeepSpeed, and what RLHF holds beside the model."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from dstui.check.context import Context

NOT_RECKONED: Mapping[str, str] = {
    "activation_checkpointing.partition_activations": "checkpoints are split over the ranks of a model: less memory of the GPU",
    "zero_optimization.mics_shard_size": "the model is split over fewer ranks: more memory of the GPU, less traffic between the nodes",
    "pipeline": "a script with stages of a pipeline holds a part of the layers on each rank",
    "compile": "compiled code keeps other activations, and is faster",
    "hybrid_engine.enabled": "generation holds caches and buffers of its own",
}
"""Path -> the effect of the key, as the end of a sentence."""


def not_reckoned(c: Context) -> Iterator[str]:
    """Yield a sentence for each of these keys that the configuration enables."""
    for path, effect in NOT_RECKONED.items():
        if _is_on(c.flat.get(path)):
            yield f"{path} is not considered: {effect}"


def _is_on(value: object) -> bool:
    """Return whether a value enables a key: a non-empty section, true, or a number above 0."""
    if isinstance(value, Mapping):
        return any(not isinstance(inner, bool) or inner for inner in value.values())
    return value is True or (isinstance(value, int) and value > 0)


VLLM = (
    "vLLM shares the training's GPUs: only the upper end of the GPU's range includes the {:.0%} of the GPU that it may hold "
    "while the model trains (vllm_enable_sleep_mode frees it)"
)
REFERENCE = "only the upper end of the GPU's range includes a reference model, which the script may hold beside the trained one"
VLLM_SHARE, SWIFT_VLLM_SHARE = 0.3, 0.9
"""Default shares of the GPU that vLLM takes, in TRL and in ms-swift."""
_WITH_REFERENCE = re.compile(r"(?:^|[^a-z])(?:dpo|kto|ppo)(?:[^a-z]|$)")


def beside(options: Mapping[str, str], words: Sequence[str], gpu: int | None, weights: float, swift: bool) -> Iterator[tuple[str, float]]:
    """Yield a sentence and the bytes of each GPU for what RLHF holds beside the trained model, whose `weights` a GPU holds.

    `words` are the script, or the program and its subcommand. A reference model is recognized by their names or the method's.
    """
    if options.get("vllm_mode") == "colocate":
        share = _share(options.get("vllm_gpu_memory_utilization"), SWIFT_VLLM_SHARE if swift else VLLM_SHARE)
        asleep = any(options.get(name, "").lower() == "true" for name in ("vllm_enable_sleep_mode", "offload_model"))
        asleep = asleep or options.get("sleep_level", "0") not in {"0", "None"}
        if not asleep:
            yield VLLM.format(share), share * (gpu or 0)
    named = [word.rpartition("/")[2] for word in words if not word.startswith("-")]
    method = (options.get("rlhf_type", "dpo" if "rlhf" in named else ""), options.get("stage", ""), *named)
    if weights and any(_WITH_REFERENCE.search(word.lower()) for word in method):
        yield REFERENCE, weights


def _share(given: str | None, default: float) -> float:
    try:
        return min(max(float(given or default), 0.0), 1.0)
    except ValueError:
        return default
