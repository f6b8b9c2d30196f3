"""Signatures of what ZeRO 3 partitions, and of what makes ZeRO slow."""

from __future__ import annotations

from dstui.diagnosis import patches
from dstui.diagnosis.signature import Remedy, Signature, rx

SIGNATURES = (
    Signature(
        "Z3-SIZE0",
        "root",
        "A parameter that ZeRO 3 has partitioned was used as if it were complete",
        "Outside of a module's forward it has size 0: loading, resizing or saving must gather it.",
        (
            rx("copying a param with shape", r"copying a param with shape torch\.Size\(\[[01]?\]\)"),
            rx("torch.Size([0])", r"torch\.Size\(\[0\]\)"),
        ),
        (
            "from_pretrained under HfDeepSpeedConfig; `with deepspeed.zero.GatheredParameters(…)`",
            "zero_to_fp32.py consolidates the weights of a checkpoint",
            patches.WHOLE_PARAMETERS,
        ),
        "[0] in the checkpoint: it was saved without gathering; [0] in the model: it is loaded without gathering.",
        explains=("CKPT-SHAPE", "USER-SHAPE", "MODEL-LOAD"),
        alike=("CKPT-SHAPE", "Z3-PARTITIONED"),
        source="torch/nn/modules/module.py:_load_from_state_dict",
    ),
    Signature(
        "Z3-GATHER-NESTED",
        "root",
        "Two nested GatheredParameters contexts gather the same parameter",
        "DeepSpeed gathers a parameter once: the inner context would release what the outer one still uses.",
        ("Nested GatheredParameters contexts cannot overlap parameters",),
        (
            "Gather each parameter in one context: leave it out of the inner `with deepspeed.zero.GatheredParameters(…)`",
            patches.WHOLE_PARAMETERS,
        ),
        "The traceback names the inner context; the message has the ds_id of each parameter.",
        source="deepspeed/runtime/zero/partition_parameters.py:GatheredParameters",
    ),
    Signature(
        "Z3-PARTITIONED",
        "root",
        "A partitioned weight was used outside its module",
        "A second model that was not prepared, an average of weights, or a custom op reads it while it is empty.",
        (
            rx("storage of size 0", r"setStorage: sizes .*storage of size 0"),
            "'weight' must be 2-D",
            rx("but got weight of shape [", r"but got weight of shape \[0\]"),
            "weight should have at least three dimensions",
            rx("mat1 and mat2 shapes cannot be multiplied", r"mat1 and mat2 shapes cannot be multiplied \(.*\b0x"),
        ),
        ("Gather the parameters, or prepare the second model with DeepSpeed too", patches.WHOLE_PARAMETERS),
        explains=("USER-SHAPE",),
        sure=False,
        alike=("USER-SHAPE", "Z3-SIZE0"),
        confirm="print(parameter.shape) in that line: torch.Size([0]).",
    ),
    Signature(
        "Z3-INFLIGHT",
        "root",
        "Modules ran in another order than ZeRO 3 expected",
        "The order changes between steps or ranks: generate(), experts, unused or tied modules.",
        (
            "still have inflight params",
            "assert param.ds_status == ZeroParamStatus",
            "not in self.__inflight_param_registry",
            rx("'status': '", r"'status': '(?:NOT_AVAILABLE|INFLIGHT)'"),
        ),
        (Remedy("No prefetch of parameters", patches.no_prefetch), "deepspeed.utils.set_z3_leaf_modules", "Upgrade DeepSpeed"),
        in_code=True,
        alike=("Z3-HANG-MOE",),
        source="deepspeed/runtime/zero/partitioned_param_coordinator.py:_fetch_sub_module_impl",
        confirm="The same run with stage3_prefetch_bucket_size: 0 continues.",
    ),
    Signature(
        "OFFLOAD-SLOW",
        "performance",
        "The optimizer on the CPU is what takes the time",
        "With one thread per rank (OMP_NUM_THREADS=1, torchrun's default) Adam on the CPU is slow.",
        (rx("step: ", r"\bstep: \d{5,}\.\d+"), rx("step_microstep: ", r"\bstep_microstep: \d{5,}\.\d+")),
        (Remedy("Give each rank its cores", patches.setting("cluster.cpu_binding", "deepspeed")), "OMP_NUM_THREADS = cores per rank"),
    ),
    Signature(
        "CACHE-FLUSH",
        "performance",
        "Memory is so tight that PyTorch flushes its cache",
        "Steps take twice to ten times as long.",
        ("pytorch allocator cache flushes since last step",),
        (Remedy("Halve the micro-batch and double the accumulation", patches.halve_micro_batch),),
        source="deepspeed/runtime/zero/stage3.py:step",
    ),
)
