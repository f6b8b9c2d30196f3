"""Common messages of the field's libraries, across old and new releases, with their causes."""

from __future__ import annotations

from pathlib import Path

import pytest

from dstui.diagnosis import diagnose
from dstui.plan import load
from tests.diagnosis.crash_texts import diagnose_lines

SITE = "/opt/env/lib/python3.11/site-packages/"
RAISED = {
    "OOM-GPU": [
        ("RuntimeError: cuDNN error: CUDNN_STATUS_ALLOC_FAILED", "torch/nn/modules/conv.py"),
        ("RuntimeError: Native API failed. Native API returns: -5 (PI_ERROR_OUT_OF_RESOURCES) -5 (PI_ERROR_OUT_OF_RESOURCES)", ""),
        ("RuntimeError: level_zero backend failed with error: 40 (UR_RESULT_ERROR_OUT_OF_RESOURCES)", ""),
        ("MemoryError: Error allocating 531025920 bytes of device memory (out of memory).", "theano/gof/vm.py"),
        ("jax.errors.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 1234 bytes", "jax/core.py"),
        ("ValueError: RESOURCE_EXHAUSTED: Error allocating device buffer: Attempting to allocate 3.00G. There are 1.2G free.", "jax/a.py"),
        ("CudaAPIError: [2] Call to cuMemAlloc results in CUDA_ERROR_OUT_OF_MEMORY", "numba/cuda/cudadrv/driver.py"),
        ("RuntimeError: Device(id:3) memory isn't enough and alloc failed, kernel name: Default/MatMul-op7", "mindspore/common/api.py"),
    ],
    "PINNED-MEM": [
        ("torch.OutOfMemoryError: allocate_host_memory:torch_npu/CachingHostAllocator.cpp:88 NPU function error", "torch_npu/a.py")
    ],
    "Z3-INFLIGHT": [
        ("AssertionError: {'id': 7, 'status': 'INFLIGHT', 'numel': 64, 'ds_numel': 64}", "deepspeed/runtime/zero/partition_parameters.py")
    ],
    "CKPT-DISK": [("RuntimeError: [enforce fail at inline_container.cc:9] . unexpected pos 64\nvs 9", "torch/serialization.py")],
    "RACE-FS": [("OSError: [Errno 116] Stale file handle: '/nfs/step_7/latest'", "torch/serialization.py")],
    "Z3-PARTITIONED": [
        (
            "RuntimeError: The size of tensor a (0) must match the size of tensor b (64) at non-singleton dimension 1",
            "deepspeed/runtime/engine.py",
        )
    ],
    "PARALLEL-SIZE": [
        ("ValueError: Invalid parallel dims: dp_shard(4) * tp(4) * pp(1) != WORLD_SIZE(8)", "torchtitan/distributed/parallel_dims.py"),
        ("RuntimeError: Mesh should not be bigger than default world size 4, but found 8 ranks!", "torch/distributed/device_mesh.py"),
    ],
    "DDP-UNUSED": [
        (
            "RuntimeError: It looks like your LightningModule has parameters that were not used in producing the loss returned by training_step.",
            "lightning/pytorch/strategies/ddp.py",
        )
    ],
    "CUDA-ILLEGAL": [("torch.AcceleratorError: CUDA error: unspecified launch failure", "torch/cuda/streams.py")],
    "INVALID-ORDINAL": [
        ("ValueError: Total available GPUs 4 is less than total desired GPUs 8", "verl/trainer/ppo/ray_trainer.py"),
        ("RuntimeError: Attempting to deserialize object on CUDA device 3 but torch.cuda.device_count() is 1.", "torch/serialization.py"),
        ("lightning.fabric.utilities.exceptions.MisconfigurationException: You requested gpu: [0, 1]", "lightning/a.py"),
        (
            "lightning_utilities.exceptions.MisconfigurationException: You requested GPUs: [0, 1]\n But your machine only has: [0]",
            "lightning/a.py",
        ),
    ],
    "DRIVER-OLD": [
        ("RuntimeError: HIP error: invalid device function", ""),
        ("RuntimeError: Triton Error [CUDA]: device kernel image is invalid", "triton/backends/nvidia/driver.py"),
    ],
    "GPU-BUSY": [("RuntimeError: Bad StatusOr access: UNKNOWN: TPU initialization failed: open(/dev/accel0): Operation not permitted", "")],
    "NPU-ERROR": [
        ("RuntimeError: [ERROR] 2026-01-02-03:04:05 (PID:7, Device:0, RankID:-1) ERR01100 OPS call acl api failed", ""),
        ("RuntimeError: Start:a.cpp:9 NPU function error: aclrtSetDevice, error code is 7", "torch_npu/npu/utils.py"),
    ],
    "NO-GPU": [
        ("ValueError: torch.cuda.is_available() should be True but is False.", "diffusers/models/attention_processor.py"),
        ("RuntimeError: No device of requested type available", ""),
        ("lightning.fabric.utilities.exceptions.MisconfigurationException: No supported gpu backend found!", "lightning/a.py"),
        (
            "lightning_utilities.exceptions.MisconfigurationException: You requested GPUs: [0]\n But your machine only has: []",
            "lightning/a.py",
        ),
    ],
    "REMOTE-ENV": [
        (
            "docker.errors.DockerException: Error while fetching server API version: ('Connection aborted.', FileNotFoundError(2))",
            "docker/api.py",
        ),
    ],
    "DEVICE-MIX": [
        ("RuntimeError: expected device cuda:0 but got device cpu", ""),
        ("RuntimeError: module must have its parameters and buffers on device cuda:0 but found one on cpu", "torch/nn/parallel/a.py"),
        ("RuntimeError: Expected object of device type cuda but got device type cpu for argument #1 'self'", ""),
        ("RuntimeError: Tensor for argument #2 'mat1' is on CPU, but expected it to be on GPU", ""),
    ],
    "DTYPE-MIX": [
        ("RuntimeError: output tensor must have the same type as input tensor", "torch/distributed/distributed_c10d.py"),
        ("RuntimeError: FlashAttention only support fp16 and bf16 data type", "flash_attn/flash_attn_interface.py"),
        ("ValueError: Attempting to unscale FP16 gradients.", "torch/cuda/amp/grad_scaler.py"),
        ("RuntimeError: Found dtype Float but expected Half", "torch/autograd/__init__.py"),
        ("ValueError: Must flatten tensors with uniform dtype but got torch.bfloat16 and torch.float32", "torch/distributed/fsdp/a.py"),
        ("RuntimeError: Expected object of scalar type Half but got scalar type Float for argument #2 'mat2'", ""),
    ],
    "USER-SHAPE": [
        (
            "RuntimeError: The size of tensor a (0) must match the size of tensor b (64) at non-singleton dimension 1",
            "torch/nn/functional.py",
        ),
        ("ValueError: expected sequence of length 512 at dim 1 (got 384)", "transformers/data/data_collator.py"),
        ("RuntimeError: view size is not compatible with input tensor's size and stride", ""),
        ("RuntimeError: input.size(-1) must be equal to input_size. Expected 40, got 80", "torch/nn/modules/rnn.py"),
        ("RuntimeError: shape mismatch: value tensor of shape [3] cannot be broadcast to indexing result of shape [4]", ""),
        ("ValueError: Using a target size (torch.Size([4])) that is different to the input size (torch.Size([4, 1]))", ""),
        ("RuntimeError: output with shape [1, 28, 28] doesn't match the broadcast shape [3, 28, 28]", "torchvision/a.py"),
        ("RuntimeError: index 10 is out of bounds for dimension 0 with size 4", ""),
        ("IndexError: Dimension out of range (expected to be in range of [-1, 0], but got 1)", ""),
        ("ValueError: Attention mask should be of size (1, 1, 9, 9), but is torch.Size([1, 1, 8, 8])", "transformers/models/a.py"),
    ],
    "IMPORT-MISSING": [
        ("ValueError: vllm version 0.2.5 not supported. Currently supported versions are 0.3.1, 0.4.2 and 0.6.3.", "verl/vllm/__init__.py"),
        ("RuntimeError: DeepSpeed is not installed => run `pip3 install deepspeed` or build it from source.", "accelerate/a.py"),
        ("ImportError: cannot import name 'deepspeed' because DeepSpeed is not available", ""),
        ("ImportError: Could not import soundfile. The use of `read_audio` requires SoundFile.", "audio/utils.py"),
        ("NameError: name 'flash_attn_func' is not defined", ""),
        ("RuntimeError: Expected one of cpu, cuda, xpu device type at start of device string: npu", ""),
        ("FileNotFoundError: [Errno 2] No such file or directory: 'ffmpeg'", "subprocess.py"),
    ],
    "IMPORT-VERSION": [
        ("AttributeError: module 'PIL.Image' has no attribute 'ANTIALIAS'", ""),
        ("AttributeError: module 'keras.backend' has no attribute 'set_session'", "keras_cv/a.py"),
        ("TypeError: load() missing 1 required positional argument: 'Loader'", "tool/config.py"),
        ("huggingface_hub.errors.StrictDataclassFieldValidationError: Validation error for field 'depth':", "huggingface_hub/a.py"),
        ("TypeError: Descriptors cannot not be created directly.", "google/protobuf/descriptor.py"),
        ("AttributeError: 'MessageFactory' object has no attribute 'GetPrototype'", "tensorflow/python/framework/op_def_library.py"),
        ("AttributeError: `np.float_` was removed in the NumPy 2.0 release. Use `np.float64` instead.", "numpy/__init__.py"),
        ("AttributeError: module 'pkgutil' has no attribute 'ImpImporter'. Did you mean: 'zipimporter'?", "pkg_resources/__init__.py"),
        ("AttributeError: module 'distutils' has no attribute 'version'", "torch/utils/tensorboard/__init__.py"),
        ("KeyError: 'qwen2'", "transformers/models/auto/configuration_auto.py"),
        ("ValueError: Tokenizer class Qwen2Tokenizer does not exist or is not currently imported.", "transformers/models/auto/a.py"),
        ("AttributeError: 'DynamicCache' object has no attribute 'get_max_length'", ""),
        ("ValueError: `rope_scaling` must be a dictionary with two fields, `type` and `factor`, got {}", "transformers/models/llama/a.py"),
    ],
    "INIT-HANG-NET": [
        ("RuntimeError: [/a/third_party/gloo/gloo/transport/tcp/pair.cc:799] connect [10.0.0.2]:2226: Connection refused", "torch/a.py"),
    ],
    "IB": [("n1:194:710 [0] NCCL WARN NET/OFI Request 0x7f4 completed with error", "")],
    "BNB-CUDA": [
        ("AttributeError: 'NoneType' object has no attribute 'cget_managed_ptr'", "bitsandbytes/functional.py"),
        ("NameError: name 'str2optimizer32bit' is not defined", "bitsandbytes/functional.py"),
    ],
    "OP-BUILD": [
        ("torch._inductor.exc.CppCompileError: C++ compile error", "torch/_inductor/codecache.py"),
        (
            "subprocess.CalledProcessError: Command '['/opt/env/bin/x86_64-conda-linux-gnu-c++', 'a.cpp']' returned non-zero exit status 1.",
            "",
        ),
        ("RuntimeError: Error compiling objects for extension", "torch/utils/cpp_extension.py"),
        ("RuntimeError: Failed to find C compiler. Please specify via CC environment variable.", "triton/common/build.py"),
    ],
    "LIB-MISSING": [
        ("tensorflow.python.framework.errors_impl.InternalError: libdevice not found at ./libdevice.10.bc", "keras/a.py"),
        (
            "OSError: [WinError 126] The specified module could not be found. Error loading c10.dll or one of its dependencies.",
            "torch/a.py",
        ),
        ("RuntimeError: Could not load libtorchcodec. Likely causes:", "torchcodec/a.py"),
    ],
    "MODEL-FILES": [
        ("modelscope.hub.errors.FileIntegrityError: File /m/a.safetensors integrity check failed, expected 1, got 2", "modelscope/a.py"),
        (
            "pydantic_core._pydantic_core.ValidationError: 1 validation error for ModelConfig\n"
            "  Value error, Invalid repository ID or local directory specified: '/models/a'",
            "pydantic/_internal/a.py",
        ),
        ("OSError: Incorrect path_or_model_id: '/models/x'. Please provide either the path to a local folder", "transformers/utils/hub.py"),
        ("FileNotFoundError: [Errno 2] No such file or directory: '/models/llama/tokenizer.model'", ""),
        ("TypeError: not a string", "sentencepiece/__init__.py"),
    ],
    "MODEL-LOAD": [("RuntimeError: Internal: a.cc(1101) [model_proto->ParseFromArray(serialized.data(), n)]", "sentencepiece/__init__.py")],
    "DATA": [
        ("EOFError: Ran out of input", ""),
        ("ValueError: Undefined dataset dogs in dataset_info.json.", "llamafactory/data/parser.py"),
        ("FileNotFoundError: Unable to find '/data/train.json' at /home/x", "datasets/data_files.py"),
        ("ValueError: Unknown split \"validation\". Should be one of ['train'].", "datasets/arrow_reader.py"),
        ("ValueError: BuilderConfig 'x' not found. Available: ['default']", "datasets/builder.py"),
        ("ValueError: Column to remove ['x'] not in the dataset.", "datasets/arrow_dataset.py"),
        ("IndexError: Invalid key: 5 is out of bounds for size 0", "datasets/formatting/formatting.py"),
        ("OSError: Unable to open file (file signature not found)", "h5py/_hl/files.py"),
        ("ValueError: Object arrays cannot be loaded when allow_pickle=False", "numpy/lib/format.py"),
    ],
    "NO-INTERNET": [
        ("ValueError: Connection error, and we cannot find the requested files in the cached path.", "transformers/file_utils.py"),
    ],
    "ACCEL-ERROR": [
        ("RuntimeError: miopenStatusUnknownError", "torch/nn/modules/conv.py"),
        (
            "tensorflow.python.framework.errors_impl.InvalidArgumentError: From /job:worker/replica:0/task:0:\n"
            "Compilation failure: Detected unsupported operations when trying to compile graph body_7 on XLA_TPU_JIT: Print",
            "tensorflow/python/client/session.py",
        ),
    ],
    "CKPT-PERM": [("PermissionError: [Errno 13] Permission denied: '/dev/kfd'", "torch/cuda/__init__.py")],
    "TRACKER-LOGIN": [("wandb.errors.AuthenticationError: API key verification failed", "wandb/a.py")],
    "WINDOWS": [("OSError: [WinError 1314] A required privilege is not held by the client", "deepspeed/ops/op_builder/builder.py")],
    "ALLOC-REFUSED": [
        ("OSError: [WinError 1455] The paging file is too small for this operation to complete", "torch/__init__.py"),
        ("pyarrow.lib.ArrowMemoryError: malloc of size 123 failed", "pyarrow/a.py"),
        (
            "cv2.error: OpenCV(4.9.0) alloc.cpp:73: error: (-4:Insufficient memory) Failed to allocate 9 bytes in function 'OutOfMemoryError'",
            "",
        ),
    ],
    "BOTH-PRECISION": [("ValueError: At most one of fp16 and bf16 can be True, but not both", "transformers/training_args.py")],
    "NAN": [
        ("AssertionError: found NaN in local grad norm in backward pass", "megatron/core/a.py"),
        (
            "ValueError: Expected parameter logits of distribution Categorical to satisfy the constraint Simplex(), but found invalid values:",
            "torch/a.py",
        ),
        ("FloatingPointError: gradients are Nan/Inf", "fairseq/a.py"),
    ],
    "CONFIG-ASSERT": [("ValueError: `predict_with_generate` is incompatible with DeepSpeed ZeRO-3.", "llamafactory/hparams/parser.py")],
    "AUTO-UNRESOLVED": [("TypeError: '>' not supported between instances of 'str' and 'int'", "deepspeed/runtime/config.py")],
    "USER-PY": [
        ("BrokenPipeError: [WinError 109] The pipe has been ended", ""),
        ("torch._C._LinAlgError: linalg.svd: The algorithm failed to converge", ""),
        ("StopIteration", ""),
        ("AttributeError: 'Tokenizer' object has no attribute 'merges'", ""),
        ("wandb.sdk.lib.service.service_port_file.ServicePollForTokenError: Failed to read port info after 30.0 seconds.", "wandb/a.py"),
        ("FileExistsError: [Errno 17] File exists: 'out'", ""),
        ("TypeError: '<=' not supported between instances of 'float' and 'str'", "torch/optim/adamw.py"),
    ],
}
SHELLS = {
    "KILLED-UNKNOWN": [
        "nbclient.exceptions.DeadKernelError: Kernel died",
        "zsh: killed     python train.py",
        "[1]+  Killed                  nohup python train.py",
        "[1]    1234 killed     python x.py",
        "ERROR 05-29 07:34:04 [multiproc_executor.py:135] Worker proc VllmWorker-1 died unexpectedly, shutting down executor.",
    ],
    "SLURM-TIME": [
        "Error: The job running on runner x has exceeded the maximum execution time of 360 minutes.",
        "User defined signal 2",
        "/home/me/.lsbatch/17.42.shell: line 9: 812 User defined signal 2   python train.py",
        "Preparing the data\nDone!\nUser defined signal 2",
        "2026-01-02 03:04:05 MaxRuntimeExceeded - Training job runtime exceeded MaxRuntimeInSeconds provided\nSpot training completed: job-7",
    ],
    "SLURM-PREEMPT": ["2026-01-02 03:04:05 Interrupted - Training job interrupted"],
    "SLURM-CANCEL": ["TERM_OWNER: job killed by owner."],
    "CTRL-C": [
        "Interrupt! Saving the weights...",
        "Interrupted: stopping after this step",
        "Error: The operation was canceled.",
        "Terminated",
        "[1]+  Terminated              nohup python train.py",
        "^C",
        "Training interrupted by user",
        "2026-01-02 03:04:05,1 WARNING tune.py:9 -- Training has been interrupted, but the most recent state was saved.",
        "2026-01-02 03:04:05 Stopped - Training job stopped",
        "Loading backend of audio failed: No module named 'sox'\nTraceback (most recent call last):\n"
        '  File "/home/me/train.py", line 30, in <module>\n    main()\nKeyboardInterrupt',
        "[neptune] [error  ] Run PART-419 received abort signal. Exiting",
        "LAUNCH INFO 2026-06-16 10:11:25,795 Pod failed\nContainer rank 0 status failed cmd ['python', 'a.py'] code -15 log a\n"
        "LAUNCH INFO 2026-06-16 10:11:25,796 Exit code -15",
    ],
    "DATA": [
        "No training images found in the folder.\nTraceback (most recent call last):\n"
        '  File "/opt/env/lib/python3.11/site-packages/accelerate/commands/launch.py", line 762, in simple_launcher\n'
        "    raise subprocess.CalledProcessError(returncode=process.returncode, cmd=cmd)\n"
        "subprocess.CalledProcessError: Command '['python', 'train.py']' returned non-zero exit status 1.",
        "ERROR lifecycle: failed to start message: Error Code: ScriptExecution.StreamAccess.NotFound: The requested stream was not found.",
    ],
    "SIGABRT": [
        "corrupted double-linked list",
        "Aborted",
        "F0301 10:00:09.224201 31685 net.cpp:703] Check failed: a == b (64 vs. 9)\n*** Check failure stack trace: ***",
    ],
    "SIGSEGV": ["  died with signal 11, with coredump"],
    "OOM-HOST": [
        "slurmstepd: error: Job 123 exceeded memory limit (1234 > 1000), being killed",
        "=>> PBS: job killed: mem 123kb exceeded limit 100kb",
        "    Last State:     Terminated\n      Reason:       OOMKilled\n      Exit Code:    137",
    ],
    "NO-SCRIPT": ["nohup: failed to run command './train.sh': No such file or directory"],
    "NPU-LINK": [
        "[ERROR] HCCL(77,python):2026-01-02-03:04:05.6 [detect.cc:9][77] cqe error status[12] remoteIP:[1.2.3.4]",
        "RuntimeError: [ERROR] HCCL function error: HcclGetRootInfo(&id), error code is 7",
    ],
    "NPU-ERROR": ["aclrtSynchronizeStream failed, error code 507018"],
    "CKPT-PERM": [
        "Error: EACCES: permission denied, rmdir '/shared/logs/41'",
        "nohup: failed to run command './train.sh': Permission denied",
    ],
    "NO-DS-CMD": [
        "  FileNotFoundError\n\n  [Errno 2] No such file or directory: b'./-m'\n\n  at /usr/lib/python3.11/os.py:601 in _execvpe",
        "nohup: failed to run command 'torchrun': No such file or directory",
    ],
    "USER-PY": ["train.py: error: argument --fp8: ignored explicit argument 'false'"],
    "SCRIPT-SHELL": ["/usr/bin/env: 'bash\\r': No such file or directory"],
    "OP-BUILD": [
        "error: command '/usr/local/cuda/bin/nvcc' failed with exit status 1",
        "Failed to build deepspeed",
        "make[2]: *** [CMakeFiles/kernels.dir/build.make:79: CMakeFiles/kernels.dir/src/attention.cpp.o] Error 1",
        "      error: Microsoft Visual C++ 14.0 or greater is required. Get it with the build tools",
        "  ERROR: Could not build wheels for tinyop, which is required to install pyproject.toml-based projects",
    ],
    "REMOTE-ENV": [
        "The command '/bin/sh -c ln -s /a /b' returned a non-zero code: 1",
        "failed to run step ID: acb_step_0: exit status 1",
        "Error: failed to create containerd task: failed to create shim task: OCI runtime create failed: no such device",
        '  Warning  FailedMount  2s  kubelet  MountVolume.SetUp failed for volume "data": mount failed: exit status 32',
        'ERROR: failed to solve: process "/bin/sh -c pip install x" did not complete successfully: exit code: 1',
    ],
    "INVALID-ORDINAL": [
        "E1125 19:47:53.820859 32422 pybind.cc:1571] Invalid CUDAPlace(1), must inside [0, 1), because GPU number on your machine is 1"
    ],
    "SUBMIT-REFUSED": [
        "sbatch: error: QOSGrpSubmitJobsLimit\nsbatch: error: Batch job submission failed: Job violates accounting/QOS policy",
        "srun: error: Unable to allocate resources: Invalid account or account/partition combination specified",
        "srun: error: Unable to create step for job 42: Invalid generic resource (gres) specification",
        "  Warning  FailedScheduling  9s  default-scheduler  0/3 nodes are available: 3 Insufficient nvidia.com/gpu.",
        'Error creating: pods "train-0" is forbidden: exceeded quota: team, requested: requests.nvidia.com/gpu=8',
        "qsub: Unknown queue MSG=the requested queue does not exist",
        "Queue gpu8 does not accept the request. Job not submitted.",
        "botocore.errorfactory.ResourceLimitExceeded: The account-level service limit 'ml.p9 for training' is 0 Instances",
        "CapacityError: Unable to provision requested ML compute capacity. Please retry.",
        "(autoscaler +9s) Error: No available node types can fulfill resource request {'GPU': 8.0}. Add suitable node types.",
    ],
    "NO-INTERNET": ["curl: (6) Could not resolve host: huggingface.co"],
    "NO-GPU": [
        "2026-Jan-02 03:04:05.6  77:77  ERROR  TDRV:tdrv_init_mla_phase1       Could not open the nd0",
        'docker: Error response from daemon: could not select device driver "" with capabilities: [[gpu]].',
    ],
}


@pytest.mark.parametrize(("cause", "last", "file"), [(cause, *case) for cause, cases in RAISED.items() for case in cases])
def test_library_message_is_known(tmp_path: Path, cause: str, last: str, file: str) -> None:
    head = ["Traceback (most recent call last):", '  File "/home/me/train.py", line 30, in <module>', "    main()"]
    frame = [f'  File "{SITE}{file}", line 7, in part', "    other()"] if file else []
    found = diagnose_lines(tmp_path / "log", [*head, *frame, *last.split("\n")])
    assert found.cause == cause


@pytest.mark.parametrize(("cause", "line"), [(cause, line) for cause, lines in SHELLS.items() for line in lines])
def test_last_line_of_shell_or_scheduler_is_known(tmp_path: Path, cause: str, line: str) -> None:
    found = diagnose_lines(tmp_path / "log", [*(f"step {number} loss 2.{number}" for number in range(70)), *line.split("\n")])
    assert found.cause == cause
    assert found.first_failing_rank in (None, 0)


def test_clock_before_the_words_of_oneccl_is_no_rank(tmp_path: Path) -> None:
    error = "2026:01:02-03:04:05:(  812) |CCL_ERROR| atl_ofi_comm.cpp:264 init_transport: condition transport->init failed"
    aborted = ["terminate called after throwing an instance of 'ccl::v1::exception'", "  what():  oneCCL: failed to initialize ATL"]
    found = diagnose_lines(tmp_path / "log", ["step 1", error, *aborted])
    assert (found.title, found.first_failing_rank) == ("oneCCL could not start between the ranks", None)


@pytest.mark.parametrize(
    "message", ["HIP error: no such thing", "SYCL runtime: bad queue", "MUSA error: unknown", "NPU out of order", "CNRT error: 632"]
)
def test_message_of_an_accelerators_runtime_is_not_surely_the_scripts(tmp_path: Path, message: str) -> None:
    lines = [
        "Traceback (most recent call last):",
        '  File "/home/me/train.py", line 30, in <module>',
        "    y = conv(x)",
        f"RuntimeError: {message}",
    ]
    found = diagnose_lines(tmp_path / "log", lines)
    assert found.confidence != "high"


def test_azure_ml_names_the_file_with_the_programs_own_output(tmp_path: Path) -> None:
    report = "Execution failed. User process 'python' exited with status code 1. Please check log file 'user_logs/std_log.txt'"
    found = diagnose_lines(tmp_path / "log", [f"ERROR lifecycle: failed to execute commands: {report}", "INFO lifecycle: all closed"])
    assert (found.cause, found.kind) == (None, "failure")
    assert "dstui diagnose user_logs/std_log.txt" in found.notes[0]


def test_kubeflow_only_counts_the_pods_that_failed(tmp_path: Path) -> None:
    event = "Warning  PyTorchJobFailed  1m  pytorchjob-controller  PyTorchJob toy is failed because 1 Worker replica(s) failed."
    found = diagnose_lines(tmp_path / "log", ["Events:", f"  {event}"])
    assert (found.cause, found.kind) == (None, "failure")
    assert "kubectl logs POD" in found.notes[0]


def test_sagemakers_report_holds_the_scripts_exception(tmp_path: Path) -> None:
    reported = [
        "AlgorithmError: ExecuteUserScriptError:",
        "ExitCode 1",
        'ErrorMessage "ValueError: rows must be even',
        ' "',
        'Command "/opt/conda/bin/python3 toy.py"',
    ]
    found = diagnose_lines(tmp_path / "log", ["step 1", *reported])
    assert (found.cause, found.confidence) == ("USER-PY", "low")
    assert "rows must be even" in found.evidence[0].text


def test_first_error_of_a_compiler_is_shown(tmp_path: Path) -> None:
    error = "src/attention.cu:12:7: error: no member named 'rows' in 'Tile'"
    lines = ["[ 50%] Building", error, "make[2]: *** [CMakeFiles/k.dir/src/attention.cu.o] Error 1", "make: *** [Makefile:9: all] Error 2"]
    found = diagnose_lines(tmp_path / "log", lines)
    assert (found.cause, found.evidence[0].text) == ("OP-BUILD", error)


def test_pod_that_restarts_is_told_where_its_reason_is(tmp_path: Path) -> None:
    found = diagnose_lines(tmp_path / "a", ["NAME     READY   STATUS             RESTARTS", "train-0  0/1     CrashLoopBackOff   5"])
    assert found.cause is None
    assert "kubectl logs --previous" in found.notes[0]
    assert diagnose_lines(tmp_path / "b", ['"Status": "exited",', '"OOMKilled": false,']).cause is None


def test_exit_status_reported_by_ci_is_the_runs(tmp_path: Path) -> None:
    assert diagnose_lines(tmp_path / "a", ["step 1", "Error: Process completed with exit code 137."]).cause == "KILLED-UNKNOWN"
    found = diagnose_lines(tmp_path / "b", ["step 1", "Error: Process completed with exit code 1."])
    assert (found.cause, found.kind) == (None, "failure")


def test_folder_created_by_two_ranks_is_a_race_and_an_existing_one_is_not(tmp_path: Path) -> None:
    lines = [
        "Traceback (most recent call last):",
        '  File "train.py", line 3, in <module>',
        "FileExistsError: [Errno 17] File exists: 'out'",
    ]
    assert diagnose_lines(tmp_path / "a", [*lines, *lines]).cause == "RACE-FS"
    assert diagnose_lines(tmp_path / "b", lines).cause == "USER-PY"


def test_file_missing_for_torch_load_is_a_model_file(tmp_path: Path) -> None:
    lines = [
        "Traceback (most recent call last):",
        '  File "eval.py", line 3, in <module>',
        f'  File "{SITE}torch/serialization.py", line 9, in {{}}',
    ]
    lines += [
        f'  File "{SITE}torch/serialization.py", line 4, in __init__',
        "FileNotFoundError: [Errno 2] No such file or directory: 'runs/5'",
    ]
    assert diagnose_lines(tmp_path / "a", [line.format("load") for line in lines]).cause == "MODEL-FILES"
    assert diagnose_lines(tmp_path / "b", [line.format("save") for line in lines]).cause == "USER-PY"


def test_message_of_an_exception_named_only_in_code_is_recognised(tmp_path: Path) -> None:
    lines = ["Traceback (most recent call last):", '  File "train.py", line 3, in <module>', "    raise ValueError("]
    found = diagnose_lines(tmp_path / "a", [*lines, "You should supply an encoding that includes input_ids"])
    assert (found.cause, found.kind) == ("USER-PY", "failure")
    assert diagnose_lines(tmp_path / "b", lines).cause is None, "it breaks off"


def test_warning_about_shapes_is_no_failure(tmp_path: Path) -> None:
    warning = (
        "/opt/env/torch/nn/modules/loss.py:128: UserWarning: Using a target size (torch.Size([2])) that is different to the input size"
    )
    found = diagnose_lines(
        tmp_path / "log", [warning, "Traceback (most recent call last):", '  File "a.py", line 3, in main', "KeyboardInterrupt"]
    )
    assert found.cause == "CTRL-C"


def test_circular_import_of_the_program_is_no_version_problem(tmp_path: Path) -> None:
    head = ["Traceback (most recent call last):", '  File "/home/me/train.py", line 3, in <module>', "    from evaluation import tasks"]
    last = "ImportError: cannot import name 'x' from partially initialized module 'evaluation' (most likely due to a circular import) (/a/evaluation.py)"
    found = diagnose_lines(tmp_path / "log", [*head, last])
    assert (found.cause, found.title) == ("IMPORT-VERSION", "Modules of the program import each other circularly")


def test_generation_under_zero_3_is_fixed_by_zero_2(tmp_path: Path) -> None:
    head = ["Traceback (most recent call last):", '  File "/home/me/train.py", line 3, in <module>', "    main()"]
    log = tmp_path / "log"
    log.write_text("\n".join([*head, "ValueError: `predict_with_generate` is incompatible with DeepSpeed ZeRO-3."]))
    plan = load("version: 1\njob: {script: a.py}\ndeepspeed:\n  zero_optimization: {stage: 3}\n", "p.yaml", str(tmp_path))
    patches = [fix.patch for fix in diagnose([log], plan).fixes if fix.patch]
    assert plan.patch(patches[0]).get("deepspeed.zero_optimization.stage") == 2


def test_vllm_only_reports_that_its_engine_ended(tmp_path: Path) -> None:
    head = ["Traceback (most recent call last):", f'  File "{SITE}vllm/v1/engine/core.py", line 886, in run_engine_core', "    raise e"]
    error = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 80.00 MiB."
    dead = "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}"
    engine = [f"(EngineCore pid=367) {line}" for line in (*head, error)]
    assert diagnose_lines(tmp_path / "a", [*engine, *head, dead]).cause == "OOM-GPU"
    assert diagnose_lines(tmp_path / "b", [*head, dead]).cause is None


def test_recomputed_values_that_differ_are_told_as_such(tmp_path: Path) -> None:
    words = "Recomputed values for the following tensors have different metadata than during the forward pass."
    head = [
        "Traceback (most recent call last):",
        f'  File "{SITE}torch/utils/checkpoint.py", line 850, in check',
        "    raise CheckpointError(",
    ]
    found = diagnose_lines(tmp_path / "log", [*head, f"torch.utils.checkpoint.CheckpointError: torch.utils.checkpoint: {words}"])
    assert (found.cause, found.confidence) == ("USER-PY", "medium")
    assert "Activation checkpointing" in found.title
    assert not {"CKPT-SHAPE", "CKPT-FOLDER"} & set(found.could_be), "no file of a checkpoint is meant"


def test_client_of_deepspeed_mii_only_reports_that_its_server_crashed(tmp_path: Path) -> None:
    head = ["Traceback (most recent call last):", f'  File "{SITE}mii/server_client.py", line 115, in wait', "    raise RuntimeError("]
    built = ["Traceback (most recent call last):", f'  File "{SITE}torch/utils/cpp_extension.py", line 7, in load', "    raise e"]
    lines = [
        *built,
        "RuntimeError: Error building extension 'ds_op'",
        *head,
        "RuntimeError: server crashed for some reason, unable to proceed",
    ]
    assert diagnose_lines(tmp_path / "log", lines).cause == "OP-BUILD"


@pytest.mark.parametrize("label", ["(VllmWorker TP3 pid=41) ERROR 08-17 17:51:23 [a.py:559] ", "(Worker_TP3 pid=41) "])
def test_what_vllm_reports_of_a_worker_is_not_the_cause_but_the_worker_s_error(tmp_path: Path, label: str) -> None:
    raised = ["Traceback (most recent call last):", f'  File "{SITE}vllm/worker.py", line 5, in load', "    import a"]
    worker = [label + line for line in (*raised, "ModuleNotFoundError: No module named 'flashinfer'")]
    engine = "Exception: WorkerProc initialization failed due to an exception in a background process. See stack trace for root cause."
    found = diagnose_lines(tmp_path / "log", [*worker, *(f"(EngineCore_0 pid=9) {line}" for line in (*raised, engine))])
    assert (found.cause, found.first_failing_rank) == ("IMPORT-MISSING", 3)


def test_exception_means_something_else_where_its_place_says_so(tmp_path: Path) -> None:
    head = ["Traceback (most recent call last):", '  File "/home/me/train.py", line 30, in <module>', "    main()"]
    unset = 'ValueError: Trying to set a tensor of shape torch.Size([8, 8]) in "weight" (which has shape torch.Size([64, 1]))'
    place = [f'  File "{SITE}accelerate/utils/modeling.py", line 7, in set_module_tensor_to_device', "    raise ValueError("]
    assert diagnose_lines(tmp_path / "a", [*head, *place, unset]).cause == "MODEL-LOAD"
    undefined = "NameError: name 'deepspeed' is not defined"
    library = [f'  File "{SITE}transformers/deepspeed.py", line 7, in setup', "    deepspeed.x"]
    assert diagnose_lines(tmp_path / "b", [*head, undefined]).cause == "USER-PY"
    assert diagnose_lines(tmp_path / "c", [*head, *library, undefined]).cause == "IMPORT-MISSING"


def test_remarks_of_a_program_at_work_are_no_causes(tmp_path: Path) -> None:
    for remark in (
        "Unable to initialize backend 'tpu': INTERNAL: Failed to open libtpu.so: libtpu.so: cannot open shared object file: No such file",
        "The installed version of bitsandbytes was compiled without GPU support.",
        "2026-01-02 03:04:05.1: I stream_executor/cuda_driver.cc:735] failed to allocate 28.06G from device: CUDA_ERROR_OUT_OF_MEMORY: out of memory",
        "ERROR 01-02 03:04:05 [a.py:2] Failed to import Triton kernels. Please make sure your triton version is compatible. No module named 'tk'",
    ):
        bars = [f"answers: 0%|  | {number}/900 [00:0{number}<10:00,  1.0s/it]" for number in range(4)]
        assert diagnose_lines(tmp_path / "log", [remark, *bars]).cause is None
