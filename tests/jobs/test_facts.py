"""Facts that prove or rule out a cause: OOM counts of the kernel, /dev/shm, disks, limits, and the senders of signals."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from dstui.diagnosis import Diagnosis, diagnose_job
from dstui.jobs.store.folder import JobFolder
from dstui.jobs.supervisor.resource_facts import ResourceFacts, cgroup_of, kills_in, least, resources
from tests.diagnosis.crash_texts import SAMPLES, fallout, traceback
from tests.job_json import status_json, write_status_json
from tests.jobs.lab import Lab, final_status, memory_cgroup, ready
from tests.jobs.made import make_job
from tests.waiting import wait_for

GIB = 1 << 30
LAUNCH = {"attempt": 1, "oom_kill": 2, "host_oom_kill": 7, "memory_limit": 4 * GIB, "shm_total": GIB, "shm_free": GIB}


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def ended(path: Path, logs: dict[int, list[str]], codes: dict[int, int], **facts: Any) -> Diagnosis:
    """Diagnose a job whose ranks ended like this, one second apart; `facts` were observed at the end, besides those of the launch."""
    folder = make_job(path, logs={rank: "".join(f"{line.partition(']: ')[2] or line}\n" for line in lines) for rank, lines in logs.items()})
    write_status_json(folder, {**status_json(folder), "state": "failed", "exit_code": 1})
    began = time.time() - 100
    for rank, code in codes.items():
        record = {"rank": rank, "host": "h1", "pid": 1, "started": began, "ended": began + rank + 1, "exit_code": code, "world_size": 2}
        folder.record(rank).write_text(json.dumps(record))
    folder.append_event(began, "facts", **LAUNCH)
    for rank in codes:
        folder.append_event(began + rank + 1, "facts", ranks=[rank], **{**LAUNCH, **facts})
    return diagnose_job(folder)


KILLED: tuple[dict[int, list[str]], dict[int, int]] = ({0: ["step 1"], 1: fallout(1)}, {0: 137, 1: 1})


def test_kill_counted_by_the_jobs_cgroup_is_certainly_host_memory(tmp_path: Path) -> None:
    found = ended(tmp_path / "job", *KILLED, oom_kill=3, host_oom_kill=8, memory_peak=4 * GIB)
    assert (found.cause, found.first_failing_rank, found.confidence, found.host) == ("OOM-HOST", 0, "high", "h1")
    assert found.evidence[0].file.endswith("events.jsonl") and found.evidence[0].line == 2
    assert "1 process of the job's cgroup" in found.evidence[0].text and "limit 4 GiB, peak 4 GiB" in found.evidence[0].text


def test_kill_in_a_ranks_own_cgroup_counts(tmp_path: Path) -> None:
    assert ended(tmp_path / "job", *KILLED, killed={"0": 1}).cause == "OOM-HOST"


def test_kill_elsewhere_on_the_host_is_likely_host_memory(tmp_path: Path) -> None:
    found = ended(tmp_path / "job", *KILLED, host_oom_kill=8)
    assert (found.cause, found.first_failing_rank, found.confidence) == ("OOM-HOST", 0, "medium")


def test_kill_that_no_cgroup_counted_has_another_sender(tmp_path: Path) -> None:
    found = ended(tmp_path / "job", *KILLED)
    assert (found.cause, found.first_failing_rank) == ("KILLED-UNKNOWN", 0)
    assert any("not a lack of memory" in note for note in found.notes)
    assert found.could_be == ("SLURM-CANCEL",), "a cause that the facts rule out is no alternative"
    assert not any("oom" in text for text in (found.why, found.confirm, *(fix.text for fix in found.fixes)))


def test_host_memory_is_not_ruled_out_without_kernel_counts(tmp_path: Path) -> None:
    folder = make_job(tmp_path / "job", state="failed")
    folder.record(0).write_text(json.dumps({"rank": 0, "host": "h1", "pid": 1, "ended": 5.0, "exit_code": 137}))
    folder.append_event(1.0, "facts", attempt=1)
    folder.append_event(5.0, "facts", attempt=1, ranks=[0])
    found = diagnose_job(folder)
    assert (found.cause, found.notes) == ("KILLED-UNKNOWN", ())


def test_no_more_ranks_than_counted_are_host_memory(tmp_path: Path) -> None:
    found = ended(tmp_path / "job", {0: ["step 1"], 1: ["step 1"]}, {0: 137, 1: 137}, oom_kill=3)
    assert (found.cause, found.first_failing_rank, found.ranks) == ("OOM-HOST", 0, (0,))


def test_killed_data_loader_worker_is_host_memory_if_counted(tmp_path: Path) -> None:
    worker = traceback(1, "RuntimeError: DataLoader worker (pid 71) is killed by signal: Killed.")
    assert ended(tmp_path / "a", {0: fallout(0), 1: worker}, {0: 1, 1: 1}).cause == "DL-WORKER"
    found = ended(tmp_path / "b", {0: fallout(0), 1: worker}, {0: 1, 1: 1}, oom_kill=3)
    assert (found.cause, found.first_failing_rank, found.confidence) == ("OOM-HOST", 1, "high")


def test_bus_error_is_shared_memory_only_if_it_was_full(tmp_path: Path) -> None:
    logs, codes = {0: ["step 1"], 1: fallout(1)}, {0: 135, 1: 1}
    found = ended(tmp_path / "a", logs, codes, least={"shm_free": 0})
    assert (found.cause, found.first_failing_rank, found.confidence) == ("SIGBUS-SHM", 0, "high")
    assert any("0 KiB of 1 GiB free" in line.text for line in found.evidence)
    found = ended(tmp_path / "b", logs, codes, least={"shm_free": GIB // 2})
    assert (found.cause, found.confidence) == ("SIGBUS-SHM", "medium")
    assert any("/dev/shm was not full (always 512 MiB of 1 GiB free)" in note for note in found.notes)


def test_refused_allocation_on_a_host_with_free_memory_is_no_oom_kill(tmp_path: Path) -> None:
    words = traceback(1, SAMPLES["ALLOC-REFUSED"][0])
    found = ended(tmp_path / "a", {0: fallout(0), 1: words}, {0: 1, 1: 1}, least={"memory_available": 9 * GIB})
    assert (found.cause, found.first_failing_rank) == ("ALLOC-REFUSED", 1)
    assert any("always had 9 GiB" in note and "too large" in note for note in found.notes)
    found = ended(tmp_path / "b", {0: fallout(0), 1: words}, {0: 1, 1: 1}, least={"memory_available": 1 << 20})
    assert found.cause == "ALLOC-REFUSED" and not found.notes


def test_refused_allocation_under_a_process_limit_names_the_limit(tmp_path: Path) -> None:
    words = traceback(1, SAMPLES["ALLOC-REFUSED"][0])
    ended(tmp_path / "a", {0: fallout(0), 1: words}, {0: 1, 1: 1}, least={"memory_available": 9 * GIB})
    ended(tmp_path / "b", {0: fallout(0), 1: traceback(1, "KeyError: 'x'")}, {0: 1, 1: 1})
    for folder in (JobFolder(tmp_path / "a"), JobFolder(tmp_path / "b")):
        folder.record(1).write_text(json.dumps({**json.loads(folder.record(1).read_text()), "limits": {"ulimit -v": 4 * GIB}}))
    found = diagnose_job(JobFolder(tmp_path / "a"))
    assert (found.cause, found.first_failing_rank, found.confidence, found.others) == ("MEMORY-LIMIT", 1, "high", ())
    assert any("4 GiB (ulimit -v)" in line.text for line in found.evidence)
    assert any("alloc_cpu.cpp" in line.text for line in found.evidence)
    assert diagnose_job(JobFolder(tmp_path / "b")).cause == "USER-PY", "a limit that refused nothing is no cause"


def test_full_disk_reports_the_space_left(tmp_path: Path) -> None:
    full = traceback(1, "OSError: [Errno 28] No space left on device")
    found = ended(tmp_path / "job", {0: fallout(0), 1: full}, {0: 1, 1: 1}, least={"disk_free": {"/data": 4096}})
    assert found.cause == "CKPT-DISK" and any("4 KiB in /data" in note for note in found.notes)


def test_disk_too_full_for_any_rank_to_record_its_end_is_named(tmp_path: Path) -> None:
    folder = make_job(tmp_path / "job", logs={0: "", 1: ""})
    ranks = {str(rank): {"host": "localhost", "pid": None, "state": "waiting", "exit_code": None} for rank in (0, 1)}
    write_status_json(folder, {**status_json(folder), "state": "failed", "exit_code": 1, "ranks": ranks, "disk_full": str(tmp_path)})
    for rank in (0, 1):
        folder.record(rank).write_text("")
    found = diagnose_job(folder)
    assert (found.cause, found.first_failing_rank) == ("CKPT-DISK", None) and str(tmp_path) in found.evidence[0].text


def test_invalid_facts_are_ignored(tmp_path: Path) -> None:
    found = ended(tmp_path / "job", *KILLED, oom_kill="many", least=None, killed=None, shm_total=None)
    assert found.cause == "KILLED-UNKNOWN"


V2 = {"proc/7/cgroup": "0::/user/job/rank\n", "cg/user/job/memory.events": "low 0\noom 4\noom_kill 3\noom_group_kill 0\n"}
V1 = {
    "proc/7/cgroup": "5:cpu:/x\n4:memory:/user/job\n0::/\n",
    "cg/memory/user/job/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n",
}


@pytest.mark.parametrize("files", [V1, V2])
def test_cgroup_kills_are_read_in_both_versions_and_from_the_parent(tmp_path: Path, files: dict[str, str]) -> None:
    root = write(tmp_path, files)
    group = cgroup_of(7, root / "proc", root / "cg")
    assert group is not None and group.name == "job"
    assert kills_in(group) == 3
    assert cgroup_of(8, root / "proc", root / "cg") is None
    write(group, {"memory.limit_in_bytes": str((1 << 63) - 4096), "memory.max_usage_in_bytes": "5\n"})
    write(root, {"proc/vmstat": "oom_kill 12\n", "proc/meminfo": "MemFree: 1 kB\nMemAvailable: 3 kB\n"})
    seen = resources(group, [tmp_path], root / "proc", root / "shm")
    assert {name: seen[name] for name in ("oom_kill", "host_oom_kill", "memory_available")} == {
        "oom_kill": 3,
        "host_oom_kill": 12,
        "memory_available": 3072,
    }
    assert "memory_limit" not in seen and "shm_free" not in seen and seen["disk_free"][str(tmp_path)] > 0


def test_lowest_free_space_is_kept() -> None:
    before = least({}, {"shm_free": 9, "memory_available": 2, "disk_free": {"/a": 5}})
    assert least(before, {"shm_free": 3, "memory_available": 4, "disk_free": {"/a": 7, "/b": 1}}) == {
        "shm_free": 3,
        "memory_available": 2,
        "disk_free": {"/a": 5, "/b": 1},
    }


def test_facts_of_this_machine_can_be_read(tmp_path: Path) -> None:
    facts = ResourceFacts([tmp_path, tmp_path / "gone"])
    facts.began(0, os.getpid())
    facts.now()
    found = facts.ended([0])
    assert found["ranks"] == [0] and found["least"]["disk_free"][str(tmp_path)] <= found["disk_free"][str(tmp_path)]


PROGRAM = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from tests.jobs.lab import Lab, final_status
print(final_status(Lab(Path(sys.argv[1])).start("1:eat", "0:hang"))["state"])
"""


@pytest.mark.launcher
def test_real_rank_killed_in_its_cgroup_is_proven_by_the_count(tmp_path: Path) -> None:
    with memory_cgroup(GIB) as group:
        script = f'echo $$ > {group}/cgroup.procs && exec "$@"'
        words = ["sh", "-c", script, "sh", sys.executable, "-c", PROGRAM, str(tmp_path), str(Path(__file__).parents[2])]
        assert subprocess.run(words, capture_output=True, text=True, check=True).stdout == "failed\n"
        found = diagnose_job(JobFolder(tmp_path / "job"))
    assert (found.cause, found.first_failing_rank, found.confidence) == ("OOM-HOST", 1, "high")
    assert any("of the job's cgroup for lack of memory (limit 1 GiB" in line.text for line in found.evidence)


@pytest.mark.launcher
def test_real_rank_limited_by_its_shell_differs_from_an_oom_kill(tmp_path: Path) -> None:
    (tmp_path / "ask.py").write_text("import os\nif os.environ['RANK'] == '1': bytearray(64 << 30)\n")
    program = PROGRAM.replace('"1:eat", "0:hang"', f"job='script: {tmp_path}/ask.py'")
    words = [
        "sh",
        "-c",
        'ulimit -v 50331648 && exec "$@"',
        "sh",
        sys.executable,
        "-c",
        program,
        str(tmp_path),
        str(Path(__file__).parents[2]),
    ]
    assert subprocess.run(words, capture_output=True, text=True, check=True).stdout == "failed\n"
    found = diagnose_job(JobFolder(tmp_path / "job"))
    assert (found.cause, found.first_failing_rank, found.confidence) == ("MEMORY-LIMIT", 1, "high")
    assert any("48 GiB (ulimit -v)" in line.text for line in found.evidence)


@pytest.mark.launcher
def test_real_sender_of_sigterm_to_the_supervisor_is_named(tmp_path: Path) -> None:
    folder = Lab(tmp_path).start("all:hang")
    ready(folder)
    wait_for(lambda: status_json(folder)["state"] == "running")
    supervisor = status_json(folder)["supervisor"]["pid"]
    subprocess.run(["/bin/sh", "-c", f"kill {supervisor}; true"], check=True)
    assert final_status(folder)["state"] == "stopped"
    found = diagnose_job(folder)
    assert (found.cause, found.kind) == ("CTRL-C", "stop")
    assert "SIGTERM from process " in found.evidence[0].text and found.evidence[0].file.endswith("events.jsonl")
