"""The report of NCCL's RAS (`ncclras`, src/ras/client_support.cc of NCCL): which rank launched fewer operations, which did not answer."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.diagnosis.crash_texts import diagnose_lines

HEAD = ["Errors", "======", "", "Warnings", "========", ""]
GPU = "GPU {0} managed by process 4830{0} on node 172.16.64.210"
MISMATCH = ["#0-0 (27a079b828ff1a75) MISMATCH", "  Communicator ranks have different AllReduce operation counts"]


@pytest.mark.parametrize(
    ("counts", "late"),
    [
        (["  31 ranks have launched up to operation 6650", f"  Rank 3 has launched up to operation 6649 -- {GPU.format(3)}"], 3),
        (
            [
                "  31 ranks have launched up to operation 6650",
                "  Rank 7 has not launched any operations -- [process information not found]",
            ],
            7,
        ),
        (["  30 ranks have launched up to operation 12", "  2 ranks have launched up to operation 11", f"  Rank 4 -- {GPU.format(4)}"], 4),
        ([f"  Rank 0 has launched up to operation 4 -- {GPU.format(0)}", f"  Rank 1 has launched up to operation 5 -- {GPU.format(1)}"], 0),
        (["  31 ranks have launched up to operation 8", f"  Rank 2 has launched up to operation 9 -- {GPU.format(2)}"], None),
    ],
)
def test_rank_that_launched_fewer_operations_is_awaited(tmp_path: Path, counts: list[str], late: int | None) -> None:
    found = diagnose_lines(tmp_path / "ras.txt", [*HEAD, *MISMATCH, *counts, ""])
    assert (found.cause, found.first_failing_rank) == (("HANG", late) if late is not None else (None, None))


def test_unresponsive_rank_is_named(tmp_path: Path) -> None:
    text = [*HEAD, "#0-0 (27a079b828ff1a75) INCOMPLETE", "  Missing communicator data from 1 rank", f"  Rank 5 -- {GPU.format(5)}"]
    found = diagnose_lines(tmp_path / "ras.txt", text)
    assert (found.cause, found.first_failing_rank, found.confidence) == ("HANG", 5, "medium")


def test_ranks_of_a_smaller_communicator_are_not_the_runs(tmp_path: Path) -> None:
    text = [*HEAD, "#1-3 (27a079b828ff1a75) INCOMPLETE,MISMATCH", *MISMATCH[1:], "  7 ranks have launched up to operation 6"]
    found = diagnose_lines(tmp_path / "ras.txt", [*text, f"  Rank 3 has launched up to operation 5 -- {GPU.format(3)}"])
    assert (found.cause, found.first_failing_rank) == ("HANG", None)
