"""Causes that depend on the order of messages: schedulers, launchers, destructors, native code."""

from __future__ import annotations

from pathlib import Path

import pytest

from dstui.diagnosis import Diagnosis, diagnose, report
from dstui.diagnosis.engine import conclude
from dstui.diagnosis.reading.log_reader import read_logs
from dstui.plan import load
from tests.diagnosis.crash_texts import diagnose_lines, traceback
from tests.jobs.made import PLAN

LIBRARY = "/opt/env/lib/python3.11/site-packages"
WATCHDOG = (
    "[rank3]:[E1203 10:11:12.345 ProcessGroupNCCL.cpp:616] [Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=812, "
    "OpType=ALLREDUCE, NumelIn=1024, NumelOut=1024, Timeout(ms)=600000) ran for 600029 milliseconds before timing out."
)
ABORT = [
    "terminate called after throwing an instance of 'c10::DistBackendError'",
    "  what():  [PG ID 0 PG GUID 0(default_pg) Rank 3] Process group watchdog thread terminated with exception: [Rank 3] Watchdog caught "
    "collective operation timeout: WorkNCCL(SeqNum=812, OpType=ALLREDUCE)",
    "Fatal Python error: Aborted",
]
CANCELLED = "slurmstepd: error: *** STEP 991.0 ON node1 CANCELLED AT 2025-12-03T10:11:20 ***"


def diagnosed(tmp_path: Path, lines: list[str]) -> Diagnosis:
    """Return the diagnosis of one log of these lines."""
    return diagnose_lines(tmp_path / "job.log", lines)


@pytest.mark.parametrize(
    "lines",
    [
        [WATCHDOG, *ABORT, "srun: error: node2: task 3: Aborted (core dumped)", CANCELLED, "srun: error: node1: tasks 0-1: Terminated"],
        [WATCHDOG, CANCELLED, "srun: error: node2: task 3: Aborted", "srun: error: node1: tasks 0-2: Killed"],
    ],
)
def test_watchdog_abort_under_srun_is_a_hang_and_no_cancelled_job(tmp_path: Path, lines: list[str]) -> None:
    found = diagnosed(tmp_path, ["step 120 | loss 2.31", *lines])
    assert (found.cause, found.kind, found.first_failing_rank) == ("NCCL-WATCHDOG", "failure", 3)
    assert found.confidence != "high"


def test_job_cancelled_while_training_is_a_stop(tmp_path: Path) -> None:
    steps = [f"step {number} | loss 2.3{number}" for number in range(20)]
    found = diagnosed(tmp_path, [*steps, CANCELLED, "srun: error: node1: tasks 0-3: Killed"])
    assert (found.cause, found.kind) == ("SLURM-CANCEL", "stop")


def test_destructors_and_warnings_do_not_hide_an_earlier_error(tmp_path: Path) -> None:
    steps = [f"step {number} loss {2 + number / 1000}" for number in range(30)]
    errors = [line for rank in range(8) for line in traceback(rank, "FloatingPointError: loss is nan at step 31")]
    found = diagnosed(tmp_path, [*steps, *errors, *(f"destroying communicator {number} of pool {number * 7}" for number in range(220))])
    assert (found.cause, found.kind, found.every_rank) == ("NAN", "failure", True)
    warned = diagnosed(tmp_path, [*traceback(None, "KeyError: 'labels'"), *(f"/opt/x.py:{n}: UserWarning: odd {n}" for n in range(260))])
    assert (warned.cause, warned.confidence) == ("USER-PY", "medium")


def test_survived_error_is_shown_if_the_end_is_unknown(tmp_path: Path) -> None:
    bars = [f" {number}%|#   | {number}/100 [00:{number:02d}<01:00, 1.0it/s]" for number in range(1, 30)]
    found = diagnosed(tmp_path, [*traceback(None, "KeyError: 'labels'"), *bars])
    assert (found.cause, found.kind, found.could_be[:1]) == (None, None, ("USER-PY",))
    assert "an error is at line" in found.title
    assert "KeyError" in found.evidence[0].text


def test_last_error_is_reported_beside_an_earlier_cause(tmp_path: Path) -> None:
    oom = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.25 GiB."
    found = diagnosed(tmp_path, [*traceback(None, oom), "cleaning up", *traceback(None, "ValueError: no such trial")])
    assert found.last_error is not None or "no such trial" in found.title
    alone = diagnosed(tmp_path, traceback(None, oom))
    assert alone.last_error is None
    shown = diagnosed(tmp_path, [*traceback(0, oom), *traceback(1, "KeyError: 'labels'")])
    assert shown.last_error is not None
    assert "KeyError" in shown.last_error.text
    assert "the last error of the text" in report(shown)
    assert shown.as_json()["last_error"]["line"] == shown.last_error.line


def test_abort_has_the_message_of_its_exception(tmp_path: Path) -> None:
    lines = [
        "terminate called after throwing an instance of 'std::runtime_error'",
        "  what():  merges file is corrupt at byte 112",
        "Aborted",
    ]
    found = diagnosed(tmp_path, ["loading weights", *lines])
    assert found.cause == "SIGABRT"
    assert "merges file is corrupt at byte 112" in found.title
    assert any("what()" in line.text for line in found.evidence)


def test_mismatched_collectives_are_blamed_on_the_culprit(tmp_path: Path) -> None:
    victim = traceback(0, "RuntimeError: [gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:4711")
    culprit = [
        "terminate called after throwing an instance of 'gloo::EnforceNotMet'",
        "  what():  [enforce fail at gloo/transport/tcp/pair.cc:446] op.preamble.length <= op.nbytes. 16 vs 8",
        "Received data size doesn't match expected size. Is there a distributed collective mismatch in your code?",
    ]
    end = "E1203 10:00:00 1 torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: -6) local_rank: 1 (pid: 901) of binary: python"
    found = diagnosed(tmp_path, [*victim, *culprit, end])
    assert (found.cause, found.first_failing_rank) == ("HANG-DESYNC", 1)
    assert any("16 vs 8" in line.text or "Received data size" in line.text for line in found.evidence)


def _raised(file: str, function: str, words: str, *, source: str = "step()") -> list[str]:
    frames = [
        '  File "train.py", line 12, in <module>',
        f"    {source}",
        f'  File "{LIBRARY}/{file}", line 998, in {function}',
        "    work()",
    ]
    return ["Traceback (most recent call last):", *frames, words]


@pytest.mark.parametrize(
    ("lines", "cause"),
    [
        (_raised("torch/serialization.py", "load", "FileNotFoundError: [Errno 2] No such file or directory: '/data/x.pt'"), "DATA"),
        (
            _raised(
                "deepspeed/runtime/zero/stage3.py",
                "_rigid_load_state_dict",
                "RuntimeError: The size of tensor a (2048) must match the size of tensor b (1024) at non-singleton dimension 0",
            ),
            "CKPT-SHAPE",
        ),
        (traceback(None, "FileNotFoundError: [Errno 2] No such file or directory: 'configs/ds_config.json'"), "CONFIG-PATH"),
        (
            [
                "$ mpirun -np 4 python train.py --deepspeed",
                *_raised("deepspeed/comm/comm.py", "mpi_discovery", "ModuleNotFoundError: No module named 'mpi4py'"),
            ],
            "IMPORT-MISSING",
        ),
        (_raised("deepspeed/comm/comm.py", "mpi_discovery", "ModuleNotFoundError: No module named 'mpi4py'"), "MPI4PY"),
    ],
)
def test_location_and_launch_decide_what_equal_words_mean(tmp_path: Path, lines: list[str], cause: str) -> None:
    found = diagnosed(tmp_path, lines)
    assert found.cause == cause
    assert found.confidence != "high" or cause == "MPI4PY"
    assert not any("hf auth login" in fix.text for fix in found.fixes)


def test_ranks_that_each_use_every_gpu_are_not_other_users(tmp_path: Path) -> None:
    held = "this process has 9.80 GiB memory in use. Process 1013 has 9.80 GiB memory in use."
    lines = [
        line
        for rank in range(4)
        for line in traceback(rank, f"torch.OutOfMemoryError: CUDA out of memory. GPU {rank} has a total capacity of 79.15 GiB. {held}")
    ]
    found = diagnosed(tmp_path, lines)
    assert found.cause == "OOM-GPU"
    assert any("every GPU" in note for note in found.notes)
    assert diagnosed(tmp_path, lines[: len(lines) // 4]).cause == "GPU-BUSY"


@pytest.mark.parametrize(
    ("words", "cause"),
    [
        (["RuntimeError: The Inner error as above.", "EL0004: Failed to allocate memory."], "OOM-GPU"),
        (["RuntimeError: rtMalloc execute failed, reason=[driver error:out of memory]"], "OOM-GPU"),
        (["RuntimeError: [Rank:0] FATAL ERROR :: MODULE:PT_DEVMEM Allocation failed for size::4294967296 (4096)MB"], "OOM-GPU"),
        (["tensorflow.python.framework.errors_impl.ResourceExhaustedError: Graph execution error:"], "OOM-GPU"),
        (["RuntimeError: HcclCommInitRootInfo, error code is 4", "EI0006: Getting socket times out. Reason: Remote Rank"], "NPU-LINK"),
        (
            ["RuntimeError: HcclAllreduce", "EI0005: The arguments for collective communication are inconsistent between ranks"],
            "HANG-DESYNC",
        ),
        (["RuntimeError: init failed", "EI0004: The ranktable is invalid,Reason:[The ranktable config devId]"], "NPU-RANKTABLE"),
        (["RuntimeError: kernel", "EZ9999: Inner Error!"], "NPU-ERROR"),
        (["RuntimeError: initialization failed", "EJ0001: Failed to initialize the HCCP process."], "GPU-BUSY"),
        (["RuntimeError: Graph compile failed. synStatus=synStatus 26 [Generic failure]."], "ACCEL-ERROR"),
        (["RuntimeError: level_zero backend failed with error: 20 (UR_RESULT_ERROR_DEVICE_LOST)"], "ACCEL-ERROR"),
        (
            ["RuntimeError: lost", ":0:rocdevice.cpp:28: Callback: Queue 0x7cb1 aborting with error : HSA_STATUS_ERROR_EXCEPTION: x"],
            "ACCEL-ERROR",
        ),
        (["RuntimeError: CUDA error: HIPBLAS_STATUS_INTERNAL_ERROR when calling hipblasCreate"], "ACCEL-ERROR"),
    ],
)
def test_messages_of_other_accelerators_are_known(tmp_path: Path, words: list[str], cause: str) -> None:
    found = diagnosed(tmp_path, [*traceback(None, words[0]), *words[1:]])
    assert (found.cause, found.kind) == (cause, "failure")


@pytest.mark.parametrize(
    "lines",
    [
        [f"[2024-11-02 10:00:{n:02d},000] [INFO] [launch.py:351:main] Process {9000 + n} exits successfully." for n in range(16)],
        ["2024-05-01 10:00:00,000 sagemaker-training-toolkit INFO     Reporting training SUCCESS"],
        ["[node-0]: {'train_runtime': 33.9, 'train_samples_per_second': 0.709, 'train_loss': 1.18, 'epoch': 3.0}"],
        ["Training Completed"],
        [
            "2024-10-08T13:25:54Z INFO     Training is finished",
            "torch.distributed.elastic.rendezvous.dynamic_rendezvous: [WARNING] The node 'master-0_7_0' has failed to shutdown the rendezvous "
            "'x' due to an error of type RendezvousConnectionError.",
        ],
    ],
)
def test_successful_ends_are_no_failures(tmp_path: Path, lines: list[str]) -> None:
    found = diagnosed(tmp_path, [*(f"step {number} loss {3 - number / 10}" for number in range(9)), *lines])
    assert found.kind in ("success", None)
    assert found.kind == "success" or "Rendezvous" in lines[-1]


SERVERS = ["srun: forcing job termination", "srun: error: node1: tasks 0-1: Killed", "srun: Terminating StepId=9.4"]


def test_tasks_that_srun_was_asked_to_end_did_not_fail(tmp_path: Path) -> None:
    found = diagnosed(tmp_path, ["wrote results.json", *SERVERS, "Sweep completed successfully"])
    assert (found.kind, found.confidence) == ("success", "medium")
    assert diagnosed(tmp_path, ["step 3 loss 2.0", *SERVERS]).cause == "CTRL-C"
    killed = diagnosed(tmp_path, ["step 3 loss 2.0", "srun: error: node2: task 3: Killed", *SERVERS, "Sweep completed successfully"])
    assert (killed.cause, killed.kind) == ("KILLED-UNKNOWN", "failure"), "a task was killed before anybody asked"


def test_consequences_in_other_processes_are_not_the_cause(tmp_path: Path) -> None:
    mistake = traceback(None, "NameError: name 'tracker' is not defined")
    killed = "run.sh: line 81:   203 Killed                  accelerate launch train.py"
    assert diagnosed(tmp_path, [*mistake, *mistake, killed]).cause == "USER-PY"
    spawned = ["Traceback (most recent call last):", '  File "<string>", line 1, in <module>']
    spawned += [
        '  File "/usr/lib/python3.11/multiprocessing/spawn.py", line 126, in _main',
        "    self = reduction.pickle.load(from_parent)",
    ]
    spawned += ["_pickle.UnpicklingError: pickle data was truncated", "Exception: process 1 terminated with signal SIGTERM"]
    assert diagnosed(tmp_path, [*(f"step {n} loss 2.{n}" for n in range(9)), *spawned]).cause == "CTRL-C"
    refused = "srun: error: Unable to create step for job 7: More processors requested than permitted"
    unreachable = "At least one pair of MPI processes are unable to reach each other for"
    assert diagnosed(tmp_path, [refused, "step 1", unreachable, "Your MPI job is now going to abort; sorry."]).cause == "MPI-LINK"
    own = "TypeError: OwnTrainer.loss() got an unexpected keyword argument 'batch'"
    older = "TypeError: SFTTrainer.__init__() got an unexpected keyword argument 'tokenizer'"
    assert [diagnosed(tmp_path, traceback(0, words)).cause for words in (own, older)] == ["USER-PY", "IMPORT-VERSION"]


def test_stop_by_paddles_launcher_is_a_stop(tmp_path: Path) -> None:
    lines = ["C++ Traceback (most recent call last):", "No stack trace in paddle, may be caused by external reasons."]
    found = diagnosed(tmp_path, [*lines, "FatalError: `Termination signal` is detected by the operating system."])
    assert (found.cause, found.kind) == ("CTRL-C", "stop")


def test_reasoning_does_not_change_the_findings(tmp_path: Path) -> None:
    """Each stage takes a value and returns one: the same findings give the same diagnosis again."""
    path = tmp_path / "job.log"
    path.write_text("\n".join([WATCHDOG, *ABORT, CANCELLED, *traceback(1, "KeyError: 'labels'")]) + "\n")
    found = read_logs([path])
    first = conclude(found)
    assert found == read_logs([path])
    assert conclude(found) == first


def test_values_that_differ_from_the_trainers_are_shown_and_can_be_auto(tmp_path: Path) -> None:
    lines = [
        *traceback(None, "ValueError: Please correct the following DeepSpeed config values that mismatch TrainingArguments values:"),
        "- ds train_micro_batch_size_per_gpu=4 vs hf per_device_train_batch_size=8",
        "- ds optimizer.params.lr=0.001 vs hf learning_rate=5e-05",
    ]
    path = tmp_path / "job.log"
    path.write_text("\n".join(lines) + "\n")
    found = diagnose([path], load(PLAN, "plan.yaml", str(tmp_path)))
    assert found.cause == "HF-MISMATCH"
    assert [line.text for line in found.evidence][-2:] == lines[-2:]
    patches = [list(fix.patch) for fix in found.fixes if fix.patch]
    assert patches == [[{"op": "replace", "path": "/deepspeed/train_micro_batch_size_per_gpu", "value": "auto"}]]
