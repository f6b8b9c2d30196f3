"""Several runs in one file: the last one is diagnosed, and steps that miss an earlier step's output blame that step."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.diagnosis.crash_texts import diagnose_lines, spawned, traceback

BUG = [line.partition("]: ")[2] for line in traceback(0, "NameError: name 'x' is not defined")]
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 160.00 MiB."


def steps(first: int, count: int) -> list[str]:
    """Return the output of a training loop."""
    return [f"step {number} loss 2.{number} lr 0.001" for number in range(first, first + count)]


def launched(name: str, *raised: str) -> list[str]:
    """Return the log of a run of one rank under torchrun that failed."""
    return [
        *raised,
        f"E1201 23:44:32.388000 5750 torch/distributed/elastic/multiprocessing/api.py:882] failed (exitcode: 1) local_rank: 0 (pid: 5758) of {name}",
        "Traceback (most recent call last):",
        '  File "/opt/env/lib/python3.11/site-packages/torch/distributed/launcher/api.py", line 291, in launch_agent',
        "    raise ChildFailedError(",
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ",
        "============================================================",
        f"{name} FAILED",
        "Root Cause (first observed failure):",
        "[0]:",
        "  rank      : 0 (local_rank: 0)",
        "  exitcode  : 1 (pid: 5758)",
        "============================================================",
    ]


def test_truncated_later_run_is_not_reported_as_failed(tmp_path: Path) -> None:
    for earlier in (BUG, launched("train.py", *BUG)):
        found = diagnose_lines(tmp_path / "log", [*steps(0, 30), *earlier, *steps(0, 100)])
        assert (found.cause, found.kind) == (None, None)
        again = diagnose_lines(tmp_path / "log", [*steps(0, 30), *earlier, *steps(0, 3)])
        assert (again.cause, again.kind) == ("USER-PY", "failure"), "a few lines are not a run"


def test_lines_that_begin_the_file_begin_a_run_if_they_follow_each_failure(tmp_path: Path) -> None:
    begun = ["================ laboratory of networks ================", "The network is being built from its parts ..."]
    runs = [*begun, "built", *begun, "built", *begun, *BUG, *begun, *BUG]
    assert diagnose_lines(tmp_path / "failed", runs).cause == "USER-PY"
    assert diagnose_lines(tmp_path / "begun", [*runs, *begun, "built"]).cause is None
    once = diagnose_lines(tmp_path / "once", [*begun, "built", *begun, *BUG, *begun])
    assert once.cause == "USER-PY", "a loop may print these lines, and late"


def test_stacks_of_a_crash_are_no_later_run(tmp_path: Path) -> None:
    torn = ['  File "/opt/a.py', '", line 331  File "Thread 0x00ff (most recent call first):', "331 in wait", "_feed", '"']
    crashed = ["Fatal Python error: Segmentation fault", "", "Thread 0x00ff (most recent call first):", *torn * 40]
    parent = traceback(None, "EOFError")
    assert diagnose_lines(tmp_path / "a", [*crashed, *parent]).cause == "SIGSEGV"
    assert diagnose_lines(tmp_path / "b", [*crashed, *steps(0, 100), *BUG]).cause == "USER-PY", "another run"


def test_end_of_the_last_run_is_reported(tmp_path: Path) -> None:
    for earlier in (BUG, launched("train.py", *BUG)):
        begun = [*earlier, *steps(0, 100)]
        killed = diagnose_lines(tmp_path / "a", [*begun, "Killed"])
        assert (killed.cause, killed.others) == ("KILLED-UNKNOWN", ())
        stopped = diagnose_lines(
            tmp_path / "b", [*begun, "slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-01-01T00:00:00 DUE TO TIME LIMIT ***"]
        )
        assert (stopped.cause, stopped.kind) == ("SLURM-TIME", "stop")
        well = diagnose_lines(tmp_path / "c", [*begun, "Training complete!"])
        assert well.kind == "success"


def reported_by_lsf(state: str, status: str) -> list[str]:
    """Return the report that LSF appends to a job's output."""
    return ["Sender: LSF System <lsf@n1>", f"Subject: Job 7: <train> in cluster <c> {state}", "", *["#BSUB -n 2"] * 5, "", status, ""]


def test_lsf_report_belongs_to_its_job_in_an_appended_file(tmp_path: Path) -> None:
    failed = [*steps(0, 30), *BUG, *reported_by_lsf("Exited", "Exited with exit code 1.")]
    well = [*steps(0, 30), *reported_by_lsf("Done", "Successfully completed.")]
    assert diagnose_lines(tmp_path / "a", [*failed, *well]).kind == "success"
    again = diagnose_lines(tmp_path / "b", [*well, *failed])
    assert (again.cause, again.kind) == ("USER-PY", "failure")
    stopped = reported_by_lsf("Exited", "Exited with exit code 143.")
    stopped[-2:-2] = ["TERM_OWNER: job killed by owner."]
    third = diagnose_lines(tmp_path / "c", [*reported_by_lsf("Exited", "Exited with exit code 1."), *well, *stopped])
    assert (third.cause, third.kind) == ("SLURM-CANCEL", "stop")


def test_output_of_ranks_after_a_peers_failure_is_no_later_run(tmp_path: Path) -> None:
    ranks = [f"[rank{rank}]: {line}" for rank in (1, 0) for line in BUG]
    found = diagnose_lines(tmp_path / "log", [*ranks[: len(BUG)], *steps(0, 500), *ranks[len(BUG) :], "exits with return code = 1"])
    assert (found.cause, found.ranks) == ("USER-PY", (0, 1))


def test_steps_that_miss_the_output_of_the_first_failed_because_of_it(tmp_path: Path) -> None:
    gone = traceback(0, "FileNotFoundError: [Errno 2] No such file or directory: '/out/base_checkpoints'")
    lines = [*launched("pretrain.py", *traceback(0, OOM)), *launched("tune.py", *gone), *launched("eval.py", *gone)]
    assert diagnose_lines(tmp_path / "log", lines).cause == "OOM-GPU"
    assert diagnose_lines(tmp_path / "log", launched("tune.py", *gone)).cause == "MODEL-FILES"


def test_error_of_pythons_logging_ended_nothing(tmp_path: Path) -> None:
    lines = [
        "--- Logging error ---",
        "Traceback (most recent call last):",
        '  File "/opt/env/lib/python3.11/logging/__init__.py", line 1089, in emit',
        "    self.flush()",
        "OSError: [Errno 116] Stale file handle",
        "Call stack:",
        '  File "train.py", line 55, in <module>',
        "    train()",
        "Message: 'step %d'",
        *BUG,
    ]
    found = diagnose_lines(tmp_path / "log", lines)
    assert (found.cause, found.others) == ("USER-PY", ())


def test_runs_of_spawn_in_one_file_are_separated(tmp_path: Path) -> None:
    def spawned_run(process: int, last: str) -> list[str]:
        head = ["torch.multiprocessing.spawn.ProcessRaisedException: ", "", f"-- Process {process} terminated with the following error:"]
        return [*head, "Traceback (most recent call last):", '  File "/home/me/train.py", line 9, in main', "    go()", last]

    lines = [*spawned_run(0, "ZeroDivisionError: division by zero"), *steps(0, 100), *spawned_run(6, OOM)]
    found = diagnose_lines(tmp_path / "log", lines)
    assert (found.cause, found.first_failing_rank, found.others) == ("OOM-GPU", 6, ())


def test_program_asked_to_end_was_stopped(tmp_path: Path) -> None:
    heard = ["[rank: 0] Received SIGTERM: 15", "pid 233044 killing 233222 with 15", "[rank: 1] Received SIGTERM: 15"]
    found = diagnose_lines(tmp_path / "a", [*steps(0, 80), *heard, *steps(80, 2)])
    assert (found.cause, found.kind) == ("CTRL-C", "stop")
    failed = diagnose_lines(tmp_path / "b", [*steps(0, 80), *BUG, *heard])
    assert failed.cause == "USER-PY"


def test_shell_message_about_a_kill_may_follow_a_number(tmp_path: Path) -> None:
    assert (
        diagnose_lines(tmp_path / "log", [*steps(0, 80), " 380/5000 [=>....] - ETA: 2:33:19 - Time (s): 2.9100Killed"]).cause
        == "KILLED-UNKNOWN"
    )


def test_last_of_several_ray_jobs_is_reported(tmp_path: Path) -> None:
    def job(session: str, package: str, last: str) -> list[str]:
        folder = f"/tmp/ray/session_{session}/runtime_resources/working_dir_files/_ray_pkg_{package}"
        return ["Traceback (most recent call last):", f'  File "{folder}/verl/main.py", line 9, in main_task', "    go()", last]

    nccl = "torch.distributed.DistBackendError: NCCL error in: NCCLUtils.hpp:268, unhandled cuda error, NCCL version 2.21.5"
    for second in (("2026-03-28_03-09-44_3_5", "4fb0"), ("2026-03-27_06-48-09_0_2", "149c")):
        found = diagnose_lines(tmp_path / "log", [*job("2026-03-27_06-48-09_0_2", "4fb0", nccl), "", *job(*second, "KeyError: 'reward'")])
        assert (found.cause, found.others, found.confidence) == ("USER-PY", (), "medium")


def test_failed_import_after_a_stop_is_a_later_run(tmp_path: Path) -> None:
    lines = [*BUG[:-1], "KeyboardInterrupt", *steps(0, 30), *BUG[:2], "    import torch", "ModuleNotFoundError: No module named 'torch'"]
    found = diagnose_lines(tmp_path / "log", [line.replace("in main", "in <module>") for line in lines])
    assert (found.cause, found.kind) == ("IMPORT-MISSING", "failure")


def test_vllm_interrupts_the_program_whose_worker_died(tmp_path: Path) -> None:
    died = "ERROR 05-29 07:34:04 [multiproc_executor.py:135] Worker proc VllmWorker-1 died unexpectedly, shutting down executor."
    found = diagnose_lines(tmp_path / "a", [*steps(0, 30), died, *BUG[:-1], "KeyboardInterrupt"])
    assert (found.cause, found.kind, found.confidence) == ("KILLED-UNKNOWN", "failure", "medium")
    known = diagnose_lines(tmp_path / "b", [*steps(0, 30), *traceback(None, OOM), died, *BUG[:-1], "KeyboardInterrupt"])
    assert known.cause == "OOM-GPU"


def test_diagnosis_is_uncertain_in_a_file_of_several_runs(tmp_path: Path) -> None:
    alone = diagnose_lines(tmp_path / "a", [*steps(0, 30), *launched("train.py", *traceback(0, OOM))])
    assert (alone.cause, alone.confidence) == ("OOM-GPU", "high")
    again = [*launched("train.py", *traceback(0, OOM)), *steps(0, 70), *launched("train.py", *traceback(0, OOM))]
    found = diagnose_lines(tmp_path / "b", again)
    assert (found.cause, found.confidence) == ("OOM-GPU", "medium")


def test_stop_beside_an_uncaught_exception_is_uncertain(tmp_path: Path) -> None:
    stop = "slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-01-01T00:00:00 DUE TO PREEMPTION ***"
    assert diagnose_lines(tmp_path / "a", [*steps(0, 30), stop]).confidence == "high"
    thread = ["Exception in thread Thread-4 (_pin_memory_loop):", *BUG]
    found = diagnose_lines(tmp_path / "b", [*steps(0, 30), *thread, *steps(0, 1500), stop])
    assert (found.kind, found.confidence) == ("stop", "medium")


def test_successful_step_says_nothing_about_the_next(tmp_path: Path) -> None:
    shell = ["Process finished with exit code 0"]
    deepspeed = [*spawned(1), "[2026-01-01 10:00:00,000] [INFO] [launch.py:351:main] Process 700 exits successfully."]
    for well in (shell, deepspeed):
        assert diagnose_lines(tmp_path / "a", [*steps(0, 5), *well]).kind == "success"
        found = diagnose_lines(tmp_path / "b", [*steps(0, 5), *well, *steps(0, 5), *BUG])
        assert (found.cause, found.kind) == ("USER-PY", "failure")
        assert diagnose_lines(tmp_path / "c", [*steps(0, 5), *BUG, *steps(0, 5), *well]).kind in ("success", "benign")


def test_progress_bar_that_moves_after_a_stop_is_a_later_run(tmp_path: Path) -> None:
    stopped = [
        "Traceback (most recent call last):",
        '  File "/opt/env/lib/python3.11/site-packages/torch/distributed/launcher/api.py", line 261, in launch_agent',
        "    result = agent.run()",
        "torch.distributed.elastic.multiprocessing.api.SignalException: Process 4711 got signal: 15",
    ]
    started = [f"rank 0: part {number} is ready" for number in range(12)]
    at_work = [f"Map: {percent}%|##  | {percent}/100 [00:10<00:20]" for percent in range(0, 40, 5)]
    again = diagnose_lines(tmp_path / "a", [*started, *stopped, *started, *at_work])
    assert (again.cause, again.kind) == (None, None)
    ended = diagnose_lines(tmp_path / "b", [*started, *at_work, *stopped])
    assert (ended.cause, ended.kind) == ("CTRL-C", "stop")


def test_repeated_start_of_the_file_is_another_run(tmp_path: Path) -> None:
    head = ["Loading the configuration of the small model", "Reading the list of images that it is trained on"]
    again = diagnose_lines(tmp_path / "a", [*head, *BUG, *head, *(f"shard {number} read" for number in range(12))])
    assert (again.cause, again.kind) == (None, None)
    assert diagnose_lines(tmp_path / "b", [*head, *BUG, head[0], "bye"]).cause == "USER-PY", "a single line may repeat"


def test_output_after_a_stop_may_have_been_printed_before_it(tmp_path: Path) -> None:
    stop = [*BUG[:-1], "KeyboardInterrupt"]
    printed = [f"frame : {number}" for number in range(300)]
    assert diagnose_lines(tmp_path / "a", [*printed, *stop, *printed]).cause == "CTRL-C"
    assert diagnose_lines(tmp_path / "b", [*printed, *stop, *printed * 10]).kind is None, "more than a buffer holds before the stop"
    logged = [f"12:00:{number % 60:02} step {number} of 400" for number in range(300)]
    assert diagnose_lines(tmp_path / "c", [*printed, *stop, *logged]).kind is None, "a logger writes at once"


@pytest.mark.parametrize(
    "gone",
    [
        ["usage: train.py [-h]", "train.py: error: unrecognized arguments: --odd"],
        ["run.sh: line 5: 4242 Killed                  python train.py"],
        ["Traceback (most recent call last):", '  File "/home/me/train.py", line 2, in <module>', "    import odd", "ImportError: odd"],
        launched("train.py", *steps(0, 9), *BUG),
    ],
)
def test_loop_after_a_programs_last_output_is_another_run(tmp_path: Path, gone: list[str]) -> None:
    assert diagnose_lines(tmp_path / "a", [*gone, *steps(0, 10)]).kind is None
    assert diagnose_lines(tmp_path / "b", [*gone, *steps(0, 2)]).kind == "failure"


def test_bar_after_a_launchers_end_is_another_run(tmp_path: Path) -> None:
    bar = "\r".join(f"{number}%|# | {number}/100 [00:00<00:10, 1.0it/s]" for number in range(30))
    assert diagnose_lines(tmp_path / "a", [*launched("train.py", *BUG), bar]).kind is None
    stopped = diagnose_lines(tmp_path / "b", [*BUG, "slurmstepd: error: *** STEP 7.0 ON n1 CANCELLED AT 2026-01-01T00:00:00 ***", bar])
    assert stopped.kind is not None, "a bar may still have been drawn when the job was stopped"


def test_lines_that_differ_only_in_time_are_no_loop(tmp_path: Path) -> None:
    closing = [f"I0416 22:00:08.10{number}952 group.cc:163] closes" for number in range(6)]
    assert diagnose_lines(tmp_path / "log", [*BUG, *closing]).cause == "USER-PY"


def test_early_end_in_a_file_of_several_nodes_is_an_earlier_run(tmp_path: Path) -> None:
    lines = ["torchrun --nnodes=2 train.py", *launched("train.py", *traceback(0, OOM)), *steps(0, 1500), *launched("train.py", *BUG)]
    assert diagnose_lines(tmp_path / "a", lines).cause == "USER-PY"
    near = [*lines[:-1500], *steps(0, 100), *launched("train.py", *BUG)]
    assert "OOM-GPU" in str(diagnose_lines(tmp_path / "b", near[:50] + near[-60:])), "another node may go on below"


def test_log_that_continues_for_a_minute_after_an_exception_is_not_over(tmp_path: Path) -> None:
    logged = ["2026-01-01 09:00:05 INFO loads the rest", "2026-01-01 09:00:40 INFO checks it", "2026-01-01 09:01:30 INFO begins with it"]
    assert diagnose_lines(tmp_path / "a", [*BUG, *logged]).kind is None
    assert diagnose_lines(tmp_path / "b", [*BUG, *(line.replace("09:01", "09:00") for line in logged)]).kind == "failure", "it was closing"
    ranks = [f"[rank1]: {line}" for line in BUG]
    assert diagnose_lines(tmp_path / "c", [*ranks, *logged]).kind == "failure", "another rank may wait for the one that failed"


def test_end_of_an_earlier_run_says_nothing_about_the_last(tmp_path: Path) -> None:
    begun = ["2026-01-01 09:00:05 INFO looks again", "2026-01-01 09:01:05 INFO begins", "2026-01-01 09:02:30 INFO goes on"]
    assert diagnose_lines(tmp_path / "log", ["step 1", "exit status 0", *BUG, *begun]).kind is None


def test_exception_well_after_a_launchers_end_is_the_next_run(tmp_path: Path) -> None:
    lines = [*launched("train.py", *traceback(0, OOM)), *steps(0, 38), *BUG]
    assert diagnose_lines(tmp_path / "log", lines).cause == "USER-PY"


def served(pid: int, *lines: str) -> list[str]:
    """Return lines of vLLM's server with this process id."""
    return [f"(APIServer pid={pid}) {line}" for line in lines]


def test_another_servers_failure_is_an_earlier_run(tmp_path: Path) -> None:
    failed = served(81, *BUG)
    ran = served(97, "INFO: Application startup complete.", "INFO: Shutting down", "INFO: Application shutdown complete.")
    assert diagnose_lines(tmp_path / "a", [*failed, *ran]).kind is None
    assert diagnose_lines(tmp_path / "b", [*ran, *failed]).cause == "USER-PY"
    same = served(81, "INFO: Application shutdown complete.")
    assert diagnose_lines(tmp_path / "c", [*failed, *same]).cause == "USER-PY"


def test_report_of_a_signal_handler_ends_its_run(tmp_path: Path) -> None:
    """PaddlePaddle appends to the log of a worker, and its handler exits after the report."""
    stop = [
        "FatalError: `Termination signal` is detected by the operating system.",
        "  [TimeInfo: *** Aborted at 1900000000 (unix time) ***]",
    ]
    begun = [f"loaded part {name}" for name in "abcdefghijkl"]
    failed = diagnose_lines(tmp_path / "a", [*stop, *begun, *BUG])
    assert (failed.cause, failed.kind) == ("USER-PY", "failure")
    assert diagnose_lines(tmp_path / "b", [*stop, *begun]).kind is None
    assert diagnose_lines(tmp_path / "c", stop).cause == "CTRL-C"


def test_program_that_a_pasted_session_starts_again_is_judged_by_its_last_run(tmp_path: Path) -> None:
    failed = ["(env) me@n1:~/a$ LR=1 python train.py --steps 9", *traceback(None, "KeyError: 'labels'")]
    well = ["step 1 loss 2.1", "step 2 loss 2.0", "saved"]
    again = diagnose_lines(tmp_path / "again", [*failed, "(env) me@n1:~/a$ python train.py --steps 3", *well])
    assert (again.cause, again.kind) == (None, None)
    sums = ["$ ab = 3 $", "$ ab + 1 = 4 $", *well]
    assert diagnose_lines(tmp_path / "sums", [*failed, *sums]).cause == "USER-PY", "formulas are no commands"
    looked = diagnose_lines(tmp_path / "looked", [*failed, "(env) me@n1:~/a$ ls data", *well])
    assert looked.cause == "USER-PY", "another command is no other run"
    twice = diagnose_lines(
        tmp_path / "twice", ["$ python train.py", *well, "$ python train.py", *traceback(None, "NameError: name 'x' is not defined")]
    )
    assert twice.cause == "USER-PY"
