"""Causes are separated from their consequences in any log, and a good or intended end is never called a failure."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dstui.cli import main
from dstui.diagnosis import diagnose, report
from dstui.diagnosis.signatures import ALL, BY_ID
from dstui.plan import load
from tests.diagnosis.crash_texts import LAUNCHER_SAMPLES, NOISE, SAMPLES, diagnose_lines, ended, fallout, spawned, traceback

ROOTS = [(cause, last) for cause, texts in SAMPLES.items() for last in texts]
QUICK = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def failed(last: str, rank: int = 2, world: int = 4) -> list[str]:
    """Return the log of a run in which one rank fails with this line and the others because of it."""
    others = [line for other in range(world) if other != rank for line in fallout(other, other)]
    return [*spawned(world), "step 1 loss 2.0", *traceback(rank, last), *others, *ended(world, 1)]


@pytest.mark.parametrize(("cause", "last"), ROOTS)
def test_cause_on_one_rank_is_named_though_all_others_complain(tmp_path: Path, cause: str, last: str) -> None:
    found = diagnose_lines(tmp_path / "log", failed(last))
    assert (found.cause, found.kind, found.first_failing_rank, found.others) == (cause, "failure", 2, ())
    assert any(last[:60] in line.text and line.rank == 2 for line in found.evidence)
    assert found.fixes


@pytest.mark.parametrize(("cause", "last"), ROOTS)
def test_cause_is_found_in_a_traceback_without_label_or_launcher(tmp_path: Path, cause: str, last: str) -> None:
    assert diagnose_lines(tmp_path / "log", traceback(None, last)).cause == cause


@pytest.mark.parametrize("cause", LAUNCHER_SAMPLES)
def test_launcher_error_belongs_to_no_rank(tmp_path: Path, cause: str) -> None:
    file = "/opt/env/lib/python3.11/site-packages/deepspeed/launcher/runner.py"
    found = diagnose_lines(tmp_path / "log", traceback(None, LAUNCHER_SAMPLES[cause], file))
    assert (found.cause, found.confidence, found.first_failing_rank) == (cause, "high", None)


@QUICK
@given(data=st.data())
def test_noise_and_consequences_never_change_the_cause(tmp_path: Path, data: st.DataObject) -> None:
    cause, last = data.draw(st.sampled_from(ROOTS))
    rank = data.draw(st.integers(0, 3))
    lines = failed(last, rank)
    blocks = data.draw(st.lists(st.sampled_from([[line] for line in NOISE] + [fallout(r, r) for r in range(4) if r != rank]), max_size=12))
    starts = [at for at, line in enumerate(lines) if "Traceback" in line or at < 5] + [len(lines)]
    for block in blocks:  # between tracebacks: a line without label inside one would belong to another rank
        at = data.draw(st.sampled_from(starts))
        lines = lines[:at] + block + lines[at:]
        starts = [at for at, line in enumerate(lines) if "Traceback" in line or at < 5] + [len(lines)]
    found = diagnose_lines(tmp_path / "log", lines)
    assert (found.cause, found.first_failing_rank) == (cause, rank)


@QUICK
@given(order=st.permutations(range(4)), sample=st.sampled_from(ROOTS), rank=st.integers(0, 3))
def test_order_of_rank_files_does_not_matter(tmp_path: Path, order: list[int], sample: tuple[str, str], rank: int) -> None:
    cause, last = sample
    paths = []
    for number in range(4):
        path = tmp_path / f"rank_{number}.log"
        lines = traceback(None, last) if number == rank else fallout(number, number)
        path.write_text("step 1 loss 2.0\n" + "\n".join(line.partition("]: ")[2] or line for line in lines))
        paths.append(path)
    found = diagnose([paths[number] for number in order])
    assert (found.cause, found.first_failing_rank) == (cause, rank)


@pytest.mark.parametrize(
    ("code", "cause"),
    [
        (-9, "KILLED-UNKNOWN"),
        (247, "KILLED-UNKNOWN"),
        (137, "KILLED-UNKNOWN"),
        (-11, "SIGSEGV"),
        (139, "SIGSEGV"),
        (-7, "SIGBUS-SHM"),
        (-6, "SIGABRT"),
    ],
)
def test_exit_code_is_translated_and_belongs_to_the_silent_rank(tmp_path: Path, code: int, cause: str) -> None:
    lines = [*spawned(4), *fallout(0), *fallout(1, 1), *fallout(3, 3), *ended(4, code)]
    found = diagnose_lines(tmp_path / "log", lines)
    assert (found.cause, found.first_failing_rank) == (cause, 2)
    assert any("rank started last" in note for note in found.notes), "the launcher's line names rank 3"


def test_kill_is_host_memory_only_if_proven(tmp_path: Path) -> None:
    killed = ["srun: error: node7: task 2: Killed"]
    assert diagnose_lines(tmp_path / "a", killed).cause == "KILLED-UNKNOWN"
    assert diagnose_lines(tmp_path / "a", killed).confidence != "high"
    proof = "slurmstepd: error: Detected 3 oom_kill events in StepId=77.0. Some of the step tasks have been OOM Killed."
    found = diagnose_lines(tmp_path / "b", [*killed, proof])
    assert (found.cause, found.confidence) == ("OOM-HOST", "high")
    kernel = "[81723.1] Out of memory: Killed process 4711 (python) total-vm:91234567kB, anon-rss:60123456kB"
    assert diagnose_lines(tmp_path / "c", [*ended(2, -9), kernel]).cause == "OOM-HOST"


def test_torchrun_names_the_first_to_end_and_the_diagnosis_the_first_to_fail(tmp_path: Path) -> None:
    lines = [
        *traceback(1, "KeyError: 'answer'"),
        "W0301 10:00:05.000000 40 torch/distributed/elastic/multiprocessing/api.py:897] Sending process 51 closing signal SIGTERM",
        "E0301 10:00:06.000000 40 torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: -7) local_rank: 3 (pid: 54) of binary: python",
        "Root Cause (first observed failure):",
        "[0]:",
        "  time      : 2026-03-01_10:00:06",
        "  host      : node1",
        "  rank      : 3 (local_rank: 3)",
        "  exitcode  : -7 (pid: 54)",
        "  error_file: <N/A>",
        "  traceback : Signal 7 (SIGBUS) received by PID 54",
    ]
    found = diagnose_lines(tmp_path / "log", lines)
    assert (found.cause, found.first_failing_rank, found.others) == ("USER-PY", 1, ("SIGBUS-SHM",))
    assert found.confidence != "high", "two independent causes"
    swapped = diagnose_lines(tmp_path / "log", [*lines[4:], *lines[:4]])
    assert (swapped.cause, swapped.first_failing_rank, swapped.others) == ("SIGBUS-SHM", 3, ("USER-PY",))


def test_traceback_after_a_progress_bar_belongs_to_its_rank(tmp_path: Path) -> None:
    lines = traceback(5, "KeyError: 'text'")
    lines[0] = "1: Map: 100%|██████████| 400/400 [00:07<00:00, 51.64 examples/s]" + lines[0]
    found = diagnose_lines(tmp_path / "log", [*lines, *fallout(0)])
    assert (found.cause, found.first_failing_rank) == ("USER-PY", 5)


def test_interleaved_tracebacks_of_two_ranks_show_the_cause(tmp_path: Path) -> None:
    lines = [
        "Traceback (most recent call last):",
        "Traceback (most recent call last):",
        '  File "train.py", line 4, in <module>',
        '  File "train.py", line 4, in <module>',
        "        import apexlikeimport apexlike",
        "",
        "ModuleNotFoundErrorModuleNotFoundError: : No module named 'apexlike'No module named 'apexlike'",
    ]
    assert diagnose_lines(tmp_path / "log", lines).cause == "IMPORT-MISSING"


@pytest.mark.parametrize(
    ("cause", "lines"),
    [
        ("SLURM-TIME", ["slurmstepd: error: *** JOB 88 ON n1 CANCELLED AT 2026-03-01T11:00:00 DUE TO TIME LIMIT ***", "W0301 11:00:00 api.py:704] Received 15 death signal, shutting down workers"]),
        ("SLURM-CANCEL", ["srun: Job step aborted: Waiting up to 32 seconds for job step to finish.", "slurmstepd: error: *** STEP 88.0 ON n1 CANCELLED AT 2026-03-01T11:00:00 ***"]),
        ("SLURM-PREEMPT", ["slurmstepd: error: *** JOB 88 ON n1 CANCELLED AT 2026-03-01T11:00:00 DUE TO PREEMPTION ***"]),
        ("SIGHUP", ["WARNING:torch.distributed.elastic.agent.server.api:Received 1 death signal, shutting down workers", "closing signal SIGHUP"]),
        ("SIGHUP", ["step 3 loss 1.0", "exit status 129"]),
        ("CTRL-C", [*traceback(None, "KeyboardInterrupt"), "[2026-03-01 10:01:00,000] [INFO] [launch.py:262:sigkill_handler] Main process received SIGINT, exiting"]),
        ("CTRL-C", ["[2026-03-01 10:01:00,000] [INFO] [launch.py:262:sigkill_handler] Main process received SIGTERM, exiting"]),
        ("CTRL-C", ["torch.distributed.elastic.multiprocessing.api.SignalException: Process 47 got signal: 15"]),
    ],
)  # fmt: skip
def test_stop_is_no_failure_though_ranks_complain_after_it(tmp_path: Path, cause: str, lines: list[str]) -> None:
    after = [*fallout(0), *traceback(1, "RuntimeError: the reader was closed"), "Segmentation fault (core dumped)"]
    found = diagnose_lines(
        tmp_path / "log", [*spawned(2), "step 1 loss 2.0", *lines, *(after if cause != "SIGHUP" or len(lines) > 2 else [])]
    )
    assert (found.cause, found.kind, found.first_failing_rank) == (cause, "stop", None)


def test_stop_after_a_failure_is_not_the_cause(tmp_path: Path) -> None:
    cancelled = "slurmstepd: error: *** STEP 88.0 ON n1 CANCELLED AT 2026-03-01T11:00:00 ***"
    found = diagnose_lines(
        tmp_path / "log",
        [*traceback(9, "RuntimeError: NCCL error: unhandled system error"), "srun: error: n3: task 9: Exited with exit code 1", cancelled],
    )
    assert (found.cause, found.first_failing_rank) == ("NCCL-SYSTEM", 9)


WATCHDOG = (
    "[rank{0}]:[E301 03:04:10.9 ProcessGroupNCCL.cpp:683] [Rank {0}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1)"
)


@pytest.mark.parametrize(
    ("cause", "rank", "lines"),
    [
        ("USER-PY", 0, ["WARNING: No module named 'apexlike', using the slow path", "step 1 loss 2.0", *traceback(0, "ValueError: an odd label")]),
        ("USER-PY", 0, ["[rank0] CUDA out of memory, retrying with half the batch", "step 2 loss 1.9", *traceback(0, "KeyError: 'image'")]),
        ("OOM-GPU", 3, [f"2026-03-01T10:00:00.123456789Z stderr F {line}" for line in traceback(3, SAMPLES["OOM-GPU"][0])]),
        ("GPU-BUSY", 1, traceback(1, SAMPLES["OOM-GPU"][0] + " Process 4711 has 61.20 GiB memory in use. Including non-PyTorch memory, this process has 18.10 GiB memory in use.")),
        ("TOKENISE-TIMEOUT", 1, ["Map (num_proc=8):  41%|████      | 410/1000 [29:59<43:00, 0.2 examples/s]", *(WATCHDOG.format(rank) for rank in (1, 2, 3))]),
        ("XID", 0, ["[ 99.5] NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, GPU has fallen off the bus.", WATCHDOG.format(0)]),
        ("CUDA-ASSERT", 0, ["Indexing.cu:1290: block: [0,0,0], thread: [32,0,0] Assertion `srcIndex < srcSelectDimSize` failed.", *traceback(0, SAMPLES["CUDA-ASSERT"][0])]),
        ("NCCL-SHM", 0, ["h1:7:9 [0] NCCL WARN Error while creating shared memory segment /dev/shm/nccl-aB", *traceback(0, SAMPLES["NCCL-SYSTEM"][0])]),
        ("OP-BUILD", 0, [*traceback(0, SAMPLES["OP-BUILD"][0]), *traceback(1, "ImportError: /x/fused_adam.so: cannot open shared object file: No such file or directory")]),
        ("RDZV-TIMEOUT", 0, ["dist_world_size=2", *traceback(1, "torch.distributed.DistBackendError: [1] is setting up NCCL communicator, but store->get('0') got error: Socket Timeout")]),
        ("INVALID-ORDINAL", 0, ["dist_world_size=2", *traceback(1, "torch.distributed.DistBackendError: store->get('0') got error: Connection reset by peer"), *traceback(0, SAMPLES["INVALID-ORDINAL"][0])]),
        ("HANG", 1, ["dist_world_size=2", *traceback(0, "RuntimeError: Rank 1 failed to pass monitoredBarrier in 10000 ms")]),
        ("HANG", 1, ["dist_world_size=2", "step 1 loss 2.0", "[rank 1] reading shard 7", "exit status 124"]),
        ("REMOTE-ENV", None, ["worker-2: bash: line 1: /opt/env/bin/python: No such file or directory", "pdsh@login: worker-2: ssh exited with exit code 127"]),
        ("KILLED-UNKNOWN", None, traceback(None, "subprocess.CalledProcessError: Command '['python', 'train.py']' died with <Signals.SIGKILL: 9>.")),
        ("SIGSEGV", 3, ["mpirun noticed that process rank 3 with PID 9 on node n2 exited on signal 11 (Segmentation fault)."]),
        ("CONFIG-ASSERT", 0, traceback(0, "AssertionError: a word that is new", "/opt/env/lib/python3.11/site-packages/deepspeed/runtime/config.py")),
        ("CUDA-MISMATCH", None, [*traceback(None, SAMPLES["CUDA-MISMATCH"][0]), "Exception ignored in: <function DeepSpeedCPUAdam.__del__ at 0x7f>", *traceback(None, "AttributeError: 'DeepSpeedCPUAdam' object has no attribute 'ds_opt_adam'")]),
    ],
)  # fmt: skip
def test_line_that_explains_the_others_wins(tmp_path: Path, cause: str, rank: int | None, lines: list[str]) -> None:
    found = diagnose_lines(tmp_path / "log", lines)
    assert (found.cause, found.first_failing_rank, found.others) == (cause, rank, ())


def test_log_that_ends_during_a_build_may_wait_for_a_stale_lock(tmp_path: Path) -> None:
    waiting = ["step 0", "Using /home/me/.cache/torch_extensions/py311_cpu as PyTorch extensions root..."]
    assert diagnose_lines(tmp_path / "a", waiting).cause == "JIT-LOCK"
    assert diagnose_lines(tmp_path / "a", waiting).confidence == "low"
    assert diagnose_lines(tmp_path / "b", [*waiting, "Loading extension module cpu_adam...", "step 1"]).cause is None


ATEXIT = [
    "Exception ignored in atexit callback: <function save_table at 0x7f>",
    *traceback(None, "FileNotFoundError: [Errno 2] No such file or directory: '/home/me/.triton/autotune/a.pickle.tmp'"),
]
WELL = [f"[2026-03-01 10:01:00,000] [INFO] [launch.py:285:main] Process {pid} exits successfully." for pid in (700, 701)]


@pytest.mark.parametrize(
    ("cause", "lines"),
    [
        ("SUCCESS", [*spawned(2), "step 1 loss 2.0", *NOISE, *WELL]),
        ("SUCCESS", [*spawned(2), *traceback(1, "ValueError: handled by the script"), "step 2 loss 1.9", *WELL]),
        ("SUCCESS", ["case 1: ok", "case 2: skipped [CUDA out of memory. Tried to allocate 64.00 GiB.]", "case 3: ok", "All done."]),
        ("SUCCESS", ["{'loss': 1.2, 'epoch': 1.0}", "{'train_runtime': 61.3, 'train_samples_per_second': 4.1, 'epoch': 1.0}", "100%|####| 9/9 [00:09<00:00]"]),
        ("SUCCESS", [*spawned(2), "warning: bus error statistics: none", "exit status 0"]),
        ("BENIGN-NOISE", [*spawned(2), "step 1 loss 2.0", *ATEXIT]),
        ("BENIGN-NOISE", [*spawned(2), "step 1 loss 2.0", *ATEXIT, *WELL]),
    ],
)  # fmt: skip
def test_successful_run_stays_successful(tmp_path: Path, cause: str, lines: list[str]) -> None:
    found = diagnose_lines(tmp_path / "log", lines)
    assert (found.cause, found.first_failing_rank) == (cause, None)
    assert found.kind in ("success", "benign")


OPEN_ENDS = {
    "steps": [*spawned(2), "step 1 loss 2.0", "step 2 loss 1.9", *NOISE],
    "prose": ["We ran it on 8 GPUs with ZeRO 3. When the training finished we looked at the loss:", "it had not gone down at all."],
    "another part's word": [*spawned(2), "Epoch 3 training complete", *(f"step {step} loss 1.0" for step in range(40)), "saving"],
    "a word long before the end": ["Training complete.", *(f"evaluating batch {batch}" for batch in range(40))],
    "stacks of a live process": [
        "Process 4711: python train.py",
        'Thread 4711 (idle): "MainThread"',
        "    all_reduce (torch/distributed/distributed_c10d.py:2501)",
        "    train (train.py:88)",
    ],
    "a hang": ["[WARNING] no progress for 600 seconds", "GPU 0 utilization 100%", "still waiting"],
    "a handled error": ["case 1: ok", "case 2: skipped [CUDA out of memory. Tried to allocate 64.00 GiB.]", "case 3: ok", "Results: 2 of 3"],
    "a destructor's complaint": [*spawned(2), "Exception ignored in: <function Loader.__del__ at 0x7f>", *traceback(None, "OSError: closed"), "step 2"],
    "nothing": ["", "   "],
}  # fmt: skip


@pytest.mark.parametrize("lines", OPEN_ENDS.values(), ids=OPEN_ENDS)
def test_unknown_end_is_reported_as_unknown(tmp_path: Path, lines: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    found = diagnose_lines(tmp_path / "log", lines)
    assert (found.cause, found.kind, found.first_failing_rank, found.evidence) == (None, None, None, ())
    assert main(["diagnose", str(tmp_path / "log")]) == 1
    assert capsys.readouterr().out.startswith("? Nothing in this text says how it ended.")


@pytest.mark.parametrize(
    ("last", "said"),
    [
        (["loading  34%|###4      | 34/100 [00:10<00:19,  3.40it/s]"], "breaks off at a progress bar of 34 % (line 2)"),
        (["[output truncated]"], "was cut: its last line says so (line 2)"),
        (["..."], "was cut: its last line says so (line 2)"),
        (traceback(None, "")[:3], "breaks off within a traceback, before the line that names the exception (line 4)"),
        (traceback(3, "")[:2], "breaks off within a traceback, before the line that names the exception (line 3)"),
    ],
)
def test_truncated_log_is_reported(tmp_path: Path, last: list[str], said: str) -> None:
    found = diagnose_lines(tmp_path / "log", ["step 1 loss 2.0", *last])
    assert found.cause is None
    assert said in " ".join(report(found).split())


def test_log_ending_with_a_complete_bar_or_traceback_is_not_truncated(tmp_path: Path) -> None:
    last, end = diagnose_lines(tmp_path / "a", ["step 1", "100%|####| 9/9 [00:09<00:00]"]).notes
    assert last.startswith("The last line, 2, is: 100%|####| 9/9")
    assert "exit status" in end
    assert diagnose_lines(tmp_path / "b", ["step 1", *traceback(None, "ValueError: odd")]).notes == ()


@pytest.mark.parametrize(
    ("cause", "line"),
    [
        ("NO-GPU", "[WARNING] [real_accelerator.py:213:get_accelerator] Setting accelerator to CPU. If you have GPU or other accelerator, we were unable to detect it."),
        ("CKPT-LATEST", "[WARNING] [engine.py:4437:load_checkpoint] Unable to find latest file at /ckpt/latest, if trying to load latest checkpoint"),
        ("SHM-LEAK", "-rw------- 1 me me 69206016 Mar  1 10:00 /dev/shm/deepspeed_allreduce_buffer_0_127.0.0.1_29500_0"),
        ("GATHER16", "[WARNING] did not save: stage3_gather_16bit_weights_on_model_save=False"),
    ],
)  # fmt: skip
def test_successful_end_of_an_unintended_run_is_reported(tmp_path: Path, cause: str, line: str) -> None:
    found = diagnose_lines(tmp_path / "log", [*spawned(2), line, "step 1 loss 2.0", *WELL])
    assert (found.cause, found.first_failing_rank) == (cause, None)
    died = diagnose_lines(tmp_path / "log", [line, *failed("ValueError: something else")])
    assert died.cause == "USER-PY", "it is not the cause of a failure"


def test_lost_time_is_a_note(tmp_path: Path) -> None:
    flush = (
        "[WARNING] [stage3.py:2069:step] 3 pytorch allocator cache flushes since last step. this happens when there is high memory pressure"
    )
    found = diagnose_lines(tmp_path / "log", [*spawned(2), flush, "step 1 loss 2.0", *WELL])
    assert (found.cause, found.kind) == ("SUCCESS", "success")
    assert any("flushes its cache" in note for note in found.notes)


def test_rank_that_left_early_is_named_instead_of_the_waiting_one(tmp_path: Path) -> None:
    left = [*spawned(2), *WELL[1:], *fallout(0), *ended(2, 1)]
    found = diagnose_lines(tmp_path / "log", left)
    assert (found.cause, found.first_failing_rank) == ("DESYNC-EARLY-EXIT", 1)
    exited = diagnose_lines(tmp_path / "log", [*spawned(2), *fallout(0), *ended(2, 3)])
    assert (exited.cause, exited.first_failing_rank) == ("EARLY-EXIT", 1)


def test_watchdog_points_at_the_ranks_behind(tmp_path: Path) -> None:
    label = "[rank{0}]:[E301 03:04:10.9 ProcessGroupNCCL.cpp:683] [Rank {0}] "
    late = [
        label.format(rank) + "Received a dump signal due to a collective timeout from  rank 0. Last enqueued NCCL work: 41" for rank in (2,)
    ]
    waited = [
        line
        for rank in (0, 1, 3)
        for line in (
            label.format(rank)
            + "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=42, OpType=ALLREDUCE) ran for 600100 milliseconds",
            label.format(rank)
            + "failure detected by watchdog at work sequence id: 42 PG status: last enqueued work: 44, last completed work: 41",
        )
    ]
    found = diagnose_lines(tmp_path / "log", [*waited, *late, *ended(4, -6)])
    assert (found.cause, found.first_failing_rank) == ("NCCL-WATCHDOG", 2)
    killed = diagnose_lines(tmp_path / "log", [*waited, *traceback(2, "ValueError: a bad shard"), *ended(4, 1)])
    assert (killed.cause, killed.first_failing_rank) == ("USER-PY", 2), "a real cause explains the timeout"


def test_consequences_alone_are_no_cause(tmp_path: Path) -> None:
    found = diagnose_lines(tmp_path / "log", [*spawned(3), *fallout(0), *fallout(1, 1)])
    assert found.cause in (None, "EARLY-EXIT")
    assert (found.confidence, found.first_failing_rank) == ("low", 2)


def test_launcher_kills_dead_ranks_faster_than_living_ones(tmp_path: Path) -> None:
    lines = ended(3, -9)
    for number, milliseconds in enumerate((0, 140, 141, 290)):  # rank 1 took 1 ms, since it was dead
        lines[number] = lines[number].replace("10:01:00,000", f"10:01:00,{milliseconds:03}")
    found = diagnose_lines(tmp_path / "log", [*spawned(3), "step 1 loss 2.0", *lines])
    assert (found.cause, found.first_failing_rank, found.confidence) == ("KILLED-UNKNOWN", 1, "medium")


def test_labels_of_pdsh_srun_mpi_and_dstui_give_rank_and_host(tmp_path: Path) -> None:
    plain = traceback(None, "ValueError: bad shard")
    assert diagnose_lines(tmp_path / "a", [f"worker-2: {line}" for line in traceback(6, "ValueError: bad shard")]).host == "worker-2"
    assert diagnose_lines(tmp_path / "b", [f"6: {line}" for line in plain]).first_failing_rank == 6
    assert diagnose_lines(tmp_path / "c", [f"[1,6]<stderr>:{line}" for line in plain]).first_failing_rank == 6
    assert diagnose_lines(tmp_path / "d", [f"[6] {line}" for line in plain]).first_failing_rank == 6
    node = [f"1: {line}" for line in traceback(6, "ValueError: bad shard")]
    assert diagnose_lines(tmp_path / "e", [*node, "srun: error: n2: task 1: Exited with exit code 1"]).first_failing_rank == 6, (
        "the task is a node"
    )


def test_every_sign_matches_only_text_with_its_literal() -> None:
    """The search looks for the literal text first: a regular expression that matches without it would be missed."""
    assert len({signature.id for signature in ALL}) == len(ALL)
    for signature in ALL:
        assert set(signature.explains) <= set(BY_ID)
        if signature.role in ("root", "symptom", "quiet", "stop"):
            assert signature.title
            assert signature.cause
    for cause, texts in SAMPLES.items():
        for text in texts:
            assert cause == "USER-PY" or any(sign.matches(text) for s in ALL if cause in (s.id, s.answer) for sign in s.all_signs()), text


def test_every_cause_has_a_text_in_the_tests() -> None:
    here = Path(__file__).parent
    nodes = (node for file in here.glob("*.py") for node in ast.walk(ast.parse(file.read_text())))
    texts = [node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    texts += [line for file in here.glob("crash_logs/*") for line in file.read_text(errors="replace").splitlines()]
    for signature in ALL:
        if signature.role == "root" and (signs := signature.all_signs()):
            assert any(sign.matches(text) for sign in signs for text in texts), (
                f"add a line that {signature.id} recognises to SAMPLES in crash_texts.py"
            )


def test_fix_is_an_edit_of_the_plan_if_possible(tmp_path: Path) -> None:
    plan = load(
        "version: 1\njob: {script: t.py}\ndeepspeed:\n  fp16: {enabled: true}\n  bf16: {enabled: true}\n  train_micro_batch_size_per_gpu: 4\n",
        "p.yaml",
        str(tmp_path),
    )
    log = tmp_path / "log"
    log.write_text("\n".join(failed(SAMPLES["BOTH-PRECISION"][0])))
    patches = [fix.patch for fix in diagnose([log], plan).fixes if fix.patch]
    assert plan.patch(patches[0]).get("deepspeed.fp16") is None
    log.write_text("\n".join(failed(SAMPLES["OOM-GPU"][0])))
    halved = plan.patch(diagnose([log], plan).fixes[0].patch or ())
    assert (halved.get("deepspeed.train_micro_batch_size_per_gpu"), halved.get("deepspeed.gradient_accumulation_steps")) == (2, 2)


@pytest.mark.parametrize("signature", [s for s in ALL if any(way.patch for way in s.all_remedies())], ids=lambda s: s.id)
def test_every_patch_fits_every_plan(signature, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    bare = "version: 1\njob: {script: t.py}\n"
    rich = bare + (
        "cluster: {master_port: 29500, include: 'localhost:0', exclude: 'a', num_nodes: 2, env: {}}\n"
        "deepspeed: {train_batch_size: 16, train_micro_batch_size_per_gpu: 4, gradient_accumulation_steps: auto, fp16: {enabled: true},"
        " bf16: {enabled: true}, optimizer: {type: AdamW, params: {lr: auto}}, scheduler: {type: CosineLR},"
        " zero_optimization: {stage: 4, offload_optimizer: {device: nvme, pin_memory: true}}}\n"
    )
    for text in (bare, bare + "deepspeed: {train_batch_size: 2}\n", rich):
        plan = load(text, "p.yaml", str(tmp_path))
        for way in signature.all_remedies():
            patch = way.patch(plan) if way.patch else None
            if patch is not None:
                assert plan.patch(patch).text != plan.text


def test_log_of_any_bytes_and_length_is_read(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"\xff\xfe\x00\x1b[2J" * 40_000 + b"\n" + b"x" * 3_000_000 + b"\r" + "\n".join(failed("ValueError: found")).encode())
    found = diagnose([log])
    assert found.cause == "USER-PY"
    assert "\x1b" not in report(found)


def test_folder_is_read_with_ranks_from_file_names(tmp_path: Path) -> None:
    """These are the names of torchrun --log-dir, DeepSpeed's --enable_each_rank_log and dstui."""
    for number, names in enumerate(
        (("0/stdout.log", "3/stderr.log"), ("2026-03-01_rank0.log", "2026-03-01_rank3.log"), ("rank_0.err", "rank_00003.err"))
    ):
        folder = tmp_path / str(number) / "attempt_0"
        for name, lines in zip(names, (fallout(0), traceback(3, "ValueError: a bad shard")), strict=True):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text("\n".join(line.partition("]: ")[2] for line in lines))
        found = diagnose([tmp_path / str(number)])
        assert (found.cause, found.first_failing_rank) == ("USER-PY", 3)
        assert found.evidence[-1].file.endswith(names[1])


def test_standard_input_is_read(tmp_path: Path) -> None:
    text = "\n".join(failed(SAMPLES["OOM-GPU"][0]))
    done = subprocess.run([sys.executable, "-m", "dstui", "diagnose", "-"], input=text, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "OOM-GPU" in done.stdout


@pytest.mark.parametrize("name", ["empty folder", "device"])
def test_file_that_is_no_log_gives_a_message(tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diagnose", str(tmp_path) if name == "empty folder" else "/dev/null"]) == 2
    assert "no log in this folder" in (told := capsys.readouterr().err) or "neither a file nor a folder" in told


def test_command_has_the_documented_output_and_exit_status(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "log"
    log.write_text("\n".join(failed(SAMPLES["OOM-GPU"][0])))
    assert main(["diagnose", str(log), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert {"version", "cause", "kind", "confidence", "title", "evidence", "first_failing_rank", "fixes", "others"} <= set(told)
    assert (told["cause"], told["first_failing_rank"]) == ("OOM-GPU", 2)
    line = told["evidence"][-2]
    assert log.read_text().splitlines()[line["line"] - 1].endswith(line["text"])
    assert main(["diagnose", str(log)]) == 0
    assert "rank 2" in capsys.readouterr().out
    log.write_text("")
    assert main(["diagnose", str(log)]) == 1
    assert main(["diagnose", str(tmp_path / "none")]) == 2
    assert "no such file" in capsys.readouterr().err
