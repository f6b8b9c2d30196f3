"""Explain the parts of a forecast to readers who do not know DeepSpeed's words for them."""

from __future__ import annotations

from collections.abc import Mapping

from dstui.machine.report import format_size

PART_WORDS: Mapping[str, str] = {
    "weights": "the model, as it computes",
    "master_weights": "the optimizer's 32-bit copy",
    "optimizer_states": "momentum, variance",
    "gradients": "of the backward pass",
    "accumulated_gradients": "summed until the step",
    "activations": "kept for the backward pass",
    "logits_and_loss": "tokens x vocabulary, at the loss",
    "live_weights": "gathered from all GPUs, in use",
    "gather_buffers": "where they are gathered, reduced",
    "reduce_buckets": "gradients on their way",
    "persistent_weights": "small ones, whole on every GPU",
    "secondary_weights": "a second copy (hpZ)",
    "selected_columns": "ZenFlow's important gradients",
    "offload_buffers": "on their way to RAM",
    "swap_buffers": "on their way to NVMe",
    "weights_to_copy": "updated, to be copied back",
    "step_buffers": "temporary, in the optimizer step",
    "initialization": "temporary, as the engine starts",
    "load and build": "before the weights are on a GPU",
    "save as one file": "all weights, on rank 0",
    "processes": "Python, torch, libraries, CUDA's",
    "allocator": "lost to fragments",
    "cuda_context": "CUDA itself",
    "nccl_buffers": "communication between GPUs",
}
"""Part -> its explanation, in at most 33 characters."""


def part_name(part: str) -> str:
    """Return the name of a part as people write it: `CUDA context`."""
    return part.replace("_", " ").replace("cuda", "CUDA").replace("nccl", "NCCL")


def measure_words(shown: int | None, allocated: int | None) -> str:
    """Say which figures other programs give for a GPU of the job; empty if there are none."""
    if not shown or not allocated:
        return ""
    return f"nvidia-smi will show about {format_size(shown)}, torch.cuda.max_memory_allocated() about {format_size(allocated)}"
