"""Keys of DeepSpeed that affect memory or speed but are not in the forecast: they are listed as unknown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

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
