"""Diagnosis of dstui's jobs: rank records and Plan add to the logs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dstui.cli import main
from dstui.diagnosis import diagnose, diagnose_job, report
from dstui.jobs.store.folder import JobFolder
from tests.diagnosis.crash_texts import SAMPLES, fallout, traceback
from tests.jobs.lab import memory_cgroup
from tests.jobs.made import PLAN, make_job


def job(path: Path, logs: dict[int, list[str]], ends: dict[int, tuple[int, float]], plan: str = PLAN, **status: Any) -> JobFolder:
    """Write a job folder whose ranks ended like this: exit status, and seconds after the start."""
    text = {rank: "".join(f"{line.partition(']: ')[2] or line}\n" for line in lines) for rank, lines in logs.items()}
    folder = make_job(path, plan, text, state=status.pop("state", "failed"), **status)
    began = time.time() - 100
    for rank, (code, after) in ends.items():
        record = {
            "rank": rank,
            "host": "h1",
            "pid": 1,
            "started": began,
            "ended": began + after,
            "exit_code": code,
            "world_size": len(logs),
        }
        folder.record(rank).write_text(json.dumps(record))
    return folder


def test_failed_rank_is_named_though_another_ended_before_it(tmp_path: Path) -> None:
    """A rank that reports its peer's death may end while the peer is still shutting down."""
    folder = job(tmp_path / "job", {0: fallout(0), 1: traceback(1, "ValueError: a bad shard")}, {0: (1, 5.0), 1: (1, 6.0)})
    found = diagnose_job(folder)
    assert (found.cause, found.first_failing_rank, found.host, found.confidence) == ("USER-PY", 1, "h1", "high")
    assert "rank 1 on h1" in report(found)
    assert found.evidence[-1].text.startswith("rank")


def test_cause_of_the_rank_that_ended_first_comes_first(tmp_path: Path) -> None:
    logs = {0: traceback(0, SAMPLES["OOM-GPU"][0]), 1: traceback(1, "ValueError: a bad shard")}
    found = diagnose_job(job(tmp_path / "a", logs, {0: (1, 9.0), 1: (1, 5.0)}))
    assert (found.cause, found.first_failing_rank, found.others) == ("USER-PY", 1, ("OOM-GPU",))
    found = diagnose_job(job(tmp_path / "b", logs, {0: (1, 5.0), 1: (1, 9.0)}))
    assert (found.cause, found.first_failing_rank, found.others) == ("OOM-GPU", 0, ("USER-PY",))


@pytest.mark.parametrize(
    ("code", "cause"), [(137, "KILLED-UNKNOWN"), (139, "SIGSEGV"), (135, "SIGBUS-SHM"), (134, "SIGABRT"), (3, "EARLY-EXIT")]
)
def test_end_without_output_is_diagnosed_by_its_record(tmp_path: Path, code: int, cause: str) -> None:
    found = diagnose_job(
        job(tmp_path / "job", {0: fallout(0), 1: ["step 1 loss 2.0"], 2: ["step 1"]}, {0: (1, 6.0), 1: (code, 5.0), 2: (143, 7.0)})
    )
    assert (found.cause, found.first_failing_rank) == (cause, 1)


def test_ranks_killed_by_the_launcher_after_a_failure_are_not_the_cause(tmp_path: Path) -> None:
    found = diagnose_job(job(tmp_path / "job", {0: ["step 1"], 1: ["step 1"]}, {0: (137, 9.0), 1: (139, 5.0)}))
    assert (found.cause, found.first_failing_rank, found.others) == ("SIGSEGV", 1, ())


EAT = """
import os, sys
open(sys.argv[1] + "/cgroup.procs", "w").write(str(os.getpid()))
memory = bytearray(1 << 30)
for at in range(0, 1 << 30, 4096):
    memory[at] = 1
"""


@pytest.fixture
def small_memory() -> Iterator[Path]:
    """Create a cgroup with 64 MB."""
    with memory_cgroup(64 << 20) as group:
        yield group


@pytest.mark.launcher
def test_real_oom_kill_is_host_memory_by_the_kernels_count(tmp_path: Path, small_memory: Path) -> None:
    if not os.access("/dev/kmsg", os.R_OK):
        pytest.skip("the kernel's log is not readable here")
    rank = subprocess.Popen([sys.executable, "-c", EAT, str(small_memory)])
    assert rank.wait() == -9
    folder = job(tmp_path / "job", {0: fallout(0), 1: ["step 1"]}, {0: (1, 6.0)})
    record = {"rank": 1, "host": os.uname().nodename, "pid": rank.pid, "started": time.time() - 9, "ended": time.time(), "exit_code": 137}
    folder.record(1).write_text(json.dumps(record))
    found = diagnose_job(folder)
    assert (found.cause, found.first_failing_rank, found.confidence) == ("OOM-HOST", 1, "high")
    assert found.evidence[0].file == "/dev/kmsg"
    folder.record(1).write_text(json.dumps({**record, "pid": os.getpid()}))
    assert diagnose_job(folder).cause == "KILLED-UNKNOWN", "the kernel names another process"


def test_stopped_job_is_a_stop_whatever_its_ranks_printed(tmp_path: Path) -> None:
    folder = job(tmp_path / "job", {0: fallout(0), 1: traceback(1, "KeyboardInterrupt")}, {0: (143, 5.0), 1: (130, 5.0)}, state="stopped")
    folder.stop_file.write_text(json.dumps({"exit_code": 143, "by": 4711}))
    os.utime(folder.stop_file, (time.time() - 96,) * 2)
    found = diagnose_job(folder)
    assert (found.cause, found.kind, found.confidence, found.first_failing_rank) == ("CTRL-C", "stop", "high", None)
    folder.stop_file.write_text(json.dumps({"exit_code": 129, "by": 4711}))
    os.utime(folder.stop_file, (time.time() - 96,) * 2)
    assert diagnose_job(folder).cause == "SIGHUP"
    folder.stop_file.unlink()
    event = {"t": time.time() - 96, "event": "notice", "text": "SLURM job 2: it was cancelled by scancel, not by dstui", "stops": True}
    folder.events_file.write_text(json.dumps(event) + "\n")
    found = diagnose_job(folder)
    assert (found.cause, found.kind, found.confidence) == ("SLURM-CANCEL", "stop", "high"), "the scheduler ended it"


def test_failure_before_the_stop_is_the_cause(tmp_path: Path) -> None:
    folder = job(
        tmp_path / "job", {0: ["step 1"], 1: traceback(1, "ValueError: a bad shard")}, {0: (143, 9.0), 1: (1, 2.0)}, state="stopped"
    )
    folder.stop_file.write_text(json.dumps({"exit_code": 143, "by": 4711}))
    os.utime(folder.stop_file, (time.time() - 95,) * 2)
    found = diagnose_job(folder)
    assert (found.cause, found.first_failing_rank) == ("USER-PY", 1)


def test_key_ignored_by_deepspeed_is_reported_for_a_successful_run(tmp_path: Path) -> None:
    well = {0: (0, 5.0), 1: (0, 5.0)}
    logs = {0: ["step 1 loss 2.0"], 1: ["step 1 loss 2.0"]}
    found = diagnose_job(job(tmp_path / "a", logs, well, state="succeeded"))
    assert (found.cause, found.kind, found.confidence) == ("SUCCESS", "success", "high")
    found = diagnose_job(job(tmp_path / "b", logs, well, PLAN.replace("bf16:", "gradient_cliping: 1.0\n  bf16:"), state="succeeded"))
    assert (found.cause, found.first_failing_rank) == ("SILENT-TYPO", None)
    assert "gradient_cliping" in found.title
    assert found.fixes and found.fixes[0].patch


def test_fix_is_an_edit_of_the_jobs_plan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = job(tmp_path / "job", {0: traceback(0, SAMPLES["OOM-GPU"][0]), 1: fallout(1)}, {0: (1, 5.0), 1: (1, 6.0)})
    assert main(["diagnose", str(folder.path), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["fixes"][0]["patch"] == [
        {"op": "replace", "path": "/deepspeed/train_micro_batch_size_per_gpu", "value": 2},
        {"op": "add", "path": "/deepspeed/gradient_accumulation_steps", "value": 2},
    ]
    assert told["fixes"][1]["patch"] == [{"op": "replace", "path": "/deepspeed/zero_optimization/stage", "value": 3}]


def test_running_job_has_not_succeeded(tmp_path: Path) -> None:
    found = diagnose_job(job(tmp_path / "job", {0: ["step 1 loss 2.0"], 1: ["step 1 loss 2.0"]}, {}, state="running", ranks={}))
    assert (found.cause, found.kind) == (None, None)
    assert "still runs" in report(found) and not found.could_be


def test_job_failed_without_output_has_failed(tmp_path: Path) -> None:
    folder = job(tmp_path / "job", {0: ["step 1"], 1: ["step 1"]}, {}, state="failed", ranks={})
    for rank in range(2):
        folder.record(rank).unlink()
    found = diagnose_job(folder)
    assert (found.cause, found.kind) == (None, "failure")
    assert "Nothing in the logs says why" in report(found)


def test_failed_job_whose_ranks_ended_well_has_failed(tmp_path: Path) -> None:
    done = ["step 1 loss 2.0", "Training completed."]
    found = diagnose_job(job(tmp_path / "job", {0: done, 1: done}, {0: (0, 2.0), 1: (0, 2.0)}, state="failed", exit_code=1))
    assert (found.cause, found.kind) == (None, "failure")
    assert "Nothing in the logs says why" in report(found)


def test_incomplete_job_folder_is_diagnosed(tmp_path: Path) -> None:
    folder = job(tmp_path / "job", {0: ["step 1"], 1: traceback(1, "ValueError: a bad shard")}, {1: (1, 2.0)})
    folder.record(0).write_text('{"rank": 0, "ho')
    (folder.path / "plan.yaml").unlink()
    assert diagnose_job(folder).cause == "USER-PY"
    folder.status_file.write_text('{"state": "fai')
    assert diagnose([folder.path]).cause == "USER-PY"
    for log in (folder.path / "logs").iterdir():
        log.unlink()
    assert diagnose([folder.path]).cause in (None, "EARLY-EXIT")


@pytest.mark.launcher
@pytest.mark.scenario("one_rank_is_killed")
def test_real_killed_rank_is_named(outcome: dict[str, Any]) -> None:
    found = diagnose_job(outcome["folder"])
    assert (found.cause, found.first_failing_rank) == ("KILLED-UNKNOWN", 1)
    assert "rank 1" in report(found)


@pytest.mark.launcher
@pytest.mark.scenario("one_rank_exits")
def test_real_rank_that_exited_is_named(outcome: dict[str, Any]) -> None:
    found = diagnose_job(outcome["folder"])
    assert (found.cause, found.first_failing_rank) == ("EARLY-EXIT", 1)


@pytest.mark.launcher
@pytest.mark.scenario("prints_everything")
def test_real_successful_job_is_successful(outcome: dict[str, Any]) -> None:
    assert diagnose_job(outcome["folder"]).kind == "success"


@pytest.mark.launcher
@pytest.mark.scenario("stopped")
def test_real_stop_is_a_stop(outcome: dict[str, Any]) -> None:
    assert diagnose_job(outcome["folder"]).kind == "stop"


@pytest.mark.launcher
@pytest.mark.scenario("no_rank_starts")
def test_real_launcher_error_belongs_to_no_rank(outcome: dict[str, Any]) -> None:
    found = diagnose_job(outcome["folder"])
    assert (found.kind, found.first_failing_rank) == ("failure", None)
    assert any("--nonsense" in line.text for line in found.evidence)
