"""Dumps of PyTorch's flight recorder: which rank was late for which collective, and malicious or broken pickles."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

from dstui.diagnosis import diagnose, report

REAL = Path(__file__).parent / "flight_recorder"
"""Written by torch 2.13 (`_dump_fr_trace`): three gloo ranks, of which rank 1 skipped the fourth all_reduce; paths were replaced."""
WATCHDOG = (
    "[rank0]:[E1124 10:11:12.345 ProcessGroupNCCL.cpp:616] [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=4, "
    "OpType=ALLREDUCE, NumelIn=4, NumelOut=4, Timeout(ms)=30000) ran for 30001 milliseconds before timing out.\n"
)


def dumped(folder: Path, changes: dict[int, Any]) -> Path:
    """Copy the real dumps and change the last collective of some ranks."""
    for rank in range(3):
        held = pickle.loads((REAL / f"nccl_trace_rank_{rank}").read_bytes())
        held["entries"] = held["entries"][:3]
        held["entries"][-1] |= changes.get(rank, {})
        (folder / f"nccl_trace_rank_{rank}").write_bytes(pickle.dumps(held, 2))
    return folder


def test_rank_missing_in_a_collective_is_named_with_its_line() -> None:
    found = diagnose([REAL])
    assert (found.cause, found.confidence, found.first_failing_rank) == ("HANG", "medium", 1)
    assert "ranks 0, 2 wait in all_reduce 4 (train.py:6 in train_step), which rank 1 has not reached" in " ".join(report(found).split())


def test_dumps_name_the_rank_that_a_timeout_waited_for(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text("step 3 loss 2.0\n" + WATCHDOG)
    assert diagnose([log]).first_failing_rank == 0, "who reported it"
    found = diagnose([log, REAL])
    assert (found.cause, found.first_failing_rank) == ("NCCL-WATCHDOG", 1)
    assert any("which rank 1 has not reached" in note for note in found.notes)


def test_another_collective_with_the_same_number_is_a_mismatch(tmp_path: Path) -> None:
    found = diagnose([dumped(tmp_path, {2: {"profiling_name": "gloo:all_gather"}})])
    assert (found.cause, found.first_failing_rank) == ("HANG-DESYNC", 2)
    assert "number 3 is another one on rank 0, all_reduce 3" in found.evidence[0].text
    larger = diagnose([dumped(tmp_path, {0: {"input_sizes": [[4000]]}})])
    assert (larger.cause, larger.first_failing_rank) == ("HANG-DESYNC", 0)
    assert diagnose([dumped(tmp_path, {})]).cause is None, "all ranks have done the same"


def test_pickle_with_a_call_and_truncated_pickle_are_not_loaded(tmp_path: Path) -> None:
    class Calls:
        def __reduce__(self) -> Any:
            return os.mkdir, (str(tmp_path / "called"),)

    evil, cut = tmp_path / "nccl_trace_rank_0", tmp_path / "nccl_trace_rank_1"
    evil.write_bytes(pickle.dumps({"version": "2.10", "entries": Calls()}, 2))
    cut.write_bytes((REAL / "nccl_trace_rank_1").read_bytes()[:900])
    found = diagnose([tmp_path])
    assert found.cause is None and not (tmp_path / "called").exists()
    assert len([note for note in found.notes if "is not a whole dump" in note]) == 2


def test_dump_with_recursive_lists_is_not_printed(tmp_path: Path) -> None:
    nested: Any = [1]
    for _ in range(60):
        nested = [nested, nested]
    dumped(tmp_path, {0: {"input_sizes": nested}})
    assert diagnose([tmp_path]).cause is None
    (tmp_path / "nccl_trace_rank_1").write_bytes(b"\x80\x02}q\x00X\x07\x00\x00\x00versionr\xff\xff\xff\x7fK\x01s.")
    assert diagnose([tmp_path]).cause is None
