"""Logs of failed runs, composed of parts: output of a launcher, output of ranks, and consequences of another rank's death."""

from __future__ import annotations

from pathlib import Path

from dstui.diagnosis import Diagnosis, diagnose

SAMPLES: dict[str, tuple[str, ...]] = {
    "OOM-GPU": (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.25 GiB. GPU 3 has a total capacity of 23.52 GiB of which 0.70 GiB is free.",
        "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 96.00 MiB (GPU 0; 15.78 GiB total capacity)",
        "torch.AcceleratorError: CUDA error: out of memory",
        "RuntimeError: CUDA error: out of memory",
    ),
    "ALLOC-REFUSED": (
        "RuntimeError: [enforce fail at alloc_cpu.cpp:119] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate 8589934592 bytes.",
        "OSError: [Errno 12] Cannot allocate memory",
        "MemoryError",
        "numpy.core._exceptions._ArrayMemoryError: Unable to allocate 30.0 GiB for an array with shape (4026531840,)",
    ),
    "SIGBUS-SHM": ("RuntimeError: unable to write to file </torch_77_123_0>: shared memory: unable to write to shared memory",),
    "GPU-BUSY": (
        "RuntimeError: CUDA error: all CUDA-capable devices are busy or unavailable",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of 79.15 GiB of which 12.31 MiB is "
        "free. Including non-PyTorch memory, this process has 482.00 MiB memory in use.",
        "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 32.00 MiB (GPU 0; 15.78 GiB total capacity; 0 bytes already allocated; "
        "9.12 MiB free; 0 bytes reserved in total by PyTorch)",
    ),
    "PINNED-MEM": ("RuntimeError: CUDA driver error: cudaHostAlloc refused 4 GiB",),
    "TOO-MANY-FILES": ("OSError: [Errno 24] Too many open files: '/data/shard-00017.arrow'", "RuntimeError: received 0 items of ancdata"),
    "DL-WORKER": ("RuntimeError: DataLoader worker (pid(s) 4711, 4712) exited unexpectedly",),
    "IMPORT-MISSING": (
        "ModuleNotFoundError: No module named 'flash_attn'",
        "ImportError: Please install boardlike to use 'local' mode: pip install boardlike",
    ),
    "IMPORT-VERSION": (
        "ImportError: cannot import name 'prepare_model' from 'peft' (/opt/env/lib/python3.11/site-packages/peft/__init__.py)",
    ),
    "IMPORT-TORCH": ("ImportError: cannot import name 'log' from 'torch.distributed.elastic.agent.server.api' (/opt/env/api.py)",),
    "DS-INTERNAL-VERSION": ("AttributeError: 'DeepSpeedConfig' object has no attribute 'a_flag_of_tomorrow'",),
    "CUDA-MISMATCH": (
        "deepspeed.ops.op_builder.builder.CUDAMismatchException: >- DeepSpeed Op Builder: Installed CUDA version 12.7 does not match the version "
        "torch was compiled with 11.8, unable to compile cuda/cpp extensions without a matching cuda version.",
    ),
    "NO-NVCC": (
        "deepspeed.ops.op_builder.builder.MissingCUDAException: CUDA_HOME does not exist, unable to compile CUDA op(s)",
        "FileNotFoundError: [Errno 2] No such file or directory: '/usr/local/cuda-12/bin/nvcc'",
    ),
    "OP-BUILD": ("RuntimeError: Error building extension 'cpu_adam'",),
    "PYTHON-H": ("/opt/env/csrc/cpu_adam.cpp:6:10: fatal error: Python.h: No such file or directory",),
    "LD-CURAND": ("/usr/bin/ld: cannot find -lcurand: No such file or directory",),
    "WSL-LIBCUDA": ("OSError: libcuda.so.1: cannot open shared object file: No such file or directory",),
    "INIT-HANG-NET": ("RuntimeError: NCCL error: ncclInternalError: Bootstrap : no socket interface found",),
    "VERSION-SKEW": ("RuntimeError: NCCL error: Mismatched NCCL version detected : rank 0 version 2.27.3 rank 8 version 2.21.5",),
    "NINJA-MISSING": ("RuntimeError: Ninja is required to load C++ extensions",),
    "AIO-MISSING": ("RuntimeError: Unable to JIT load the async_io op due to it not being compatible due to hardware/software issue.",),
    "OP-ABI": ("ImportError: /home/me/.cache/torch_extensions/py311/fused_adam/fused_adam.so: undefined symbol: _ZN2at4_ops5zeros4callE",),
    "LIB-MISSING": (
        "ImportError: libcusparse.so.12: cannot open shared object file: No such file or directory",
        "ImportError: /lib64/libstdc++.so.6: version `GLIBCXX_3.4.29' not found (required by /opt/env/lib/python3.11/site-packages/x.so)",
    ),
    "BNB-CUDA": ("AttributeError: /opt/env/bitsandbytes/libbitsandbytes_cpu.so: undefined symbol: cadam32bit_grad_fp32",),
    "NO-SCRIPT": (
        "/opt/env/bin/python: can't open file '/data/train_7b.py': [Errno 2] No such file or directory",
        "/opt/env/bin/python: can't open file '/data/python': [Errno 2] No such file or directory",
        "/opt/env/bin/python: Error while finding module specification for 'src.train' (ModuleNotFoundError: No module named 'src')",
    ),
    "LOCAL-RANK-ARG": (
        "train.py: error: unrecognized arguments: --local_rank=3",
        "train.py: error: unrecognized arguments: --local-rank=3",
        "ValueError: invalid literal for int() with base 10: '--local_rank=3'",
        "FileNotFoundError: [Errno 2] No such file or directory: '--local_rank=3'",
    ),
    "LOCAL-RANK-DEFAULT": ("AssertionError: Mismatch in local rank setting, args.local_rank=0 but env['LOCAL_RANK']=1.",),
    "NO-GPU": ("RuntimeError: No CUDA GPUs are available", "AssertionError: Torch not compiled with CUDA enabled"),
    "INVALID-ORDINAL": ("RuntimeError: CUDA error: invalid device ordinal",),
    "DRIVER-OLD": ("RuntimeError: The NVIDIA driver on your system is too old (found version 11040).",),
    "FABRIC": ("RuntimeError: Unexpected error from cudaGetDeviceCount(). Error 802: system not yet initialized",),
    "MPI-LINK": ("MPI communications: at least one pair of MPI processes are unable to reach each other for",),
    "MPI4PY": ("ModuleNotFoundError: No module named 'mpi4py'",),
    "ENV-RANK-MISSING": (
        "ValueError: Error initializing torch.distributed using env:// rendezvous: environment variable MASTER_ADDR expected, but not set",
        "KeyError: 'LOCAL_RANK'",
    ),
    "BATCH-ASSERT": (
        "AssertionError: Check batch related parameters. train_batch_size is not equal to micro_batch_per_gpu * gradient_acc_step * world_size 30 != 2 * 4 * 4",
    ),
    "BATCH-MISSING": ("AssertionError: Either train_batch_size or train_micro_batch_size_per_gpu needs to be provided",),
    "AUTO-UNRESOLVED": ("ValueError: Input should be a valid integer [type=int_parsing, input_value='auto', input_type=str]",),
    "UNKNOWN-KEY": ("pydantic_core._pydantic_core.ValidationError: 2 validation errors for DeepSpeedZeroConfig",),
    "DUP-KEY": ("ValueError: Duplicate keys in DeepSpeed config: ['fp16']",),
    "BOTH-PRECISION": ("AssertionError: bfloat16 and fp16 modes cannot be simultaneously enabled",),
    "OPT-SCHED-NAME": (
        "ValueError: adamx is not a supported DeepSpeed Optimizer",
        "AssertionError: DeepSpeed does not recognize LR scheduler Cosine",
    ),
    "CONFIG-ASSERT": ("AssertionError: Fp16_master_weights_and_grads is only supported with ZeRO Stage 2 for now.",),
    "CONFIG-PATH": ("ValueError: Expected a string path to an existing deepspeed config, or a dictionary. Received: ds.json",),
    "HF-MISMATCH": ("ValueError: Please correct the following DeepSpeed config values that mismatch TrainingArguments values:",),
    "NO-SYNC": ("AssertionError: no_sync context manager is incompatible with gradient partitioning logic of ZeRO stage 3",),
    "TRAINER-BF16": ("ValueError: Your setup doesn't support bf16/gpu. You need to assign use_cpu if you want to train the model on CPU.",),
    "DTYPE-UNSUPPORTED": ("ValueError: Type bf16 is not supported on your device.",),
    "PARALLEL-SIZE": ("AssertionError: world_size (4) is less than tensor_parallel_size 8",),
    "DEVICE-MAP-Z3": ("ValueError: DeepSpeed Zero-3 is not compatible with `low_cpu_mem_usage=True` or with passing a `device_map`.",),
    "PORT-IN-USE": (
        "torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. port: 29500, useIpv6: false, "
        "code: -98, name: EADDRINUSE, message: address already in use",
        "RuntimeError: Address already in use",
    ),
    "NCCL-SHM": ("Error while creating shared memory segment /dev/shm/nccl-XyZ (size 9637888)",),
    "NCCL-DUP-GPU": (
        "torch.distributed.DistBackendError: NCCL error, ncclInvalidUsage. Duplicate GPU detected : rank 3 and rank 0 both on CUDA device 1000",
    ),
    "NCCL-CUDA": ("torch.distributed.DistBackendError: NCCL error in: NCCLUtils.cpp, unhandled cuda error, NCCL version 2.27.3",),
    "NCCL-SYSTEM": ("RuntimeError: NCCL error: unhandled system error (run with NCCL_DEBUG=INFO for details)",),
    "IB": ("RuntimeError: Call to ibv_modify_qp failed with error No such device",),
    "HANG-DESYNC": (
        "RuntimeError: Detected mismatch between collectives on ranks. Rank 3 is running collective: CollectiveFingerPrint(OpType=BROADCAST), "
        "but Rank 0 is running collective: CollectiveFingerPrint(OpType=ALLREDUCE).",
    ),
    "Z3-HANG-MOE": ("RuntimeError: A module has unknown inputs or outputs type (<class 'Out'>)",),
    "MODEL-FILES": (
        "OSError: Error no file named pytorch_model.bin or model.safetensors found in directory /models/seven-b.",
        "huggingface_hub.errors.HFValidationError: Repo id must be in the form 'repo_name' or 'namespace/repo_name': '/models/none'.",
    ),
    "MODEL-LOAD": ("safetensors_rust.SafetensorError: Error while deserializing header: MetadataIncompleteBuffer",),
    "DATA": ("json.decoder.JSONDecodeError: Expecting ',' delimiter: line 17 column 3 (char 811)",),
    "NO-INTERNET": (
        "requests.exceptions.ConnectionError: HTTPSConnectionPool(host='huggingface.co', port=443): Max retries exceeded with url: /api/models/x",
        "OSError: We couldn't connect to 'https://huggingface.co' to load this file",
    ),
    "HUB-RATE": ("requests.exceptions.HTTPError: 429 Client Error: Too Many Requests for url: https://huggingface.co/x",),
    "TRACKER-LOGIN": ("wandb.errors.UsageError: api_key not configured (no-tty). call wandb.login(key=[your_api_key])",),
    "RACE-FS": ("OSError: [Errno 116] Stale file handle: '/shared/cache/run'", "sqlite3.OperationalError: database is locked"),
    "USER-SHAPE": (
        "RuntimeError: mat1 and mat2 shapes cannot be multiplied (4x17 and 16x16)",
        "ValueError: Expected input batch_size (24) to match target batch_size (32).",
    ),
    "DEVICE-MIX": ("RuntimeError: Expected all tensors to be on the same device, but found at least two devices, cuda:3 and cpu!",),
    "CUDA-ASSERT": ("RuntimeError: CUDA error: device-side assert triggered",),
    "CUDA-ILLEGAL": ("torch.AcceleratorError: CUDA error: an illegal memory access was encountered",),
    "GPU-ECC": ("RuntimeError: CUDA error: uncorrectable ECC error encountered",),
    "XID": ("RuntimeError: Unable to determine the device handle for GPU0000:81:00.0: Unknown Error",),
    "LOSS-SCALE-MIN": ("Exception: Current loss scale already at minimum - cannot decrease scale anymore. Exiting run.",),
    "Z3-GATHER-NESTED": (
        "RuntimeError: Nested GatheredParameters contexts cannot overlap parameters; parameter ds_ids already gathered by an outer context: [3]",
    ),
    "Z3-SIZE0": ("RuntimeError: size mismatch for lm_head.weight: copying a param with shape torch.Size([0]) from checkpoint",),
    "Z3-PARTITIONED": ("RuntimeError: 'weight' must be 2-D",),
    "NO-GRAD": ("RuntimeError: element 0 of tensors does not require grad and does not have a grad_fn",),
    "DTYPE-MIX": (
        "RuntimeError: mat1 and mat2 must have the same dtype, but got Float and BFloat16",
        "RuntimeError: expected scalar type Half but found Float",
    ),
    "DDP-UNUSED": ("RuntimeError: Expected to have finished reduction in the prior iteration before starting a new one.",),
    "Z3-INFLIGHT": ("RuntimeError: still have inflight params [<bound method Init.ds_summary>]",),
    "CKPT-WORLD": (
        "deepspeed.runtime.zero.utils.ZeRORuntimeException: The checkpoint being loaded used a DP world size of 8 but the current world size is 4.",
    ),
    "CKPT-SHAPE": (
        "RuntimeError: Error(s) in loading state_dict for Net:",
        "AssertionError: num_layers value from checkpoint (24) is not equal to the input argument value (12).",
    ),
    "CKPT-WEIGHTS-ONLY": ("_pickle.UnpicklingError: Weights only load failed. This file can still be loaded",),
    "CKPT-DISK": (
        "OSError: [Errno 28] No space left on device",
        "safetensors_rust.SafetensorError: Error while serializing: I/O error: Disk quota exceeded (os error 122)",
        'safetensors_rust.SafetensorError: Error while serializing: IoError(Os { code: 28, kind: StorageFull, message: "No space left on device" })',
        "RuntimeError: [enforce fail at inline_container.cc:664] . unexpected pos 960 vs 854",
    ),
    "CKPT-PERM": ("PermissionError: [Errno 13] Permission denied: '/checkpoints/step_100'",),
    "GATHER16": (
        "ValueError: Cannot get 16bit model weights because `stage3_gather_16bit_weights_on_model_save` in DeepSpeed config is False. To save the model",
    ),
    "ACCELERATE-FIELDS": (
        "ValueError: When using `deepspeed_config_file`, the following accelerate config variables will be ignored: ['gradient_accumulation_steps',",
    ),
    "ACCELERATE-DUMMY": (
        "ValueError: You cannot create a `DummyOptim` without specifying an optimizer in the config file.",
        "ValueError: You cannot specify an optimizer in the config file and in the code at the same time. Please remove the optimizer from",
        "ValueError: You cannot specify a scheduler in the config file and in the code at the same time. Please remove the scheduler from",
        "ValueError: You can only specify `accelerate.utils.DummyScheduler` in the code when using `accelerate.utils.DummyOptim`.",
        "ValueError: Either specify a scheduler in the config file or pass in the `lr_scheduler_callable` parameter when using `accelerate",
    ),
    "ACCELERATE-HIDDEN": (
        "ValueError: Can't find `model.config` entry, therefore it's not possible to automatically fill out the following `auto` entries in",
        "ValueError: Can find neither `model.config.hidden_size` nor `model.config.hidden_sizes`, therefore it's not possible to automatically",
        "ValueError: The model's config file has neither `hidden_size` nor `hidden_sizes` entry, therefore it's not possible to automatically",
    ),
    "ACCELERATE-BATCH": (
        "ValueError: When using DeepSpeed, `accelerate.prepare()` requires you to pass at least one of training or evaluation dataloaders with",
    ),
    "ACCELERATE-AUTO": (
        "ValueError: `scheduler.params.total_num_steps` not found in kwargs. Please specify `scheduler.params.total_num_steps` without `auto`",
    ),
    "CKPT-FOLDER": (
        "ValueError: Unable to find 'latest' file at /checkpoints/global_step100/latest",
        "FileNotFoundError: can't find *_optim_states.pt files in directory '/checkpoints/global_step100'",
        "ValueError: /checkpoints/x/mp_rank_00_model_states.pt is not a zero checkpoint",
    ),
    "CUDA-UNKNOWN": ("torch.AcceleratorError: CUDA error: unknown error",),
    "QUANT-SPILL": (
        "ValueError: Some modules are dispatched on the CPU or the disk. Make sure you have enough GPU RAM to fit the quantized model. If you",
    ),
    "HYDRA-CONFIG": ("omegaconf.errors.ConfigAttributeError: Key 'optimiser' is not in struct",),
    "USER-PY": ("ValueError: a sample without an answer", "ZeroDivisionError: division by zero", "my.package.OddInputError: 17"),
}
"""Cause -> last lines of tracebacks, or single lines, that show it."""
LAUNCHER_SAMPLES = {
    "NO-NUMACTL": "FileNotFoundError: [Errno 2] No such file or directory: 'numactl'",
    "HOSTFILE-BAD": "ValueError: Hostfile contains multiple entries for worker-1, unable to proceed with launching",
    "INCLUDE-BAD": "ValueError: Hostname 'worker-9' not found in hostfile",
    "NUM-NODES-LOCAL": "ValueError: Num nodes is >1 but no extra nodes available via hostfile",
    "SSH-CHECK": "RuntimeError: Using hostfile at hosts but host=worker-2 was not reachable via ssh.",
    "PDSH-MISSING": "RuntimeError: launcher 'pdsh' not installed.",
    "MASTER-ADDR": "RuntimeError: Unable to detect suitable master address",
}
NOISE = (
    "Setting OMP_NUM_THREADS environment variable for each process to be 1 in default, to avoid your system being overloaded",
    "huggingface/tokenizers: The current process just got forked, after parallelism has already been used.",
    "[2026-03-01 10:00:02,101] [WARNING] [runner.py:232:fetch_hostfile] Unable to find hostfile, will proceed with training with local resources only.",
    "Warning: The cache directory for DeepSpeed Triton autotune, /home/me/.triton/autotune, appears to be on an NFS system.",
    "[deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 65536, reducing to 32768",
    "Invalidate trace cache @ step 10: expected module 11, but got module 12",
    "[rank2]:[W301 10:00:09.1 ProcessGroupNCCL.cpp:1250] Warning: WARNING: process group has NOT been destroyed before we destruct",
    "step 41 loss 1.8421 lr 1.0e-05",
    "async_io requires the dev libaio .so object and headers but these were not found.",
    "error rate on the held-out set: 0.031",
    "no exception was raised by the preprocessing",
    "Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.",
)


def spawned(world: int) -> list[str]:
    """Return the output of DeepSpeed's launcher before that of the ranks."""
    head = f"[2026-03-01 10:00:00,000] [INFO] [launch.py:170:main] dist_world_size={world}"
    line = "[2026-03-01 10:00:00,{0:03}] [INFO] [launch.py:245:main] process {1} spawned with command: ['python', '-u', 'train.py', '--local_rank={0}']"
    return [head, *(line.format(rank, 700 + rank) for rank in range(world))]


def traceback(rank: int | None, last: str, file: str = "/home/me/project/train.py") -> list[str]:
    """Return a traceback of one rank, labelled as by PyTorch."""
    label = "" if rank is None else f"[rank{rank}]: "
    lines = ["Traceback (most recent call last):", f'  File "{file}", line 30, in <module>', "    main()", last]
    return [label + line for line in lines]


def fallout(rank: int, how: int = 0) -> list[str]:
    """Return what a rank prints because another one died."""
    last = (
        "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:561] Connection closed by peer [10.0.0.2]:2311.",
        "torch.distributed.DistBackendError: NCCL error in: NCCLUtils.cpp:77, remote process exited or there was a network error, NCCL version 2.27.3",
        "torch.distributed.elastic.rendezvous.api.RendezvousConnectionError: The connection to the C10d store has failed.",
        "RuntimeError: Read error [10.0.0.2]:40112: Connection reset by peer.",
    )[how % 4]
    return traceback(rank, last, "/opt/env/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py")


def ended(world: int, code: int) -> list[str]:
    """Return the last output of DeepSpeed's launcher, with the command of the rank that it started last."""
    killing = [f"[2026-03-01 10:01:00,000] [INFO] [launch.py:253:sigkill_handler] Killing subprocess {700 + rank}" for rank in range(world)]
    command = f"['python', '-u', 'train.py', '--local_rank={world - 1}']"
    return [*killing, f"[2026-03-01 10:01:00,000] [ERROR] [launch.py:259:sigkill_handler] {command} exits with return code = {code}"]


def diagnose_lines(path: Path, lines: list[str]) -> Diagnosis:
    """Diagnose a log with these lines."""
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return diagnose([path])
