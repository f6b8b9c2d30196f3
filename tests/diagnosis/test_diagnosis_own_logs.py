"""Logs of a single rank: first lines, library messages or file name tell which rank."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dstui.diagnosis import diagnose
from tests.diagnosis.crash_texts import diagnose_lines, traceback

WHO = re.compile(r"((?:process|rank|RANK|index): )3")
BUG = traceback(None, "NameError: name 'x' is not defined")


@pytest.mark.parametrize(
    "said",
    [
        "[03/04 10:00:00] detectron2 INFO: Rank of current process: 3. World size: 8",
        "Process rank: 3, device: cuda:3, n_gpu: 1, distributed training: True",
        "Initializing distributed: GLOBAL_RANK: 3, MEMBER: 4/8",
        "Process index: 3",
    ],
)
def test_only_rank_that_introduces_itself_wrote_the_file(tmp_path: Path, said: str) -> None:
    assert diagnose_lines(tmp_path / "a", [said, *BUG]).first_failing_rank == 3
    other = WHO.sub(r"\g<1>0", said)
    assert diagnose_lines(tmp_path / "b", [other, said, *BUG]).first_failing_rank is None, "all ranks print to this one"
    assert diagnose_lines(tmp_path / "c", ["world_size=8", other, *BUG]).first_failing_rank is None, "rank 0 may speak for all"


def test_exceptions_of_one_rank_in_several_runs_are_not_every_ranks(tmp_path: Path) -> None:
    run = ["[03/04 10:00:00] detectron2 INFO: Rank of current process: 1. World size: 2", *BUG]
    found = diagnose_lines(tmp_path / "log.txt", run * 2)
    assert (found.first_failing_rank, found.every_rank) == (1, False)


def test_file_whose_first_lines_name_one_rank_belongs_to_it(tmp_path: Path) -> None:
    begun = [f"2026-01-01 10:00:0{second} - worker-Rank-2 - INFO - part {second} is ready" for second in range(8)]
    assert diagnose_lines(tmp_path / "a", [*begun, *BUG]).first_failing_rank == 2
    assert diagnose_lines(tmp_path / "b", [*begun[:6], begun[6].replace("Rank-2", "Rank-1"), *BUG]).first_failing_rank is None
    assert (
        diagnose_lines(tmp_path / "c", ["world_size=4", *(line.replace("Rank-2", "Rank-0") for line in begun), *BUG]).first_failing_rank
        is None
    )


def test_folder_of_logs_named_by_rank_is_read(tmp_path: Path) -> None:
    (tmp_path / "log.txt").write_text("step 1\n")
    (tmp_path / "log.txt.rank5").write_text("\n".join(BUG) + "\n")
    found = diagnose([tmp_path])
    assert (found.cause, found.first_failing_rank) == ("USER-PY", 5)


def test_rank_reported_by_mpirun_is_named_across_a_line_break(tmp_path: Path) -> None:
    lines = [
        "CUDA error: an illegal memory access was encountered",
        "terminate called after throwing an instance of 'std::runtime_error'",
        "prterun noticed that process rank 2 with PID 4711 on node n1 exited on",
        "signal 6 (Aborted).",
    ]
    assert diagnose_lines(tmp_path / "a", lines).first_failing_rank == 2
    joined = [*lines[:2], "mpirun noticed that process rank 2 with PID 4711 on node n1 exited on signal 6 (Aborted)."]
    assert diagnose_lines(tmp_path / "b", joined).first_failing_rank == 2
