"""Last messages of libraries, shells and schedulers in short logs, with their causes."""

from __future__ import annotations

from pathlib import Path

import pytest

from dstui.diagnosis import report
from tests.diagnosis.crash_texts import diagnose_lines, ended, fallout, spawned, traceback

SITE = "/opt/env/lib/python3.11/site-packages/"
RAISED = [
    (
        "IMPORT-MISSING",
        "ImportError: Using a quantized model needs tinybits: run `pip install -U tinybits`",
        "transformers/quantizers/a.py",
    ),
    (
        "IMPORT-MISSING",
        "RuntimeError: BoardCallback requires board to be installed. Run `pip install board`.",
        "transformers/integrations/a.py",
    ),
    (
        "IMPORT-MISSING",
        "ImportError: Missing optional dependency 'sheets'. Use pip or conda to install sheets.",
        "pandas/compat/_optional.py",
    ),
    ("IMPORT-MISSING", "pkg_resources.DistributionNotFound: The 'tok' distribution was not found and is required by the application", ""),
    ("IMPORT-VERSION", "ImportError: this build of the extension is from another planet", "somewhere/__init__.py"),
    ("IMPORT-VERSION", "TypeError: Adapter.__init__() got an unexpected keyword argument 'in_chunks'", "trl/trainer/part.py"),
    ("IMPORT-VERSION", "AttributeError: module 'numpy' has no attribute 'bool'.", "deepspeed/runtime/utils.py"),
    ("IMPORT-VERSION", "RuntimeError: operator torchvision::nms does not exist", "torchvision/_meta.py"),
    ("IMPORT-VERSION", "RuntimeError: Numpy is not available", "torch/utils/data/collate.py"),
    ("OOM-GPU", "RuntimeError: CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`", ""),
    ("OOM-GPU", "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization`", "vllm/engine.py"),
    ("OOM-GPU", "jax.errors.JaxRuntimeError: RESOURCE_EXHAUSTED: Failed to allocate request for 4.00GiB", "jax/odd.py"),
    ("OOM-HOST", "ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory.", "ray/_private/worker.py"),
    ("KILLED-UNKNOWN", "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.", "ray/_private/worker.py"),
    ("CUDA-ILLEGAL", "RuntimeError: CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasGemmEx`", ""),
    ("CUDA-UNKNOWN", "RuntimeError: cuda runtime error (30) : unknown error at /torch/aten/src/THC/THCGeneral.cpp:7", ""),
    ("CUDA-UNKNOWN", "RuntimeError: Unexpected error from cudaGetDeviceCount(). Error 999: unknown error", "torch/cuda/__init__.py"),
    ("DRIVER-OLD", "RuntimeError: CUDA error: the provided PTX was compiled with an unsupported toolchain.", ""),
    ("NO-GPU", "RuntimeError: Attempting to read a CUDA tensor but torch.cuda.is_available() is False.", "torch/serialization.py"),
    ("NO-GPU", "ValueError: fp16 mixed precision requires a GPU (not 'cpu').", "accelerate/accelerator.py"),
    ("LOCAL-RANK-DEFAULT", "RuntimeError: Invalid device string: 'cuda:-1'", "torch/_utils.py"),
    ("NO-GPU", "NotImplementedError: Speedup cannot find any usable accelerator on this machine", "speedup/device.py"),
    (
        "MODEL-FILES",
        "requests.exceptions.HTTPError: 403 Client Error: Forbidden for url: https://zoo.org/api/models/tiny/config.json",
        "zoo/get.py",
    ),
    ("DEVICE-MIX", "RuntimeError: Input type (torch.cuda.FloatTensor) and weight type (torch.FloatTensor) should be the same", ""),
    ("DEVICE-MIX", "RuntimeError: Input type (CUDABFloat16Type) and weight type (torch.FloatTensor) should be the same", ""),
    ("DTYPE-MIX", "RuntimeError: Input type (CUDABFloat16Type) and weight type (CUDAFloatType) should be the same", ""),
    ("DTYPE-MIX", "RuntimeError: Input type (torch.cuda.HalfTensor) and weight type (torch.cuda.FloatTensor) should be the same", ""),
    ("DTYPE-MIX", "RuntimeError: Input type (float) and bias type (c10::Half) should be the same", "torch/nn/modules/conv.py"),
    ("DDP-UNUSED", "RuntimeError: Expected to mark a variable ready only once.", "torch/autograd/graph.py"),
    ("MODEL-FILES", "ValueError: Can't find 'adapter_config.json' at 'out/step-10'", "peft/config.py"),
    ("MODEL-FILES", "ValueError: Unrecognized model in ./out. Should have a `model_type` key in its config.json", "transformers/auto.py"),
    ("MODEL-LOAD", "EOFError: Ran out of input", "torch/serialization.py"),
    ("NO-INTERNET", "ConnectionError: Couldn't reach 'me/data' on the Hub (ConnectTimeout)", "datasets/load.py"),
    ("NO-INTERNET", "httpx.ConnectError: [Errno -2] Name or service not known", "httpx/_transports/default.py"),
    (
        "NO-INTERNET",
        "huggingface_hub.errors.OfflineModeIsEnabled: Cannot reach https://huggingface.co/x: offline mode is enabled.",
        "hub.py",
    ),
    ("TRACKER-LOGIN", "wandb.errors.CommError: It appears that you do not have permission to access this", "wandb/sdk/init.py"),
    ("DATA", "ValueError: num_samples should be a positive integer value, but got num_samples=0", "torch/utils/data/sampler.py"),
    ("DATA", "datasets.exceptions.DatasetNotFoundError: Dataset 'me/none' doesn't exist on the Hub", "datasets/load.py"),
    ("CKPT-SHAPE", "ValueError: loaded state dict has a different number of parameter groups", "torch/optim/optimizer.py"),
    ("CKPT-FOLDER", "ValueError: Can't find a valid checkpoint at out/checkpoint-7", "transformers/integrations/deepspeed.py"),
    (
        "PARALLEL-SIZE",
        "AssertionError: batch size (33) is not divisible by micro batch size (2) times data parallel size (4)",
        "megatron/a.py",
    ),
    ("HYDRA-CONFIG", "omegaconf.errors.InterpolationKeyError: Interpolation key 'paths.data' not found", "omegaconf/base.py"),
    (
        "OP-BUILD",
        "torch._inductor.exc.InductorError: CalledProcessError: Command '['/usr/bin/gcc', 'a.c']' returned non-zero exit status 1.",
        "a.py",
    ),
    ("TOO-MANY-PROCESSES", "RuntimeError: can't start new thread", "threading.py"),
    ("OOM-GPU", "RuntimeError: MPS backend out of memory (MPS allocated: 17.9 GB)", ""),
    ("NAN", "RuntimeError: probability tensor contains either `inf`, `nan` or element < 0", "transformers/generation/utils.py"),
    (
        "USER-SHAPE",
        "RuntimeError: The expanded size of the tensor (512) must match the existing size (514) at non-singleton dimension 1.",
        "",
    ),
    ("USER-PY", "RuntimeError: Parent directory out/best does not exist.", "torch/serialization.py"),
    ("Z3-PARTITIONED", "RuntimeError: mat1 and mat2 shapes cannot be multiplied (8x64 and 0x64)", "torch/nn/functional.py"),
    ("USER-SHAPE", "RuntimeError: mat1 and mat2 shapes cannot be multiplied (8x30 and 10x4)", "torch/nn/functional.py"),
    (
        "CKPT-SHAPE",
        "ValueError: Shape mismatch in layer #2 (named out) for weight out/kernel. Weight expects shape (4, 2). Received saved weight with shape (8, 2)",
        "keras/src/saving.py",
    ),
    (
        "GPU-BUSY",
        "AssertionError: Error in memory profiling. Initial free memory 40.5 GiB, current free memory 41.5 GiB.",
        "vllm/v1/worker/a.py",
    ),
    (
        "OOM-GPU",
        "tensorflow.odd.InternalError: Failed copying input tensor from CPU:0 to GPU:0: Dst tensor is not initialized.",
        "tensorflow/a.py",
    ),
    ("IMPORT-MISSING", "NameError: name 'init_empty_weights' is not defined", "transformers/modeling_utils.py"),
    ("Z3-PARTITIONED", "RuntimeError: Expected weight to be a vector, but got weight of shape [0]", "torch/nn/functional.py"),
    ("DL-WORKER", "RuntimeError: Pin memory thread exited unexpectedly", "torch/utils/data/dataloader.py"),
    ("GCC-VERSION", "RuntimeError: The current installed version of g++ (4.8.5) is less than the minimum required version", "torch/ext.py"),
    ("NO-INTERNET", "requests.exceptions.ChunkedEncodingError: ('Connection broken: IncompleteRead(1 bytes read)')", "requests/models.py"),
    (
        "RACE-FS",
        "FileNotFoundError: [Errno 2] No such file or directory: 'out/tmp-checkpoint-9' -> 'out/checkpoint-9'",
        "transformers/trainer.py",
    ),
    ("DATA", "FileNotFoundError: [Errno 2] No such file or directory: 'pairs/train.jsonl'", ""),
    ("DATA", "FileNotFoundError: [Errno 2] No such file or directory: 'pairs/alpaca.json'", ""),
    ("CONFIG-PATH", "FileNotFoundError: [Errno 2] No such file or directory: 'configs/ds_zero3.json'", ""),
    ("MODEL-FILES", "FileNotFoundError: [Errno 2] No such file or directory: 'out/model.ckpt'", ""),
    (
        "CKPT-SHAPE",
        'ValueError: Trying to set a tensor of shape torch.Size([3]) in "weight" (which has shape torch.Size([4])), this looks incorrect.',
        "",
    ),
    ("USER-PY", "torch._dynamo.exc.Unsupported: call of a builtin", "torch/_dynamo/exc.py"),
    ("USER-PY", "TypeError: Net.forward() got an unexpected keyword argument 'image'", "torch/nn/modules/module.py"),
]
"""Cause, last line of a traceback, file of the library that raised it."""
GOES_ON = [
    ("MODEL-FILES", ["OSError: You are trying to access a gated repo.", "Make sure to have access to it.", "401 Client Error."]),
    (
        "CUDA-MISMATCH",
        ["RuntimeError: ", "The detected CUDA version (12.2) mismatches the version that was used to compile", "PyTorch (11.8)."],
    ),
    ("BNB-CUDA", ["RuntimeError: ", "    CUDA Setup failed despite GPU being available. Please run the following"]),
    ("IMPORT-MISSING", ["ImportError: ", "BigTokenizer requires the Piece library but it was not found in your environment."]),
    (
        "IMPORT-MISSING",
        ["RuntimeError: Failed to import transformers.trainer because of the following error:", "No module named 'tinybits'"],
    ),
    ("NCCL-DUP-GPU", ["torch.distributed.DistBackendError: NCCL said no", "Last error:", "Duplicate GPU detected : rank 1 and rank 0"]),
]
SAID = [
    ("NO-DS-CMD", ["train.sh: line 3: accelerate: command not found", "srun: error: n1: task 0: Exited with exit code 127"]),
    ("NO-DS-CMD", ["run.sh: line 14: torchrun: command not found"]),
    ("NO-SCRIPT", ["bash: scripts/train.sh: No such file or directory"]),
    ("CKPT-PERM", ["slurmstepd: error: execve(): prepare.sh: Permission denied", "srun: error: n1: task 0: Exited with exit code 13"]),
    ("SCRIPT-SHELL", ["train.sh: line 6: NUM_GPUS: unbound variable"]),
    ("IMPORT-MISSING", ["/opt/env/bin/python: No module named torch.distributed.run"]),
    ("OOM-HOST", ["Reason: Evicted", "Message: The node was low on resource: memory. Container train was using 60Gi"]),
    ("CKPT-DISK", ["Message: Pod ephemeral local storage usage exceeds the total limit of containers 100Gi."]),
    ("OOM-HOST", ["slurmstepd: error: Exceeded job memory limit at some point."]),
    ("OOM-HOST", ["0: slurmstepd-h1: error: Exceeded job memory limit", "srun: error: h1: task 0: Killed"]),
    ("KILLED-UNKNOWN", ["trainer-0 exited with code 137"]),
    ("KILLED-UNKNOWN", ["make: *** [Makefile:12: train] Killed"]),
    ("OP-ABI", ["train.sh: line 8: 4242 Illegal instruction     (core dumped) python train.py"]),
    (
        "RDZV-TIMEOUT",
        ["RuntimeError: Timed out initializing process group in store based barrier on rank: 0, for key: store_based_barrier_key:1"],
    ),
    (None, ["train.py FAILED", "[0]:", "  rank      : 2 (local_rank: 2)", "  exitcode  : 1 (pid: 1234)", "  error_file: <N/A>"]),
    ("SIGABRT", ["double free or corruption (!prev)"]),
    ("SIGABRT", ["run.sh: line 5: 4242 Aborted                 (core dumped) python train.py"]),
    ("NO-DS-CMD", ["CommandNotFoundError: Your shell has not been properly configured to use 'conda activate'."]),
    ("USER-PY", ["Unrecognized options: --odd"]),
    ("HYDRA-CONFIG", ["hydra.errors.MissingConfigException: In 'config': Could not find 'model/odd'"]),
    ("TOO-MANY-PROCESSES", ["libgomp: Thread creation failed: Resource temporarily unavailable"]),
    (
        "SLURM-TIME",  # the job continued after what its shell could not run
        [
            "job.sh: line 3: odd: command not found",
            "step 1",
            "slurmstepd: error: *** JOB 5 ON n1 CANCELLED AT 2026-01-01T00:00:00 DUE TO TIME LIMIT ***",
        ],
    ),
    ("SLURM-CANCEL", ["slurmstepd: error: *** JOB 5 ON n1 CANCELLED AT 2024-01-01T00:00:00 DUE TO JOB REQUEUE ***"]),
    ("SLURM-TIME", ["=>> PBS: job killed: walltime 3610 exceeded limit 3600"]),
    ("SLURM-TIME", ["TERM_RUNLIMIT: job killed after reaching LSF run time limit."]),
]


def raised(lines: list[str], file: str = "") -> list[str]:
    head = ["Traceback (most recent call last):", '  File "/home/me/train.py", line 30, in <module>', "    main()"]
    return [*head, *([f'  File "{SITE}{file}", line 7, in part', "    other()"] if file else []), *lines]


@pytest.mark.parametrize(("cause", "last", "file"), RAISED)
def test_exception_of_a_library_is_known_by_its_words(tmp_path: Path, cause: str, last: str, file: str) -> None:
    found = diagnose_lines(tmp_path / "log", raised([last], file))
    assert (found.cause, found.kind) == (cause, "failure")
    labelled = [f"[rank1]: {line}" for line in raised([last], file)]
    found = diagnose_lines(tmp_path / "log", [*spawned(2), *labelled, *fallout(0), *ended(2, 1)])
    assert (found.cause, found.first_failing_rank) == (cause, 1)


@pytest.mark.parametrize(("cause", "lines"), GOES_ON)
def test_message_of_an_exception_is_read_completely(tmp_path: Path, cause: str, lines: list[str]) -> None:
    found = diagnose_lines(tmp_path / "log", [*spawned(2), *(f"[rank1]: {line}" for line in raised(lines)), *fallout(0), *ended(2, 1)])
    assert (found.cause, found.first_failing_rank) == (cause, 1)


@pytest.mark.parametrize(
    "line", ["[2026-03-01 10:00:09,000] [INFO] {}", "wandb: {}", "E0301 10:00:09.0 7 api.py:8] {}", "slurmstepd: error: {}"]
)
def test_log_lines_after_an_exception_are_not_its_message(tmp_path: Path, line: str) -> None:
    words = line.format("Error no file named weights.bin")
    found = diagnose_lines(tmp_path / "log", [*spawned(1), *raised(["ValueError: odd"]), words, *ended(1, 1)])
    assert found.cause == "USER-PY"


@pytest.mark.parametrize(("cause", "lines"), SAID)
def test_message_of_shell_or_scheduler_is_the_cause_if_nothing_else_is(tmp_path: Path, cause: str | None, lines: list[str]) -> None:
    assert diagnose_lines(tmp_path / "log", lines).cause == cause


@pytest.mark.parametrize("words", [lines[0] for cause, lines in SAID if cause in ("NO-DS-CMD", "NO-SCRIPT", "CKPT-PERM", "SCRIPT-SHELL")])
def test_script_that_continues_after_a_missing_command_did_not_end_by_it(tmp_path: Path, words: str) -> None:
    steps = [f"step {number} loss 2.0" for number in range(100)]
    assert diagnose_lines(tmp_path / "log", [words, *steps]).cause is None
    assert diagnose_lines(tmp_path / "log", [words, *steps, *raised(["KeyError: 'labels'"])]).cause == "USER-PY"


@pytest.mark.parametrize("figure", ["0.4360564445656344", "12 %", "1.2e-05"])
def test_figure_called_error_is_no_exception(tmp_path: Path, figure: str) -> None:
    steps = [f"layer {number} of 32" for number in range(9)]
    assert diagnose_lines(tmp_path / "log", [*steps, f"Error: {figure}", "Proxy loss: 24.93"]).cause is None


@pytest.mark.parametrize(
    "last", [last for _, last, _ in RAISED[::5] if last.startswith(("RuntimeError", "ValueError", "ImportError", "FileNotFoundError"))]
)
def test_printed_error_long_before_the_last_step_ended_nothing(tmp_path: Path, last: str) -> None:
    steps = [f"step {number} loss 2.0" for number in range(100)]
    found = diagnose_lines(tmp_path / "log", [*steps, last, *steps])
    assert (found.cause, found.kind) == (None, None)
    assert diagnose_lines(tmp_path / "log", [*steps, last]).kind == "failure", "at the end of the log it may have"


def test_traceback_drawn_by_rich_names_the_scripts_line(tmp_path: Path) -> None:
    lines = [
        "╭───────────────────── Traceback (most recent call last) ──────────────────────╮",
        "│ /home/me/train.py:30 in <module>                                             │",
        "│   29                                                                         │",
        "│ ❱ 30 main()                                                                  │",
        f"│ {SITE}a/b.py:7 in part        │",
        "│ ❱  7 │   raise OddInput(                                                     │",
        "╰──────────────────────────────────────────────────────────────────────────────╯",
        "my.package.OddInput: seventeen",
    ]
    found = diagnose_lines(tmp_path / "log", lines)
    assert (found.cause, found.confidence) == ("USER-PY", "medium")
    assert "/home/me/train.py, line 30" in report(found)


def test_line_marked_by_rich_counts_where_the_path_is_broken(tmp_path: Path) -> None:
    drawn = [
        "╭───────────── Traceback (most recent call last) ─────────────╮",
        "│ /home/me/a/project/with/long/names/train.py:4               │",
        "│ 85 in fit                                                   │",
        "│                                                             │",
        "│    484 │   # the loop                                       │",
        "│ ❱  485 │   step(batch)                                      │",
        "╰─────────────────────────────────────────────────────────────╯",
        "KeyError: 'labels'",
    ]
    assert "line 485" in diagnose_lines(tmp_path / "log", drawn).why


def test_version_accepted_by_deepspeed_is_no_mismatch(tmp_path: Path) -> None:
    words = "Installed CUDA version 11.8 does not match the version torch was compiled with 11.7 but since the APIs are compatible, accepting this combination"
    found = diagnose_lines(tmp_path / "log", [*spawned(1), words, "step 1", *ended(1, -9)])
    assert (found.cause, found.others) == ("KILLED-UNKNOWN", ())


def test_status_255_is_no_closed_terminal(tmp_path: Path) -> None:
    lines = ['FATAL:   "trainer": executable file not found in $PATH'] * 2
    ends = ["srun: error: n01: tasks 0-1: Exited with exit code 255"]
    found = diagnose_lines(tmp_path / "a", [*lines, *ends])
    assert (found.kind, found.cause, found.confidence) == ("failure", "NO-DS-CMD", "medium")
    assert diagnose_lines(tmp_path / "b", ends).kind == "failure"
    shell = diagnose_lines(tmp_path / "c", ["job.sh: 3: srun: not found"])
    assert (shell.cause, shell.first_failing_rank) == ("NO-DS-CMD", None), "a line of a script is no rank"


def test_unwritable_file_is_no_missing_model(tmp_path: Path) -> None:
    lines = [
        "Traceback (most recent call last):",
        '  File "/home/me/train.py", line 30, in {}',
        f'  File "{SITE}torch/serialization.py", line 211, in __init__',
        "FileNotFoundError: [Errno 2] No such file or directory: 'out/last.ckpt'",
    ]
    found = diagnose_lines(tmp_path / "a", [line.format("save_last") for line in lines])
    assert (found.cause, "saved" in found.title) == ("USER-PY", True)
    assert diagnose_lines(tmp_path / "b", [line.format("restore") for line in lines]).cause == "MODEL-FILES"


def test_shell_message_about_a_kill_counts_after_a_progress_bar(tmp_path: Path) -> None:
    assert (
        diagnose_lines(tmp_path / "log", ["Loading checkpoint shards:   0%|      | 0/2 [00:00<?, ?it/s]Killed"]).cause == "KILLED-UNKNOWN"
    )


def test_transformers_saving_a_full_checkpoint_instead_of_16_bit_weights_lost_nothing(tmp_path: Path) -> None:
    saved = " stage3_gather_16bit_weights_on_model_save=false. Saving the full checkpoint instead, use zero_to_fp32.py to recover weights"
    assert diagnose_lines(tmp_path / "a", [saved, "{'train_runtime': 12.0, 'train_loss': 0.1}"]).kind == "success"


def test_import_of_a_private_torch_name_needs_another_release(tmp_path: Path) -> None:
    last = "ImportError: cannot import name '_Ring' from 'torch.distributed.tensor' (/opt/env/lib/python3.11/site-packages/torch/x.py)"
    assert diagnose_lines(tmp_path / "a", traceback(None, last)).cause == "IMPORT-VERSION"
    of_library = traceback(None, last, "/opt/env/lib/python3.11/site-packages/deepspeed/x.py")
    assert diagnose_lines(tmp_path / "b", of_library).cause == "IMPORT-TORCH"
    public = diagnose_lines(tmp_path / "c", traceback(None, last.replace("_Ring", "Ring")))
    assert (public.cause, public.confidence) == ("IMPORT-TORCH", "medium"), "the script may be newer than PyTorch, or older"


def test_broken_store_is_no_mistake_of_the_script(tmp_path: Path) -> None:
    broken = traceback(None, "RuntimeError: Broken pipe")
    found = diagnose_lines(tmp_path / "log", [*broken, *broken])
    assert found.cause is None and "DESYNC-EARLY-EXIT" in found.could_be


def test_logger_line_is_no_part_of_the_exception_above(tmp_path: Path) -> None:
    oom = traceback(None, "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 98.00 MiB")
    table = [
        "[03/04 10:00:00] app INFO: Rank of current process: 0. World size: 1",
        "detectron2._C    not built correctly: No module named 'detectron2._C'",
    ]
    found = diagnose_lines(tmp_path / "log", [*oom, *table])
    assert (found.cause, found.others) == ("OOM-GPU", ())


def test_exception_quoted_in_anothers_message_is_read(tmp_path: Path) -> None:
    outer = "torch._dynamo.exc.BackendCompilerFailed: backend='inductor' raised:"
    gone = "FileNotFoundError: [Errno 2] No such file or directory: 'ldconfig'"
    assert diagnose_lines(tmp_path / "log", raised([outer, gone], "torch/_inductor/codecache.py")).cause == "LIB-MISSING"


def test_added_timestamps_are_recognised_though_the_program_logs_its_own(tmp_path: Path) -> None:
    said = [
        *(f"- INFO - item {number}" for number in range(8)),
        *(f"reads part {number}" for number in range(8)),
        "",
        *raised(["ValueError: x"]),
    ]
    lines = [f"2026-01-01 10:00:{number:02} {line}" for number, line in enumerate(said)]
    found = diagnose_lines(tmp_path / "log", lines)
    assert (found.cause, found.confidence) == ("USER-PY", "high"), "with its traceback"


@pytest.mark.parametrize(
    ("numbers", "words"),
    [
        ("32 != 8 * 4 * 1", ""),
        ("32 != 8 * 4 * 4", "counted 1 process, and DeepSpeed counts 4: start it by `accelerate launch`"),
        ("128 != 8 * 4 * 1", "for 4 ranks, and DeepSpeed counts 1: no launcher started it"),
        ("64 != 8 * 4 * 4", "for 2 ranks, and DeepSpeed counts 4"),
        ("30 != 8 * 4 * 4", ""),
        ("30 != 0 * 4 * 4", ""),
    ],
)
def test_inconsistent_batch_numbers_show_who_counted_ranks_wrongly(tmp_path: Path, numbers: str, words: str) -> None:
    said = (
        f"Check batch related parameters. train_batch_size is not equal to micro_batch_per_gpu * gradient_acc_step * world_size {numbers}"
    )
    found = diagnose_lines(tmp_path / "run.log", traceback(None, f"AssertionError: {said}", f"{SITE}deepspeed/runtime/config.py"))
    assert found.cause == "BATCH-ASSERT" and bool(words) == bool(found.notes) and all(words in note for note in found.notes), found.notes


def test_hook_of_a_rank_is_no_line_of_the_program(tmp_path: Path) -> None:
    lines = [
        "Traceback (most recent call last):",
        '  File "/home/me/project/odd.py", line 29, in made',
        '  File "/opt/dstui/jobs/rank/hook/sitecustomize.py", line 255, in initialize_and_report',
        f'  File "{SITE}deepspeed/runtime/engine.py", line 527, in __init__',
        "TypeError: __init__() missing 2 required positional arguments: 'args' and 'model'",
    ]
    found = diagnose_lines(tmp_path / "run.log", lines)
    assert "odd.py, line 29" in found.why and "sitecustomize" not in found.why


@pytest.mark.parametrize(
    ("last", "title"),
    [
        ("ModuleNotFoundError: No module named 'imblearn'", "A Python package is missing where the ranks run: imblearn"),
        (
            "FileNotFoundError: [Errno 2] No such file or directory: 'data/mean.npy'",
            "A file of the data is not where the script looks for it: data/mean.npy",
        ),
        ("IsADirectoryError: [Errno 21] Is a directory: './data/x/'", "A folder is where the script reads a file of the data: ./data/x/"),
    ],
)
def test_title_names_what_is_missing(tmp_path: Path, last: str, title: str) -> None:
    found = diagnose_lines(tmp_path / "log", traceback(0, last))
    assert found.title == title
    assert "import NAME" not in found.confirm
    long = diagnose_lines(
        tmp_path / "long", traceback(0, f"FileNotFoundError: [Errno 2] No such file or directory: '/data/{'x/' * 200}a.csv'")
    )
    assert long.title.endswith("x/a.csv")
    assert len(long.title) < 200


def test_success_shows_the_line_that_reports_it(tmp_path: Path) -> None:
    found = diagnose_lines(
        tmp_path / "log", [*spawned(1), "[2026-03-01 10:01:00,000] [INFO] [launch.py:350:main] Process 700 exits successfully."]
    )
    assert (found.kind, [line.line for line in found.evidence]) == ("success", [3])


def test_names_of_exceptions_that_ranks_wrote_into_one_line_are_read(tmp_path: Path) -> None:
    frame = '  File "/home/me/project/train.py", line 30, in main'
    shredded = [
        "Traceback (most recent call last):",
        frame,
        "AttributeError    k=args.k,",
        ": k=args.k,",
        "'Namespace' object has no attribute 'k'",
    ]
    assert diagnose_lines(tmp_path / "a", [*shredded, *ended(1, 1)]).cause == "USER-PY"
    warned = (
        "/opt/x/typing.py:18: UserWarning: An issue occurred while importing 'lib'. Stacktrace: /opt/x/a.so: cannot open shared object file"
    )
    steps = [f" {number}%|#   | {number}/100 [00:{number:02d}<01:00, 1.0it/s]" for number in range(1, 30)]
    found = diagnose_lines(tmp_path / "b", [*traceback(None, "ZeroDivisionError: division by zero"), warned, "  warnings.warn(", *steps])
    assert "ZeroDivisionError" in found.evidence[0].text, "a warning is not the error"
