"""Where the words of a cause come from: the file, and the function in it, of DeepSpeed 0.19 or of a library beside it."""

from __future__ import annotations

RUNNER, LAUNCH = "deepspeed/launcher/runner.py", "deepspeed/launcher/launch.py"
CONFIG, ENGINE = "deepspeed/runtime/config.py", "deepspeed/runtime/engine.py"
BUILDER = "deepspeed/ops/op_builder/builder.py"
COORDINATOR = "deepspeed/runtime/zero/partitioned_param_coordinator.py"
LOADER, MODULE = "torch/utils/data/dataloader.py", "torch/nn/modules/module.py"

SOURCES: dict[str, tuple[str, str]] = {
    "AIO-NOTE": ("deepspeed/ops/op_builder/async_io.py", "is_compatible"),
    "BATCH-ASSERT": (CONFIG, "_batch_assertion"),
    "BATCH-MISSING": (CONFIG, "_set_batch_related_parameters"),
    "BOTH-PRECISION": (CONFIG, "_initialize_params"),
    "CACHE-FLUSH": ("deepspeed/runtime/zero/stage3.py", "step"),
    "CKPT-FOLDER": ("deepspeed/utils/zero_to_fp32.py", "get_fp32_state_dict_from_zero_checkpoint"),
    "CKPT-LATEST": (ENGINE, "load_checkpoint"),
    "CKPT-RANK0-HANG": (ENGINE, "save_checkpoint"),
    "CKPT-SHAPE": (MODULE, "load_state_dict"),
    "CKPT-WEIGHTS-ONLY": ("torch/serialization.py", "load"),
    "CONFIG-ASSERT": (CONFIG, "_do_error_check"),
    "CONFIG-PATH": (CONFIG, "__init__"),
    "CPUADAM-ATTR": ("deepspeed/ops/adam/cpu_adam.py", "__init__"),
    "CTRL-C": (LAUNCH, "sigkill_handler"),
    "CUDA-MISMATCH": (BUILDER, "assert_no_cuda_mismatch"),
    "CVD-IGNORED": (RUNNER, "main"),
    "DEVICE-MAP-Z3": ("transformers/integrations/accelerate.py", "check_and_set_device_map"),
    "DL-WORKER": (LOADER, "_try_get_data"),
    "DTYPE-UNSUPPORTED": (ENGINE, "_do_sanity_check"),
    "DUP-KEY": ("deepspeed/runtime/config_utils.py", "dict_raise_error_on_duplicate_keys"),
    "EARLY-EXIT": (LAUNCH, "sigkill_handler"),
    "ENV-RANK-MISSING": ("torch/distributed/rendezvous.py", "_env_error"),
    "EXCLUDE-ALL": (RUNNER, "main"),
    "GATHER16": (ENGINE, "save_16bit_model"),
    "HF-MISMATCH": ("transformers/integrations/deepspeed.py", "trainer_config_finalize"),
    "HOSTFILE-BAD": (RUNNER, "_parse_hostfile"),
    "HOSTFILE-IGNORED": (RUNNER, "fetch_hostfile"),
    "INCLUDE-BAD": (RUNNER, "parse_resource_filter"),
    "LOCAL-RANK-ARG": (LAUNCH, "main"),
    "LOSS-SCALE-MIN": ("deepspeed/runtime/fp16/loss_scaler.py", "update_scale"),
    "MASTER-ADDR": (RUNNER, "main"),
    "MODEL-FILES": ("transformers/utils/hub.py", "cached_files"),
    "MPI-NOTE": ("deepspeed/comm/comm.py", "init_distributed"),
    "MPI4PY": ("deepspeed/comm/comm.py", "mpi_discovery"),
    "NINJA-MISSING": (BUILDER, "jit_load"),
    "NO-GPU": (RUNNER, "main"),
    "NO-GPU-QUIET": ("deepspeed/accelerator/real_accelerator.py", "get_accelerator"),
    "NO-INTERNET": ("transformers/utils/hub.py", "cached_files"),
    "NO-NVCC": (BUILDER, "installed_cuda_version"),
    "NO-SYNC": (ENGINE, "no_sync"),
    "NOHOSTFILE-NOTE": (RUNNER, "fetch_hostfile"),
    "NUM-NODES-LOCAL": (RUNNER, "main"),
    "OP-ABI": (BUILDER, "validate_torch_version"),
    "OP-BUILD": (BUILDER, "jit_load"),
    "OPT-SCHED-NAME": (ENGINE, "_scheduler_from_config"),
    "PDSH-MISSING": (RUNNER, "main"),
    "SSH-CHECK": (RUNNER, "main"),
    "TOO-MANY-FILES": (LOADER, "_try_get_data"),
    "UNKNOWN-KEY": ("deepspeed/runtime/config_utils.py", "DeepSpeedConfigModel"),
    "Z3-HANG-MOE": ("deepspeed/runtime/zero/parameter_offload.py", "_bwd_hook_unexpected_inputs_msg"),
    "Z3-INFLIGHT": (COORDINATOR, "_fetch_sub_module_impl"),
    "Z3-SIZE0": (MODULE, "_load_from_state_dict"),
    "Z3-TRACE": (COORDINATOR, "trace_prologue"),
}
"""Id of a signature -> file, function or class. What the kernel, the driver, NCCL or SLURM say has none."""
