"""Pasted excerpts without the head or end of a log, and long logs whose earlier part misleads."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.diagnosis.crash_texts import SAMPLES, diagnose_lines, ended, fallout, spawned, traceback

BUSY = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 22.00 MiB. GPU 0 has a total capacity of 39.56 GiB of which 14.81 MiB is free. "


@pytest.mark.parametrize(
    ("cause", "lines"),
    [
        ("CUDA-ASSERT", ["Indexing.cu:1231: block: [31,0,0], thread: [29,0,0] Assertion `srcIndex < srcSelectDimSize` failed."]),
        (
            "IB",
            [
                "n1:982:990 [2] NCCL INFO Using network IBext_v8",
                "NET/IBP:Got completion from peer 7.6.1.3<36315> with status=12 opcode=0 (Send)",
            ],
        ),
        (
            "HF-MISMATCH",
            ["Please correct the following DeepSpeed config values that mismatch TrainingArguments values:", "- ds lr=1 vs hf lr=2"],
        ),
        (
            "Z3-SIZE0",
            ["\tsize mismatch for a.weight: copying a param with shape torch.Size([0]) from checkpoint, the shape is torch.Size([8, 8])."],
        ),
        ("CONFIG-ASSERT", ["│ ❱ 881 │ assert (micro_batch > 0)", "AssertionError: Micro batch size per gpu: 0 has to be greater than 0"]),
        ("USER-PY", ["step 3 loss 2.0", "KeyError: 'labels'"]),
        ("DATA", ["10:00:00 [INFO] read notes", "10:00:00 [ERROR] judge: [Errno 2] No such file or directory: 'val/notes.json'"]),
    ],
)
def test_error_without_context_is_understood_but_uncertain(tmp_path: Path, cause: str, lines: list[str]) -> None:
    found = diagnose_lines(tmp_path / "log", lines)
    assert (found.cause, found.kind) == (cause, "failure")
    assert found.confidence != "high" or found.cause == "CONFIG-ASSERT"
    went_on = diagnose_lines(tmp_path / "long", [*lines, *(f"step {number} loss 2.0" for number in range(100))])
    assert went_on.kind != "success"
    if not SAMPLES.get(cause) or "Error" not in lines[-1]:
        assert went_on.cause is None, "the log continues for a hundred lines"


def test_traceback_without_its_head_is_recognised(tmp_path: Path) -> None:
    lines = ['  File "/home/me/train.py", line 46, in forward', "    x = self.fc(x)", *SAMPLES["DTYPE-MIX"][:1]]
    found = diagnose_lines(tmp_path / "log", lines)
    assert (found.cause, found.kind) == ("DTYPE-MIX", "failure")
    unknown = diagnose_lines(tmp_path / "b", [*lines[:2], "ValueError: odd"])
    assert unknown.cause == "USER-PY" and "train.py, line 46" in unknown.fixes[0].text


def test_failure_before_the_ranks_started_is_not_their_cause(tmp_path: Path) -> None:
    before = ["python: can't open file '/w/modify_yaml.py': [Errno 2] No such file or directory", *traceback(None, "KeyError: 'GPU_IDS'")]
    found = diagnose_lines(tmp_path / "log", [*before, *spawned(2), *traceback(1, "ValueError: odd"), *fallout(0), *ended(2, 1)])
    assert (found.cause, found.first_failing_rank, found.others) == ("USER-PY", 1, ())
    assert "odd" in found.title
    alone = diagnose_lines(tmp_path / "b", before)
    assert alone.cause == "NO-SCRIPT"


def test_earlier_successful_run_says_nothing_about_the_next(tmp_path: Path) -> None:
    well = [f"[2026-03-01 10:01:00,000] [INFO] [launch.py:285:main] Process {pid} exits successfully." for pid in (700, 701)]
    once = [*spawned(2), "step 1 loss 2.0", *well]
    assert diagnose_lines(tmp_path / "a", once).kind == "success"
    assert diagnose_lines(tmp_path / "b", [*once, *spawned(2), "step 1 loss 2.0"]).kind is None


def test_gpu_with_only_our_process_is_not_used_by_others(tmp_path: Path) -> None:
    own = BUSY + "Process 10171 has 39.54 GiB memory in use. Of the allocated memory 38.26 GiB is allocated by PyTorch."
    assert diagnose_lines(tmp_path / "a", traceback(None, own)).cause == "OOM-GPU"
    other = BUSY + "Process 10171 has 30.54 GiB memory in use. Including non-PyTorch memory, this process has 9.00 GiB memory in use."
    assert diagnose_lines(tmp_path / "b", traceback(None, other)).cause == "GPU-BUSY"


def test_loop_that_printed_an_exception_and_finished_has_not_failed(tmp_path: Path) -> None:
    first, *rest = traceback(None, "ValueError: not an item")
    printed = [" 15%|█▌        | 15/100 [00:33<02:43,  1.92s/it]" + first, *rest]
    assert diagnose_lines(tmp_path / "a", [*printed, "100%|██████████| 100/100 [04:41<00:00,  2.81s/it]"]).kind is None
    assert diagnose_lines(tmp_path / "b", [*printed, "100%|██████████| 1/1 [00:00<00:00, 68.1it/s]"]).cause == "USER-PY", "another bar"
    assert diagnose_lines(tmp_path / "c", printed).cause == "USER-PY"


def test_hosts_are_recognised_by_address(tmp_path: Path) -> None:
    lines = [
        f"192.168.205.202: {line}" for line in traceback(4, "FileNotFoundError: [Errno 2] No such file or directory: 'data/index.npy'")
    ]
    found = diagnose_lines(tmp_path / "log", lines)
    assert (found.cause, found.first_failing_rank, found.host) == ("DATA", 4, "192.168.205.202")


@pytest.mark.parametrize(
    "line",
    ["Process finished with exit code 139 (interrupted by signal 11: SIGSEGV)", "[1]    149 segmentation fault (core dumped)  python x.py"],
)
def test_crash_messages_of_shells_and_editors_are_known(tmp_path: Path, line: str) -> None:
    assert diagnose_lines(tmp_path / "log", ["step 1 loss 2.0", line]).cause == "SIGSEGV"


def test_torchrun_on_one_host_names_the_killed_rank(tmp_path: Path) -> None:
    killed = (
        "ERROR:torch.distributed.elastic.multiprocessing.api:failed (exitcode: -9) local_rank: 4 (pid: 899509) of binary: /usr/bin/python"
    )
    found = diagnose_lines(tmp_path / "a", ["step 1", killed])
    assert (found.cause, found.first_failing_rank) == ("KILLED-UNKNOWN", 4)
    assert diagnose_lines(tmp_path / "b", ["torchrun --nnodes 2 train.py", killed]).first_failing_rank is None


def test_as_many_unlabelled_tracebacks_as_ranks_are_all_ranks(tmp_path: Path) -> None:
    lines = [line for _ in range(4) for line in traceback(None, "ModuleNotFoundError: No module named 'apex'")]
    found = diagnose_lines(tmp_path / "log", [*spawned(4), *lines, *ended(4, 1)])
    assert (found.cause, found.every_rank, found.first_failing_rank) == ("IMPORT-MISSING", True, None)
    assert not diagnose_lines(tmp_path / "b", [*spawned(4), *lines[: len(lines) // 2], *ended(4, 1)]).every_rank


def test_intended_start_from_scratch_is_no_failure(tmp_path: Path) -> None:
    well = [f"[2026-03-01 10:01:00,000] [INFO] [launch.py:285:main] Process {pid} exits successfully." for pid in (700, 701)]
    no = "[WARNING] [engine.py:2700:load_checkpoint] Unable to find latest file at ckpt/latest, if trying to load latest checkpoint please ensure"
    assert diagnose_lines(tmp_path / "a", [*spawned(2), no, *well]).cause == "CKPT-LATEST"
    assert (
        diagnose_lines(tmp_path / "b", [*spawned(2), no, "    will not load any checkpoints and will start from random", *well]).kind
        == "success"
    )


@pytest.mark.parametrize(
    "prefix",
    [
        "> ",
        "    ",
        "| ",
        "{0:6d}  ",
        "2026-03-01 10:00:{0:02d},123 - INFO - ",
        "[2026-02-22 23:55:{0:02d}] worker-0 >> ",
        "2023-04-29 06:01:{0:02d}.977 [177/train/578 (pid 28936)] [09c561ee-a44c-4795-967c-7183a83b3160] ",
    ],
)
def test_prefix_of_traceback_lines_changes_nothing(tmp_path: Path, prefix: str) -> None:
    lines = [*spawned(4), *traceback(3, "ValueError: an odd label"), *fallout(0), *ended(4, 1)]
    plain = diagnose_lines(tmp_path / "a", lines)
    found = diagnose_lines(tmp_path / "b", [prefix.format(number) + line for number, line in enumerate(lines)])
    assert (found.cause, found.first_failing_rank, found.fixes) == (plain.cause, 3, plain.fixes)
    notebook = ["ValueError                      Traceback (most recent call last)", "Cell In[3], line 2", "ValueError: odd"]
    assert diagnose_lines(tmp_path / "c", [prefix.format(number) + line for number, line in enumerate(notebook)]).cause == "USER-PY"


def test_progress_bar_before_a_traceback_is_no_prefix(tmp_path: Path) -> None:
    first, *rest = traceback(None, "ValueError: odd")
    found = diagnose_lines(tmp_path / "log", [" 5%|▌    | 5/100 [00:01<00:20,  4.6it/s]" + first, *rest])
    assert found.cause == "USER-PY" and "train.py" in found.fixes[0].text


def dumped(rank: int, function: str) -> list[str]:
    """Return py-spy's output for a rank inside a collective."""
    return [
        f"Process {700 + rank}: /opt/env/bin/python -u train.py --local_rank={rank} --bf16",
        f'Thread {700 + rank} (active): "MainThread"',
        "    wait (torch/distributed/distributed_c10d.py:99)",
        f"    {function} (torch/distributed/distributed_c10d.py:2806)",
        "    main (train.py:30)",
        f'Thread {900 + rank} (idle): "Thread-1"',
        "    barrier (torch/distributed/distributed_c10d.py:4000)",
    ]


def test_rank_in_another_collective_is_named(tmp_path: Path) -> None:
    functions = ("all_reduce", "all_reduce", "barrier", "all_reduce")
    found = diagnose_lines(tmp_path / "a", ["step 7", *(line for rank, name in enumerate(functions) for line in dumped(rank, name))])
    assert (found.cause, found.first_failing_rank, found.kind) == ("HANG-DESYNC", 2, "failure")
    assert found.evidence[0].text.startswith("barrier (")
    two = diagnose_lines(tmp_path / "b", [*dumped(0, "all_reduce"), *dumped(1, "barrier")])
    assert (two.cause, two.first_failing_rank) == ("HANG-DESYNC", None)
    same = diagnose_lines(tmp_path / "c", [line for rank in range(3) for line in dumped(rank, "all_reduce")])
    assert (same.cause, same.kind) == (None, None)


def test_faulthandler_stacks_show_the_rank_too(tmp_path: Path) -> None:
    lines = [
        line
        for rank, name in enumerate(("all_gather_into_tensor", "broadcast", "all_gather_into_tensor"))
        for line in (
            f"[rank{rank}]: Thread 0x00007f6d3c29d740 (most recent call first):",
            f'[rank{rank}]:   File "/opt/env/torch/distributed/distributed_c10d.py", line 2806 in {name}',
            f'[rank{rank}]:   File "train.py", line 30 in main',
        )
    ]
    found = diagnose_lines(tmp_path / "log", lines)
    assert (found.cause, found.first_failing_rank) == ("HANG-DESYNC", 1)


def test_coloured_notebook_frames_are_read(tmp_path: Path) -> None:
    lines = [
        "\x1b[0;31m---------------------------------------------------------------------------\x1b[0m",
        "\x1b[0;31mFileNotFoundError\x1b[0m                         Traceback (most recent call last)",
        "Cell \x1b[0;32mIn[43], line 1\x1b[0m",
        "\x1b[0;32m----> 1\x1b[0m zip_folder(\x1b[38;5;124m'\x1b[39mimages\x1b[38;5;124m'\x1b[39m)",
        "File \x1b[0;32m~/vivid/data.py:37\x1b[0m, in \x1b[0;36mzip_folder\x1b[0;34m(self, folder)\x1b[0m",
        "\x1b[0;31mFileNotFoundError\x1b[0m: [Errno 2] No such file or directory: 'images'",
    ]
    found = diagnose_lines(tmp_path / "log", lines)
    assert found.cause == "USER-PY" and "~/vivid/data.py" in found.fixes[0].text


def test_megatron_index_missing_on_another_host_is_recognised(tmp_path: Path) -> None:
    last = "FileNotFoundError: [Errno 2] No such file or directory: '/d/index-cache/e1ad_doc_idx.npy'"
    found = diagnose_lines(tmp_path / "log", [f"10.0.0.2: {line}" for line in traceback(4, last)])
    assert (found.cause, found.first_failing_rank) == ("DATA", 4)
    assert "index" in found.title


def test_cause_is_uncertain_if_a_process_failed_before(tmp_path: Path) -> None:
    lines = traceback(None, "ModuleNotFoundError: No module named 'ray'")
    assert diagnose_lines(tmp_path / "a", lines).confidence == "high"
    before = "srun: error: n1: task 0: Exited with exit code 13"
    assert diagnose_lines(tmp_path / "b", [before, *lines]).confidence == "medium"
    assert diagnose_lines(tmp_path / "c", [*lines, before]).confidence == "high"


def test_evidence_of_several_bare_exceptions_is_the_last(tmp_path: Path) -> None:
    found = diagnose_lines(tmp_path / "log", ["step 3 loss 2.0", "ValueError: one thing", "RuntimeError: another thing"])
    assert found.cause == "USER-PY" and [shown.text for shown in found.evidence] == ["RuntimeError: another thing"]
