"""Exceptions without a signature: type, subject and raising library give the cause."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.diagnosis.crash_texts import diagnose_lines, spawned

SITE = "/opt/env/lib/python3.11/site-packages/"
OWN = "/home/me/work/step.py"


def raised(last: str, code: str, function: str = "run", own: str = "main") -> list[str]:
    """Return a traceback whose deepest frame is `code`."""
    where = OWN if not code else code if code.startswith("/") else SITE + code
    frames = ["Traceback (most recent call last):", f'  File "{OWN}", line 20, in {own}', "    go()"]
    return [*frames, *([f'  File "{where}", line 120, in {function}', "    return call(x)"] if code else []), last]


@pytest.mark.parametrize(
    ("cause", "code", "last"),
    [
        ("USER-SHAPE", "torch/odd.py", "RuntimeError: grid expects 3D input, got one of 2D"),
        ("USER-SHAPE", "", "ValueError: two arrays of different shapes: (3,) and (4,)"),
        ("USER-SHAPE", "torch/odd.py", "AssertionError: hidden size 12 must match 16"),
        ("USER-SHAPE", "", "AssertionError: image height 256 doesn't match the model's 224"),
        ("USER-SHAPE", "einops/einops.py", "einops.EinopsError:  Error while processing rearrange-reduction pattern"),
        ("DTYPE-MIX", "torch/odd.py", "RuntimeError: fold(): expected dtype Half but got Float"),
        ("DTYPE-MIX", "torch/odd.py", "RuntimeError: \"fold_cpu\" not implemented for 'BFloat16'"),
        ("DEVICE-MIX", "torch/odd.py", "RuntimeError: fold(): arguments on different devices: cuda:0 is on cuda:0, but x is not"),
        ("NAN", "", "RuntimeError: the loss is not finite at step 4"),
        ("NAN", "", "AssertionError: NaN in the gradients of layer 3"),
        ("INVALID-ORDINAL", "", "ValueError: this recipe requires 8 GPUs"),
        ("NO-GPU", "lightning/odd.py", "MisconfigurationException: CUDA is not available on this system"),
        ("PARALLEL-SIZE", "megatron/odd.py", "AssertionError: 30 layers are not divisible by 4"),
        ("PARALLEL-SIZE", "", "ValueError: tensor_parallel_size must divide the number of heads"),
        ("CONFIG-ASSERT", "", "ValueError: odd loading is incompatible with DeepSpeed ZeRO-3."),
        ("CKPT-FOLDER", "", "ValueError: cannot find a checkpoint in out/"),
        ("CKPT-SHAPE", "", "KeyError2Error: unexpected keys in the checkpoint"),
        ("DATA", "h5py/_hl/files.py", "OSError: no such group"),
        ("DATA", "torchvision/datasets/folder.py", "RuntimeError: nothing of these classes is here"),
        ("DATA", "datasets/builder.py", "ValueError: no split of that name"),
        ("DATA", "", "lmdb.CorruptedError: page not found"),
        ("DATA", "", "cv2.error: OpenCV(4.8.0) color.cpp:182: error: (-215:Assertion failed) !_src.empty() in function 'cvtColor'"),
        ("MODEL-FILES", "transformers/processing_utils.py", "OSError: no processor in that folder"),
        ("MODEL-FILES", "huggingface_hub/odd.py", "huggingface_hub.errors.RevisionError: no such branch"),
        ("MODEL-LOAD", "transformers/modeling_utils.py", "ValueError: these weights are odd"),
        (
            "CKPT-SHAPE",
            "torch/distributed/checkpoint/utils.py",
            "torch.distributed.checkpoint.api.CheckpointException: CheckpointException ranks",
        ),
        ("NO-INTERNET", "httpx/_transports/default.py", "httpx.ConnectTimeout: timed out"),
        ("NO-INTERNET", "/usr/lib/python3.11/socket.py", "socket.gaierror: [Errno -2] Name or service not known"),
        ("OP-BUILD", "triton/compiler/compiler.py", "triton.compiler.errors.CompilationError: at 3:7"),
        ("NCCL-SYSTEM", "torch/distributed/odd.py", "RuntimeError: NCCL gave up"),
        ("MODEL-FILES", "mmcv/runner/checkpoint.py", "OSError: work_dirs/latest.pth is not a checkpoint file"),
        ("CONFIG-ASSERT", "deepspeed/runtime/engine.py", "AssertionError: ZeRO-3 and this pipeline do not go together"),
        ("IMPORT-MISSING", "", "RuntimeError: please install the package odd first"),
        ("IMPORT-VERSION", "odd/loops.py", "NotImplementedError: Support for `on_odd` has been removed in v3.0."),
        ("IMPORT-VERSION", "odd/loops.py", "ValueError: odd loading requires torch>=2.4, and 2.1 is here"),
        ("IMPORT-VERSION", "odd/loops.py", "ImportError: odd needs version 3.2 or newer. Please install it"),
        ("USER-PY", "odd/loops.py", "ValueError: persistent workers need num_workers > 0"),
        ("PARALLEL-SIZE", "odd/mesh.py", "ValueError: `ep_size` must divide what is left"),
        ("USER-PY", "odd/layers.py", "AssertionError: num_heads must be divisible by num_kv_heads"),
        ("NO-INTERNET", "wandb/sdk/odd.py", "wandb.errors.CommError: initialization has timed out"),
        ("TRACKER-LOGIN", "wandb/sdk/odd.py", "wandb.errors.UsageError: the key has 3 characters"),
        ("USER-PY", "wandb/sdk/odd.py", "wandb.errors.UsageError: a project of that name is odd"),
        ("MODEL-FILES", "huggingface_hub/odd.py", "huggingface_hub.errors.LocalTokenNotFoundError: nobody is here"),
        ("USER-PY", "transformers/modeling_utils.py", "ValueError: OddModel knows no such attention"),
        ("USER-PY", "transformers/modeling_utils.py", "ValueError: OddModel does not support gradient checkpointing."),
        ("USER-PY", "torch/distributed/checkpoint/filesystem.py", "AssertionError: this must lie on the CPU"),
        ("RDZV-TIMEOUT", "torch/distributed/elastic/odd.py", "TimeoutError: waited for 4 members to join"),
        ("USER-SHAPE", "torch/odd.py", "ValueError: Expected more than one value, got input size torch.Size([1, 8])"),
        ("GPU-BUSY", "torch/odd.py", "RuntimeError: CUDA error: CUDA-capable device(s) is/are busy or unavailable"),
        ("USER-PY", "torch/odd.py", "RuntimeError: this plan requires CUDA tensors"),
        ("USER-PY", "odd/checkpoint.py", "RuntimeError: the process of the checkpoint died unexpectedly"),
        ("DATA", "", "EOFError: Compressed file ended before the end-of-stream marker was reached"),
        ("DATA", "", "zipfile.BadZipFile: File is not a zip file"),
        ("OOM-GPU", "odd/model.py", "OddError: the device ran out of memory"),
        ("ALLOC-REFUSED", "odd/model.py", "OddError: out of host memory"),
        ("USER-PY", "h5py/_hl/files.py", "TypeError: 'int' object is not iterable"),
        ("USER-PY", "", "ValueError: nothing of all that"),
    ],
)
def test_kind_of_exception_gives_the_cause(tmp_path: Path, cause: str, code: str, last: str) -> None:
    found = diagnose_lines(tmp_path / "log", raised(last, code))
    assert found.cause == cause
    if cause != "USER-PY":
        assert (found.confidence, "USER-PY" in found.could_be) == ("medium", True), "words alone are uncertain"


@pytest.mark.parametrize(
    ("cause", "path", "frames"),
    [
        ("CONFIG-PATH", "conf/base.toml", ("", "", "main")),
        ("CONFIG-PATH", "configs/model.py", ("", "", "main")),
        ("MODEL-FILES", "runs/best.pth", ("", "", "main")),
        ("DATA", "sheets/a.xlsx", ("", "", "main")),
        ("DATA", "/mnt/imagenet/n01", ("", "", "main")),
        ("DATA", "a/b", ("torchvision/datasets/folder.py", "find_classes", "main")),
        ("DATA", "a/b", ("", "", "__getitem__")),
        ("LIB-MISSING", "aria2c", ("/usr/lib/python3.11/subprocess.py", "_execute_child", "main")),
        ("RACE-FS", "/home/me/.cache/torch_extensions/fused_adam/odd", ("torch/utils/cpp_extension.py", "load", "main")),
        ("USER-PY", "runs/best.pth", ("torch/serialization.py", "_save", "main")),
        ("USER-PY", "runs/a.csv", ("", "", "write_table")),
        ("USER-PY", "odd", ("", "", "main")),
    ],
)
def test_missing_file_gives_the_cause_by_its_name(tmp_path: Path, cause: str, path: str, frames: tuple[str, str, str]) -> None:
    last = f"FileNotFoundError: [Errno 2] No such file or directory: '{path}'"
    assert diagnose_lines(tmp_path / "log", raised(last, *frames)).cause == cause


def test_file_that_torch_could_not_create_is_no_missing_model(tmp_path: Path) -> None:
    last = "FileNotFoundError: [Errno 2] No such file or directory: 'runs/best.pt'"
    frames = ['  File "/home/me/train.py", line 9, in main', '  File "/opt/site-packages/torch/serialization.py", line 376, in {}']
    inner = '  File "/opt/site-packages/torch/serialization.py", line 211, in __init__'
    causes = {
        what: diagnose_lines(
            tmp_path / what, ["Traceback (most recent call last):", *(frame.format(what) for frame in frames), inner, last]
        ).cause
        for what in ("load", "save")
    }
    assert causes == {"load": "MODEL-FILES", "save": "USER-PY"}


@pytest.mark.parametrize(
    ("cause", "lines"),
    [
        ("NO-DS-CMD", ["job.sh: line 9: nvcc: command not found"]),
        ("NO-DS-CMD", ["job.sh: 5: swift: not found"]),
        ("NO-DS-CMD", ["/usr/bin/env: ‘python’: No such file or directory"]),
        ("NO-DS-CMD", ["make: torchrun: Command not found", "make: *** [Makefile:10: train] Error 127"]),
        ("NO-DS-CMD", ["'deepspeed' is not recognized as an internal or external command,", "operable program or batch file."]),
        ("NO-DS-CMD", ["EnvironmentNameNotFound: Could not find conda environment: llm"]),
        ("NO-DS-CMD", ["job.sh: line 10: /home/me/venv/bin/activate: No such file or directory"]),
        ("REMOTE-ENV", ["FATAL:   could not open image /images/a.sif: failed to retrieve path"]),
        ("REMOTE-ENV", ["docker: Error response from daemon: pull access denied for a/b."]),
        ("REMOTE-ENV", ["slurmstepd: error: pyxis: container start failed with error code: 1"]),
        ("NO-DS-CMD", ["mpirun was unable to find the specified executable file, and therefore", "did not launch the job."]),
        ("SSH-CHECK", ['pdsh@head: gpu05: gethostbyname("gpu05") failed']),
        ("DATA", ["cp: cannot stat '/data/train.tar': No such file or directory"]),
        ("DATA", ["tar: /data/a.tar: Cannot open: No such file or directory", "tar: Error is not recoverable: exiting now"]),
        ("NO-GPU", ["Failed to initialize NVML: Unknown Error"]),
        ("LIB-MISSING", ["Intel MKL FATAL ERROR: Cannot load libmkl_avx2.so or libmkl_def.so."]),
        ("IMPORT-VERSION", ["OMP: Error #15: Initializing libiomp5.so, but found libiomp5.so already initialized."]),
        ("SIGABRT", ["*** stack smashing detected ***: terminated"]),
        ("SIGABRT", ["job.sh: line 8: 4711 Floating point exception(core dumped) python train.py"]),
        ("SCRIPT-SHELL", ["job.sh: line 4: --nproc_per_node=8: command not found"]),
        ("SCRIPT-SHELL", ['job.sh: 3: Syntax error: "(" unexpected']),
        ("SCRIPT-SHELL", ["job.sh: line 7: $GPUS: ambiguous redirect"]),
        ("NO-SCRIPT", ["/usr/bin/python3: can't find '__main__' module in '/home/me/work'"]),
        ("USER-PY", ["FATAL Flags parsing error: Unknown command line flag 'odd'."]),
        ("USER-PY", ["Usage: axolotl train [OPTIONS] CONFIG", "Error: No such option: --odd"]),
    ],
)
def test_last_message_of_shell_or_container_is_the_cause(tmp_path: Path, cause: str, lines: list[str]) -> None:
    found = diagnose_lines(tmp_path / "log", lines)
    assert (found.cause, found.kind, found.first_failing_rank) == (cause, "failure", None)


def test_script_continues_after_a_command_that_was_not_found(tmp_path: Path) -> None:
    lines = ["job.sh: line 9: module: command not found", *(f"step {number} loss 2.0" for number in range(20))]
    assert diagnose_lines(tmp_path / "a", lines).cause is None
    found = diagnose_lines(tmp_path / "b", [*lines, *spawned(1), *raised("NameError: name 'x' is not defined", "")])
    assert (found.cause, found.others) == ("USER-PY", ())


def test_class_before_another_name_is_no_host(tmp_path: Path) -> None:
    found = diagnose_lines(tmp_path / "log", raised("odd.errors.OuterException: ValueError: nothing of all that", ""))
    assert (found.cause, found.host) == ("USER-PY", None)


SAID = [
    "loading",
    "step 1",
    "step 2",
    "step 3",
    "step 4",
    "step 5",
    "step 6",
    *raised("ValueError: two arrays of different shapes: (3,) and (4,)", ""),
]


@pytest.mark.parametrize(
    "before",
    [
        "2026-03-04T10:11:{:02d}.1234567Z ",
        "[2026-03-04 10:11:{:02d}] ",
        "Mar  4 10:11:{:02d} ",
        "gpu-node-7: ",
        "gpu07.cluster.local: ",
    ],
)
def test_prefix_of_every_line_is_removed(tmp_path: Path, before: str) -> None:
    plain = diagnose_lines(tmp_path / "a", SAID)
    found = diagnose_lines(tmp_path / "b", [before.format(number) + line for number, line in enumerate(SAID)])
    assert (found.cause, found.why, found.could_be) == (plain.cause, plain.why, plain.could_be) == ("USER-SHAPE", plain.why, plain.could_be)
    assert found.host == (before.strip(": ") if before.startswith("gpu") else None)


def test_step_cancelled_by_srun_after_a_failed_task_is_no_stop(tmp_path: Path) -> None:
    cancelled = "slurmstepd: error: *** STEP 7.0 ON n1 CANCELLED AT 2026-01-01T00:00:00 ***"
    assert diagnose_lines(tmp_path / "a", ["srun: error: n1: task 1: Exited with exit code 1", cancelled]).kind == "failure"
    assert diagnose_lines(tmp_path / "b", [cancelled, "srun: error: n1: task 1: Exited with exit code 1"]).cause == "SLURM-CANCEL"


def test_missing_variable_of_a_launcher_is_named(tmp_path: Path) -> None:
    for name in ("LOCAL_RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK"):
        assert diagnose_lines(tmp_path / "log", raised(f"KeyError: '{name}'", "/usr/lib/python3.11/os.py")).cause == "ENV-RANK-MISSING"
    assert diagnose_lines(tmp_path / "log", raised("KeyError: 'DATA_DIR'", "/usr/lib/python3.11/os.py")).cause == "USER-PY"


def test_finished_step_is_no_end_of_the_run(tmp_path: Path) -> None:
    assert diagnose_lines(tmp_path / "a", ["loading", "Done.", *(f"step {number}" for number in range(5))]).kind is None
    assert diagnose_lines(tmp_path / "b", ["loading", *(f"step {number}" for number in range(5)), "Done."]).kind == "success"


@pytest.mark.parametrize(
    ("cause", "line"),
    [
        ("SLURM-TIME", "[2026-01-01 10:00:00] submitit WARNING - Caught signal SIGUSR2 on n1: this job is timed-out."),
        ("SLURM-PREEMPT", "[2026-01-01 10:00:00] submitit WARNING - Caught signal SIGUSR1 on n1: this job is preempted."),
        ("SLURM-CANCEL", "=>> PBS: job killed: deleted by user"),
        ("CTRL-C", "User interrupted training. Exiting."),
    ],
)
def test_intended_end_of_a_job_is_a_stop(tmp_path: Path, cause: str, line: str) -> None:
    found = diagnose_lines(tmp_path / "log", ["step 1", line])
    assert (found.cause, found.kind) == (cause, "stop")


def test_printed_configuration_names_no_hosts(tmp_path: Path) -> None:
    printed = [f"{name}: {number}" for number, name in enumerate(("lr", "steps", "bash", "seed", "model", "warmup", "decay", "batch"))]
    found = diagnose_lines(tmp_path / "log", [*printed, "bash: ./train.sh: Permission denied"])
    assert (found.cause, found.host) == ("CKPT-PERM", None)
