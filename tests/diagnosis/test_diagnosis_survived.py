"""Exceptions that a run survived, output of a job's script before its ranks, and earlier runs in one file."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.diagnosis.crash_texts import diagnose_lines, ended, spawned, traceback

PLAIN = traceback(None, "ValueError: odd")
THREAD = [
    "Traceback (most recent call last):",
    '  File "/opt/env/lib/python3.11/threading.py", line 1045, in _bootstrap_inner',
    "    self.run()",
    "EOFError",
]


@pytest.mark.parametrize(
    "head",
    [
        "[2026-03-01 10:00:00,123][__main__][ERROR] - step failed, next one",
        "ERROR:train:retried",
        "10:00:00 | ERROR | loop:run:12 - bad batch",
    ],
)
def test_uncaught_exception_wins_over_a_logged_one(tmp_path: Path, head: str) -> None:
    found = diagnose_lines(tmp_path / "a", [head, *traceback(None, "torch.cuda.OutOfMemoryError: CUDA out of memory."), "step 2", *PLAIN])
    assert (found.cause, "odd" in found.title) == ("USER-PY", True)
    assert diagnose_lines(tmp_path / "b", [head, *PLAIN]).cause == "USER-PY", "nothing else says how it ended"


def test_error_that_a_warning_quotes_over_several_lines_did_not_end_the_run(tmp_path: Path) -> None:
    quoted = ["Repository Not Found for url: https://huggingface.co/api/models/mine.", "Is it a gated repo?"]
    head = "2026-03-01 10:00:00,123 {} [probe.py:13] No revision of mine. Error: 404 Client Error. (Request ID: Root=1)"
    after = ["2026-03-01 10:00:09,001 INFO [table.py:4] Saving results", "| task | 0.2 |"]
    assert diagnose_lines(tmp_path / "a", [head.format("WARNING"), "", *quoted, *after]).kind is None
    assert diagnose_lines(tmp_path / "b", [head.format("ERROR"), "", *quoted]).cause == "MODEL-FILES"


def test_request_that_a_client_repeated_did_not_end_the_run(tmp_path: Path) -> None:
    refused = '10:00:01,812 - web - {} - Request: POST https://teacher.org/v1 "HTTP/1.1 429 Too Many Requests"'
    assert diagnose_lines(tmp_path / "a", [refused.format("INFO"), "one more"]).kind is None
    assert diagnose_lines(tmp_path / "b", [refused.format("ERROR"), "one more"]).cause == "HUB-RATE"


def test_exception_logged_long_before_the_end_did_not_end_the_run(tmp_path: Path) -> None:
    logged = ["(Worker pid=77) ERROR:2026-03-26 22:35:46,212:Traceback (most recent call last):"]
    logged += [f"(Worker pid=77) {line}" for line in PLAIN[1:]]
    on = [f"(Worker pid=77) step {number}" for number in range(30)]
    assert diagnose_lines(tmp_path / "a", [*logged, *on]).kind is None
    assert diagnose_lines(tmp_path / "b", [*logged, *on[:3]]).cause == "USER-PY"


def test_thread_exception_is_recognised_and_no_cause_of_a_stopped_run(tmp_path: Path) -> None:
    found = diagnose_lines(tmp_path / "log", [*THREAD, *traceback(None, "KeyboardInterrupt")])
    assert (found.kind, found.cause) == ("stop", "CTRL-C")


def test_progress_after_an_exception_shows_that_it_was_survived(tmp_path: Path) -> None:
    bars = [f" {number}%|#  | {number}/100 [00:0{number}<01:00,  1.0it/s]" for number in range(1, 5)]
    assert diagnose_lines(tmp_path / "a", [*PLAIN, *bars]).kind is None
    assert diagnose_lines(tmp_path / "b", [*bars, *PLAIN, bars[-1]]).cause == "USER-PY", "a bar tells where it was when it ended"


@pytest.mark.parametrize(
    "line",
    [
        "/var/spool/slurmd/job88/slurm_script: line 9: SBATCH: command not found",
        "/var/spool/slurmd/job88/slurm_script: line 12: python: command not found",
        "slurmstepd: error: execve(): env.sh: Permission denied",
    ],
)
def test_command_that_a_shell_could_not_run_is_not_the_later_cause(tmp_path: Path, line: str) -> None:
    found = diagnose_lines(tmp_path / "a", [line, "step 1", *PLAIN])
    assert (found.cause, found.others) == ("USER-PY", ())


def test_command_not_found_after_a_failure_is_part_of_a_broken_line(tmp_path: Path) -> None:
    assert diagnose_lines(tmp_path / "log", [*PLAIN, "run.sh: line 4: --deepspeed: command not found"]).others != ()


def test_exception_of_a_tool_before_the_ranks_is_not_theirs(tmp_path: Path) -> None:
    tool = traceback(None, "ModuleNotFoundError: No module named 'dataclasses'", "/home/u/.local/bin/wandb")
    ranks = [f"{rank}: {line}" for rank in range(4) for line in PLAIN]
    found = diagnose_lines(tmp_path / "log", [*tool, *ranks])
    assert (found.cause, found.every_rank, found.others) == ("USER-PY", True, ())


def test_truncated_launcher_traceback_is_no_ranks_failure(tmp_path: Path) -> None:
    words = "[E socket.cpp:435] [c10d] The server socket has failed to listen on any local network address."
    frames = [
        "Traceback (most recent call last):",
        '  File "/opt/env/lib/python3.9/site-packages/torch/distributed/launch.py", line 189, in main',
    ]
    found = diagnose_lines(tmp_path / "log", [words, *frames, "    launch(args)"])
    assert (found.cause, found.first_failing_rank) == ("PORT-IN-USE", None)


def test_lines_after_a_known_exception_belong_to_its_message(tmp_path: Path) -> None:
    file = "/opt/env/lib/python3.11/site-packages/transformers/modeling_utils.py"
    size = "\tsize mismatch for embed.weight: copying a param with shape torch.Size([0]) from checkpoint, the shape in current model is"
    lines = [*traceback(None, "RuntimeError: Error(s) in loading state_dict for Net:", file), size + " torch.Size([9, 9])."]
    assert diagnose_lines(tmp_path / "log", lines).cause == "Z3-SIZE0"


def test_last_of_several_runs_in_a_file_counts(tmp_path: Path) -> None:
    killed = "E0210 14:23:38 torch/distributed/elastic/multiprocessing/api.py:833] failed (exitcode: -9) local_rank: 0 (pid: 304) of binary: python"
    agent = traceback(
        None,
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:",
        "/opt/env/lib/python3.11/site-packages/torch/distributed/run.py",
    )
    found = diagnose_lines(tmp_path / "a", [killed, *agent, *(f"step {n} loss {n}.5" for n in range(300)), *PLAIN])
    assert (found.cause, found.others) == ("USER-PY", ())
    soon = diagnose_lines(tmp_path / "b", [killed, *agent, *PLAIN])
    assert soon.cause == "KILLED-UNKNOWN", "another rank of the same run"


def test_restarted_run_in_the_same_file_counts(tmp_path: Path) -> None:
    start = "Setting OMP_NUM_THREADS environment variable for each process to be 1 in default, to avoid your system being overloaded"
    late = "[Rank {}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=2, OpType=ALLREDUCE) ran for 1805914 milliseconds"
    ended = "ERROR:torch.distributed.elastic.multiprocessing.api:failed (exitcode: -6) local_rank: 1 (pid: 182046) of binary: python"
    found = diagnose_lines(tmp_path / "log", [start, late.format(1), ended, start, late.format(2), late.format(1), ended])
    assert (found.cause, found.first_failing_rank) == ("NCCL-WATCHDOG", 2)


@pytest.mark.parametrize("file", ["interface/router.py", "internal/internal_util.py", "lib/asyncio_manager.py"])
def test_exception_of_a_trackers_helper_is_a_consequence(tmp_path: Path, file: str) -> None:
    frame = f'  File "/opt/env/lib/python3.11/site-packages/wandb/sdk/{file}", line 70, in run'
    lines = ["Traceback (most recent call last):", frame, "    raise MessageRouterClosedError from e", "wandb.sdk.MessageRouterClosedError"]
    assert diagnose_lines(tmp_path / "a", ["step 1 loss 2.0", *lines]).kind is None
    assert "odd" in diagnose_lines(tmp_path / "b", [*PLAIN, *lines]).title


def test_early_warning_and_mention_do_not_explain_a_kill(tmp_path: Path) -> None:
    warning = "/opt/env/modelopt/logging.py:115: UserWarning: Failed to import: cannot import name 'x' from 'diffusers' (/opt/env/a.py)"
    killed = "run.sh: line 12: 12345 Killed                  python train.py"
    found = diagnose_lines(tmp_path / "a", [warning, *(f"step {n} loss 2.0" for n in range(30)), killed])
    assert (found.cause, found.others) == ("KILLED-UNKNOWN", ())
    mention = "wget: unable to resolve host address 'example.org'"
    ended = "srun: error: n1: task 0: Killed"
    found = diagnose_lines(tmp_path / "b", [mention, *(f"step {n} loss 2.0" for n in range(400)), ended])
    assert (found.cause, found.others) == ("KILLED-UNKNOWN", ())


def test_windows_paths_are_paths(tmp_path: Path) -> None:
    library = '  File "D:\\env\\lib\\site-packages\\datasets\\load.py", line 9, in load'
    found = diagnose_lines(
        tmp_path / "log", ["Traceback (most recent call last):", '  File "D:\\me\\train.py", line 3', library, "ValueError: odd"]
    )
    assert (found.cause, found.confidence, found.could_be[1]) == ("DATA", "medium", "USER-PY")


@pytest.mark.parametrize("line", ["If interrupted by user, a checkpoint is written", "It can be interrupted by user"])
def test_announcement_of_what_a_stop_would_do_is_no_stop(tmp_path: Path, line: str) -> None:
    assert diagnose_lines(tmp_path / "log", [line, "step 1 loss 2.0"]).kind is None


def test_driver_that_tensorflow_did_not_find_is_no_end(tmp_path: Path) -> None:
    words = "W tsl/odd.cc:64] Could not load dynamic library 'libcuda.so.1'; dlerror: libcuda.so.1: cannot open shared object file"
    assert diagnose_lines(tmp_path / "log", [words, "I tsl/odd.cc:9] no GPU: the CPU is used"]).cause is None


def test_type_that_tritons_compiler_lacks_explains_its_failure(tmp_path: Path) -> None:
    failed = traceback(
        0, "RuntimeError: PassManager::run failed", "/opt/env/lib/python3.11/site-packages/triton/backends/nvidia/compiler.py"
    )
    found = diagnose_lines(tmp_path / "log", ["LLVM ERROR: Unsupported rounding mode for conversion.", *failed])
    assert found.cause == "DTYPE-UNSUPPORTED"


def test_warning_is_no_end(tmp_path: Path) -> None:
    warning = "/opt/env/torch/cuda/__init__.py:141: UserWarning: CUDA initialization: The NVIDIA driver on your system is too old (found 1)"
    assert diagnose_lines(tmp_path / "log", [warning, "cpu"]).kind is None


def test_threads_ended_by_the_programs_exception_are_not_the_cause(tmp_path: Path) -> None:
    found = diagnose_lines(tmp_path / "log", [*["terminate called without an active exception"] * 4, *PLAIN])
    assert (found.cause, found.others) == ("USER-PY", ())


def test_command_that_srun_cannot_start_is_no_early_exit(tmp_path: Path) -> None:
    lines = ["slurmstepd: error: execve(): ray: No such file or directory", "srun: error: n1: task 0: Exited with exit code 2"]
    assert diagnose_lines(tmp_path / "log", lines).cause == "NO-DS-CMD"


@pytest.mark.parametrize(
    "last",
    [
        "socket.gaierror: [Errno -2] odd",
        "cv2.error: OpenCV(4.8.0) odd",
        "struct.error: odd",
        "numpy.linalg._LinAlgError: odd",
        "queue.Empty",
    ],
)
@pytest.mark.parametrize("frame", ["  File", "> File"])
def test_exception_of_any_name_is_read_after_its_frames(tmp_path: Path, frame: str, last: str) -> None:
    found = diagnose_lines(
        tmp_path / "log", ["Traceback (most recent call last):", f'{frame} "/home/u/train.py", line 3, in main', "    go()", last]
    )
    assert (found.cause, found.kind) == ("USER-PY", "failure")
    assert last in found.title


def test_warning_about_a_missing_gpu_is_no_cause_of_a_stop(tmp_path: Path) -> None:
    warning = (
        "/opt/env/torch/cuda/__init__.py:52: UserWarning: CUDA initialization: Found no NVIDIA driver on your system. (Triggered at a.cpp)"
    )
    found = diagnose_lines(tmp_path / "log", [warning, "step 1 loss 2.0", *traceback(None, "KeyboardInterrupt")])
    assert (found.kind, found.cause) == ("stop", "CTRL-C")


def test_stop_long_before_an_exception_belongs_to_an_earlier_run(tmp_path: Path) -> None:
    stop = "WARNING:torch.distributed.elastic.multiprocessing.api:Sending process 4150 closing signal SIGHUP"
    steps = [f"step {n} loss 2.0" for n in range(1100)]
    assert diagnose_lines(tmp_path / "a", [stop, *steps, *PLAIN]).cause == "USER-PY"
    assert diagnose_lines(tmp_path / "b", [stop, *steps[:9], *PLAIN]).cause == "SIGHUP", "an immediate exception is a consequence"


@pytest.mark.parametrize(
    ("cause", "line"),
    [
        ("KILLED-UNKNOWN", "epochs:  20%|##   | 3/15 [1:27:15<5:56:40, 1783.41s/it, det_loss=2.59, loss=3.71, lr=0.01]Killed"),
        ("NO-DS-CMD", "./all.sh: line 24: /home/me/gone/.venv/bin/accelerate: No such file or directory"),
    ],
)
def test_single_line_that_reports_the_end_is_read(tmp_path: Path, cause: str, line: str) -> None:
    assert diagnose_lines(tmp_path / "log", [line]).cause == cause


@pytest.mark.parametrize(
    ("cause", "line"),
    [
        ("NCCL-SYSTEM", "RuntimeError: NCCL Error 3: internal error - please report this issue to the NCCL developers"),
        ("DATA", "Exception: Dataset not found."),
        ("DATA", "OSError: Cannot find data file. "),
    ],
)
def test_exception_that_names_its_cause_is_reported_by_it(tmp_path: Path, cause: str, line: str) -> None:
    assert diagnose_lines(tmp_path / "log", traceback(None, line)).cause == cause


def test_exception_being_handled_at_a_stop_did_not_end_the_run(tmp_path: Path) -> None:
    handled = traceback(
        None, "AttributeError: '_idat' object has no attribute 'fileno'", "/opt/env/lib/python3.11/site-packages/PIL/ImageFile.py"
    )
    stopped = traceback(None, "KeyboardInterrupt")
    between = ["", "During handling of the above exception, another exception occurred:", ""]
    found = diagnose_lines(tmp_path / "a", [*handled, *between, *stopped])
    assert (found.cause, found.kind) == ("CTRL-C", "stop")
    apart = diagnose_lines(tmp_path / "b", [*handled, *stopped])
    assert apart.cause == "USER-PY", "it was not handled"


def test_interrupt_in_quoted_source_is_no_stop(tmp_path: Path) -> None:
    shown = ["│ ❱ 54 │   │   run(cfg)      │", "│   56 │   except KeyboardInterrupt:    │", "│   57 │   │   raise KeyboardInterrupt │"]
    assert diagnose_lines(tmp_path / "log", [*shown, *PLAIN]).kind == "failure"


def test_bar_completed_after_an_exception_belongs_to_a_later_run(tmp_path: Path) -> None:
    states = "\r".join(f"{number}%|#  | {number}/100 [00:0{number // 20}<01:00,  1.0it/s]" for number in range(1, 101))
    assert diagnose_lines(tmp_path / "a", [*PLAIN, states]).kind is None
    ranks = [f"[rank1]: {line}" for line in PLAIN]
    assert diagnose_lines(tmp_path / "b", [*ranks, states]).cause == "USER-PY", "another rank may go on for a while"


def test_temporarily_nan_metric_is_not_reported_if_the_loss_recovered(tmp_path: Path) -> None:
    bad, good = [[f"epoch {number} loss: {loss}" for number in range(5)] for loss in ("nan", "0.25")]
    assert diagnose_lines(tmp_path / "a", [*bad, *good, "Finished."]).cause != "NAN"
    assert diagnose_lines(tmp_path / "b", [*bad, *(f"note {number}" for number in range(900)), "Finished."]).cause != "NAN"
    assert diagnose_lines(tmp_path / "c", [*good, *bad]).cause == "NAN"


def test_second_line_of_a_warning_belongs_to_it(tmp_path: Path) -> None:
    warning = ["/opt/env/lib/python3.11/site-packages/x/y.py:8: RuntimeWarning: Failed to read the commit:", "No module named 'x._version'"]
    assert diagnose_lines(tmp_path / "a", warning).kind is None
    assert diagnose_lines(tmp_path / "b", warning[1:]).cause == "IMPORT-MISSING"


LOOP = [f"step {number} | loss {1 / number:.4f} | lr 1e-4" for number in range(1, 21)]


@pytest.mark.parametrize("end", [[], ["Training complete!"], ["Saving the model to out/last"]])
def test_loop_continuing_after_an_exception_survived_it(tmp_path: Path, end: list[str]) -> None:
    assert diagnose_lines(tmp_path / "a", [*LOOP[:10], "skipping a batch:", *PLAIN, *LOOP[10:], *end]).kind != "failure"
    printed = diagnose_lines(tmp_path / "b", [*PLAIN, *LOOP[10:]])
    assert printed.cause == "USER-PY", "what a program had in its buffer reaches the file after its exception"
    several = [*spawned(2), *LOOP[:10], *PLAIN, *LOOP[10:14], *ended(2, 1)]
    assert diagnose_lines(tmp_path / "c", several).cause == "USER-PY", "the other rank's"


@pytest.mark.parametrize(
    "line",
    [
        "Prediction: RuntimeError: CUDA out of memory",
        "OSError: [Errno 98] Address already in use, trying 6007",
        "ImportError: No module named 'odd' -- falling back to the slow one",
        "Could not cache it. Will ignore error and continue. Error: [Errno 30] Read-only file system: '/hub/x'",
        "Killed 3 stale workers before the start",
        "Press Ctrl-C (KeyboardInterrupt) to stop at any time",
        "Segmentation fault rate of the model: 0.1",
    ],
)
def test_mentioned_error_before_further_work_ended_nothing(tmp_path: Path, line: str) -> None:
    assert diagnose_lines(tmp_path / "a", [line, *LOOP]).kind is None
    assert diagnose_lines(tmp_path / "b", ["begin", line, "Training complete!"]).kind == "success"


def test_program_that_continues_after_an_exception_and_finishes_is_uncertain(tmp_path: Path) -> None:
    steps = [f"step {number} loss 0.{9 - number}" for number in range(6)]
    on = diagnose_lines(tmp_path / "a", [*steps[:3], *PLAIN, *steps[3:], "Training completed."])
    assert (on.cause, on.kind, on.could_be[0]) == (None, None, "USER-PY")
    assert diagnose_lines(tmp_path / "b", [*steps[:3], *PLAIN, "Training completed."]).cause == "USER-PY", "it was buffered"


@pytest.mark.parametrize(
    "head", ["Mar 04 09:11:00 node7 train[4711]: ", "[pod/sft-worker-0/pytorch] ", "trainer-1  | ", "2026-03-04T09:11:00.1234567Z "]
)
def test_prefix_of_a_log_collector_is_on_every_line(tmp_path: Path, head: str) -> None:
    assert diagnose_lines(tmp_path / "a", [f"{head}bash: ./run_8gpu.sh: No such file or directory"]).cause == "NO-SCRIPT"


def test_torchruns_own_exception_is_not_the_ranks(tmp_path: Path) -> None:
    text = (Path(__file__).parents[1] / "long" / "corpus" / "made" / "rank0-exit3.txt").read_text().splitlines()
    found = diagnose_lines(tmp_path / "a", text)
    assert (found.cause, found.first_failing_rank, found.confidence) == ("EARLY-EXIT", 0, "medium")


def test_remark_of_a_logger_is_no_cause(tmp_path: Path) -> None:
    remarks = [
        "DEBUG 06-13 18:12:02 [__init__.py:44] TPU platform is not available because: No module named 'libtpu'",
        "[2026-03-01 10:00:00,123] [INFO] [cache.py:12:load] CUDA out of memory. Tried to allocate 2.00 GiB, the cache is smaller now",
    ]
    found = diagnose_lines(tmp_path / "a", [*remarks, *traceback(None, "RuntimeError: the index has another version")])
    assert (found.cause, found.others) == ("USER-PY", ())


def test_tracebacks_without_a_frame_above_further_work_ended_nothing(tmp_path: Path) -> None:
    """Python and IPython print at least one frame for whatever ends a program."""
    bare = ["TypeError           Traceback (most recent call last)", "TypeError: 'Pool' object is not callable"] * 3
    work = [
        "Packages",
        "--------",
        *(f"found {name}" for name in ("a list", "a table", "a map", "files", "rows", "columns", "a key", "names")),
    ]
    shown = diagnose_lines(tmp_path / "a", [*bare, *work, "OK"])
    assert (shown.kind, "an error is at line 6, and text follows it" in shown.title) == (None, True)
    assert diagnose_lines(tmp_path / "b", [*bare, *work[:3]]).cause == "USER-PY", "an excerpt without its frames"
    assert diagnose_lines(tmp_path / "c", [bare[0], "Cell In[3], line 5", bare[1], *work, "OK"]).cause == "USER-PY"


def test_exceptions_that_a_server_logs_again_and_again_did_not_end_it(tmp_path: Path) -> None:
    logged = [
        "ERROR 09-30 18:30:55 [serving_chat.py:251] Traceback (most recent call last):",
        'ERROR 09-30 18:30:55 [serving_chat.py:251]   File "/opt/env/lib/python3.11/site-packages/vllm/serving_chat.py", line 240, in create',
        "ERROR 09-30 18:30:55 [serving_chat.py:251] ValueError: there is no chat template",
    ]
    requests = [
        *logged,
        *logged,
        *logged,
        "INFO:     Shutting down",
        "INFO:     Application shutdown complete.",
        "starting the server again",
    ]
    found = diagnose_lines(tmp_path / "log", ["INFO 09-30 18:28:43 [api_server.py:1896] vLLM API server version 0.10.2", *requests])
    assert (found.cause, found.kind) == (None, None)
    assert "ValueError" in found.evidence[0].text
    last = diagnose_lines(tmp_path / "last", [*logged, *logged, *logged])
    assert (last.cause, last.kind) == ("USER-PY", "failure")


PIP = [
    "Building wheels for collected packages: fastop",
    "  Complete output (40 lines):",
    "  Traceback (most recent call last):",
    '    File "/tmp/pip-install-x3/fastop/setup.py", line 36, in <module>',
    "      raise RuntimeError('no compiler')",
    "  RuntimeError: no compiler",
    "  ----------------------------------------",
]


def test_error_of_a_package_that_pip_builds_is_no_error_of_the_script(tmp_path: Path) -> None:
    assert diagnose_lines(tmp_path / "a", PIP).cause == "OP-BUILD"
    assert diagnose_lines(tmp_path / "b", [*PIP, "Successfully installed fastop-1.0"]).cause is None


def test_service_that_is_ready_has_not_come_to_its_end(tmp_path: Path) -> None:
    found = diagnose_lines(tmp_path / "log", ["loading the model", "The users' init has completed successfully"])
    assert found.kind is None


def test_seconds_since_a_start_are_no_part_of_a_line(tmp_path: Path) -> None:
    lines = [f"[+   {12 + number}.340] {line}" for number, line in enumerate(["step 1", *traceback(None, "ValueError: odd")])]
    assert diagnose_lines(tmp_path / "log", lines).cause == "USER-PY"
