"""Configurations that DeepSpeed's parser accepts, but `deepspeed.initialize` may refuse."""

from __future__ import annotations

import copy

from cases import ADAM
from hypothesis import strategies as st

from configs import put
from dstui.check import check_config
from dstui.check.reference import ReferenceChecker, add_float_types
from tests.machines import NO_GPU

KEYS = {
    "zero_optimization.stage": (0, 1, 2, 3),
    "zero_optimization.overlap_comm": (True, False),
    "zero_optimization.reduce_scatter": (True, False),
    "zero_optimization.allgather_bucket_size": (5, 1000),
    "zero_optimization.round_robin_gradients": (True,),
    "zero_optimization.zero_hpz_partition_size": (1, 2, 3),
    "zero_optimization.zero_quantized_weights": (True,),
    "zero_optimization.compute_grad_norm": (False,),
    "zero_optimization.legacy_stage1": (True,),
    "bf16.enabled": (True, False),
    "fp16.enabled": (True,),
    "bf16.bf16_master_weights_and_grads": (True,),
    "data_types.grad_accum_dtype": ("fp32", "bf16", "fp64"),
    "data_types.param_dtype": ("bf16", "fp32"),
    "gradient_predivide_factor": (1.0, 2.0),
    "prescale_gradients": (True, False),
    "gradient_clipping": (0, 1.0),
    "gradient_allreduce_op": ("mean", "sum"),
    "managed_gradient_accumulation": (False, True),
    "log_level": ("info", "loud"),
    "optimizer": (
        {"type": "SGD", "params": {"lr": 0.1}},
        {"type": "sgd", "params": {"lr": 0.1}},
        {"type": "AdamW", "params": {"lr": 0.1, "torch_adam": True, "max_grad_norm": 1.0}},
        {"type": "AdamW", "params": {"lr": 0.1, "torch_adam": True, "foo": 1}},
        {"type": "Lamb", "params": {"lr": 0.1}},
        {"type": "RMSprop", "params": {"lr": 0.1, "momentum": 0.5}},
        {"type": "Adagrad", "params": {"lr": 0.1}},
        {"type": "Adam", "params": {"lr": "1e-3", "torch_adam": True}},
        {"type": "AdamW", "params": {"lr": 0.1, "amsgrad": True, "torch_adam": True}},
        {"type": "AdamW", "params": {"lr": 0.1, "amsgrad": True}},
        {"type": "Adafactor", "params": {"lr": 0.1}},
    ),
    "zero_allow_untested_optimizer": (True,),
    "scheduler": (
        {"type": "OneCycle", "params": {"cycle_min_lr": 1e-4, "cycle_max_lr": 1e-3}},
        {"type": "OneCycle", "params": {"cycle_max_lr": 1e-3}},
        {"type": "LRRangeTest", "params": {"lr_range_test_step_size": 0}},
        {"type": "WarmupCosineLR", "params": {"total_num_steps": 10, "warmup_num_steps": 2, "foo": 1}},
        {"type": "WarmupLR", "params": {"warmup_max_lr": "1e-3", "warmup_num_steps": 5}},
        {"type": "WarmupLR", "params": {"warmup_type": "cosine"}},
        {"type": "ExponentialLR", "params": {"gamma": 0.9}},
        {"type": "WarmupLR", "params": {"warmup_num_steps": 5}},
        {"type": "WarmupLR", "params": {"warmup_num_steps": 0}},
        {"type": "WarmupLR"},
        {"type": "WarmupDecayLR", "params": {}},
        {"type": "StepLR", "params": {"step_size": 1}},
        {"type": "Nope", "params": {}},
    ),
    "checkpoint.writer": ({"type": "python"}, {"type": "python", "data_parallel": "replica"}),
    "tensor_parallel.autotp_size": (0, 1),
    "zero_optimization.offload_optimizer": ({"device": "cpu"}, {"device": "cpu", "ratio": 0.5}, {"device": "none"}, {}),
    "zero_optimization.offload_param": ({"device": "cpu"}, {"device": "cpu", "pin_memory": False}),
    "zero_optimization.contiguous_gradients": (False,),
    "zero_optimization.reduce_bucket_size": (1, 1000),
    "zero_optimization.zero_quantized_gradients": (True,),
    "zero_optimization.stage3_gather_16bit_weights_on_model_save": (True,),
    "zero_optimization.cpu_offload": (False,),
    "zero_optimization.elastic_checkpoint": (True,),
    "data_types.buffer_dtype": ("fp32", "fp8"),
    "torch_autocast": ({"enabled": True, "dtype": "bfloat16"}, {"enabled": True, "lower_precision_safe_modules": ["Linear"]}),
    "hybrid_engine.enabled": (False,),
    "expert_parallel": ({"enabled": True, "autoep_size": 3}, {"enabled": True, "autoep_size": 2, "preset_model": "zzz"}, {}),
    "sequence_parallel_size": (1, 2),
    "data_parallel_size": (1, 2),
    "flops_profiler.enabled": (True,),
    "csv_monitor.enabled": (False,),
    "activation_checkpointing.partition_activations": (True,),
    "comms_logger.enabled": (True,),
    "wall_clock_breakdown": (True,),
    "zero_force_ds_cpu_optimizer": (False,),
    "steps_per_print": (0, 10, "x"),
    "vocabulary_size": (7, 8),
    "disable_allgather": (True,),
    "dump_state": (True,),
}


@st.composite
def engines(draw: st.DrawFn) -> dict[str, object]:
    """Draw a configuration that the parser accepts, but `initialize` may refuse."""
    config: dict[str, object] = {"train_micro_batch_size_per_gpu": 1, **copy.deepcopy(ADAM)}
    put(config, "zero_optimization.stage", draw(st.sampled_from((0, 1, 2, 3))))
    for path in draw(st.lists(st.sampled_from(sorted(KEYS)), max_size=4, unique=True)):
        put(config, path, draw(st.sampled_from(KEYS[path])))
    return config


def difference(config: dict[str, object], engine: ReferenceChecker) -> str:
    """Return how dstui's verdict differs from `deepspeed.initialize` on two CPU ranks; empty if it does not."""
    theirs = engine.validate(config, 2)
    if theirs.message == "Type fp16 is not supported on your device.":
        return ""  # depends on this CPU, not on the configuration
    ours = [
        f
        for f in check_config(config, add_float_types(NO_GPU, engine.types()), world_size=2)
        if f.severity == "error" and f.when in ("parse", "initialize")
    ]
    if theirs.ok == (not ours):
        return ""
    return f"{config}: DeepSpeed says {theirs.kind} {theirs.message[:200]}, we say {[f.code for f in ours]}"
