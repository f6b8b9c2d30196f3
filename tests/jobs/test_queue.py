"""SLURM's queue with recorded output: parsing, caching, and checks before a submission (tests/long runs the real SLURM)."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dstui.jobs.control.submit import sharing_problem
from dstui.jobs.queue import scheduler
from dstui.jobs.queue.scheduler import STATES, describe_reason, slurm_offers, state_of
from dstui.jobs.store.events import Notice
from dstui.jobs.store.folder import JobFolder
from dstui.jobs.store.ownership import remember
from dstui.jobs.store.records import JobStatus
from dstui.jobs.store.status import current_status
from dstui.jobs.watch.job_notices import JobNotices
from dstui.machine.slurm_offers import seconds_of
from dstui.machine.snapshot import Machine
from dstui.plan import load
from dstui.render.sbatch import render_sbatch
from tests import recorded_slurm

SQUEUE = """\
7|PENDING|2026-11-23T14:05:00||Resources
8|CANCELLED by 0|N/A||None
9|NODE_FAIL|N/A|h1|NodeDown
10|RUNNING|N/A|h1|None
"""
PLAN = """\
version: 1
job: {script: train.py, args: ["{ds_config}"]}
cluster: {launcher: sbatch, num_nodes: 2, num_gpus: 1, env: {DS_ACCELERATOR: cpu}}
deepspeed: {train_micro_batch_size_per_gpu: 1}
"""


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the file in which the programs of a cluster record their calls."""
    programs = recorded_slurm.cluster(tmp_path / "bin", squeue=SQUEUE, sacct=recorded_slurm.ACCOUNTING)
    monkeypatch.setenv("PATH", f"{programs}:/bin:/usr/bin")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return programs / "asked"


def test_one_query_serves_all_runs_and_processes(asked: Path) -> None:
    found = [scheduler.look(job) for job in ("7", "8", "9", "10", "11") for _ in range(20)]
    assert asked.read_text().split() == ["squeue", "squeue", "sacct"], "its own, waiting and long ended jobs"
    assert found[0] and found[0].words == "waits for free nodes (Resources); estimated start 2026-11-23 14:05:00"
    program = "from dstui.jobs.queue.scheduler import look; print(look('10').state)"
    assert subprocess.check_output([sys.executable, "-c", program], text=True) == "RUNNING\n"
    assert len(asked.read_text().split()) == 3
    assert (gone := scheduler.look("11")) and gone.state == scheduler.FORGOTTEN
    scheduler.look("10", fresh=True)
    assert asked.read_text().count("squeue") == 4


def test_accounting_gives_the_end_of_a_job_that_the_controller_forgot(asked: Path) -> None:
    recorded_slurm.write_programs(asked.parent, squeue="")
    ends = {job: (found.meaning.means, found.meaning.exit_code) for job in map(str, range(2, 11)) if (found := scheduler.look(job))}
    over = dict.fromkeys(("4", "5", "6"), ("ended", None)) | dict.fromkeys(("3", "8"), ("stopped", 143))
    assert ends == over | {"2": ("failed", 143), "7": ("failed", 124), "9": ("failed", 1), "10": ("failed", 137)}
    assert asked.read_text().split() == ["squeue", "sacct"]


def test_position_in_the_queue_is_shown() -> None:
    words = scheduler.QueuedJob("PENDING", reason="Priority", place="3").words
    assert words == "waits for jobs of higher priority (Priority); 3rd in line"
    assert [scheduler.ordinal(number) for number in (2, 11, 12, 21, 113)] == ["2nd", "11th", "12th", "21st", "113th"]


def test_cluster_description_is_queried_once(asked: Path) -> None:
    offers = slurm_offers()
    assert offers and slurm_offers() == offers and sorted(asked.read_text().split()) == ["sacctmgr", "scontrol", "sinfo"]
    assert [one.limits for one in offers.partitions] == ["16 nodes x 8 GPUs, at most 2-00:00:00", "2 nodes x 8 GPUs, at most 00:30:00"]
    assert (offers.accounts, offers.qos, offers.partitions[0].gres) == (("physics", "guests"), ("normal", "high"), ("gpu:h100:8",))


def test_times_are_parsed_as_by_sbatch() -> None:
    texts = {
        "90": 5400,
        "1:30": 90,
        "12:00:00": 43200,
        "2-12": 216000,
        "1-0:30": 88200,
        "1-00:00:30": 86430,
        "UNLIMITED": None,
        "12h": None,
    }
    assert {text: seconds_of(text) for text in texts} == texts


@pytest.mark.parametrize(
    ("number", "state", "code"), [("7", "queued", None), ("8", "stopped", 143), ("9", "failed", 1), ("10", "running", None)]
)
def test_slurm_state_is_used_if_no_supervisor_could_write_one(
    asked: Path, tmp_path: Path, number: str, state: str, code: int | None
) -> None:
    assert not asked.exists()
    folder = JobFolder(tmp_path / "job")
    folder.prepare(1)
    written = JobStatus("running", "a-tag", started=time.time(), slurm_job=number)
    folder.write_status(written)
    remember(folder, "job", written.started, "a-tag")
    status = current_status(folder)
    assert status and (status.state, status.exit_code) == (state, code)
    assert (folder.read_status() or written).state == "running", "looking writes nothing"


def test_present_state_of_a_queued_job_follows_what_was_recorded_of_it(tmp_path: Path) -> None:
    folder = JobFolder(tmp_path / "job")
    folder.prepare(1)
    folder.append_event(time.time(), "notice", text="SLURM job 7 is queued")
    notices, status = JobNotices(folder), JobStatus("queued", "a-tag", slurm_job="7", waits="its nodes are allocated")
    notices.update(status)
    assert [event.text for event in notices.read(status, 1) if isinstance(event, Notice)] == [
        "SLURM job 7 is queued",
        "SLURM job 7: its nodes are allocated",
    ]


def test_every_state_has_a_meaning_and_an_unknown_one_ends_nothing() -> None:
    assert all((state.exit_code is not None) == (state.means in ("failed", "stopped")) for state in STATES.values())
    assert state_of("CANCELLED by 1000").means == "stopped" and state_of("REVOKED+") is STATES["REVOKED"]
    assert state_of("SOMETHING_NEW").means == "running"
    assert describe_reason("(None)") == "waits for the scheduler"
    assert "cluster.slurm.time" in describe_reason("PartitionTimeLimit")
    drained = "Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions"
    assert describe_reason(drained).startswith("waits for nodes that are down, drained or reserved")
    assert describe_reason("QOSMaxJobsPerUserLimit").startswith("waits for a limit of your account or QOS")


def test_folder_local_to_each_node_is_reported() -> None:
    assert "Name a shared folder with --run-dir" in sharing_problem(Path("/dev/shm/runs"))
    assert sharing_problem(Path("/home/user")) == ""


def test_queued_plan_is_refused_without_sbatch_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "plan.yaml").write_text(PLAN)
    (tmp_path / "train.py").touch()
    words = [sys.executable, "-m", "dstui", "--headless", "plan.yaml", "--no-preflight", "--run-dir", "job"]
    ran = subprocess.run(words, cwd=tmp_path, env={**os.environ, "PATH": "/nowhere"}, capture_output=True, text=True, check=False)
    assert ran.returncode == 1 and "sbatch is not on the PATH" in ran.stderr, ran.stderr
    assert not (tmp_path / "job").exists()


def test_script_creates_a_folder_if_submitted_by_hand_and_else_uses_the_given_one(tmp_path: Path) -> None:
    plan = load(PLAN + "# it's $HOME and `this`\n", "plan.yaml", str(tmp_path))
    script = render_sbatch(plan, Machine.unprobed(), None, {}).text.replace(f"exec {sys.executable}", "echo")
    ran = [
        subprocess.run(
            ["bash", "-c", script, "job", *words],
            env={"SLURM_JOB_ID": "5", "PATH": os.environ["PATH"]},
            capture_output=True,
            text=True,
            check=True,
        )
        for words in ([], [str(tmp_path / "given")])
    ]
    by_hand = next((tmp_path / "dstui_runs").glob("*-slurm-5"))
    assert (by_hand / "plan.yaml").read_text() == plan.text and by_hand.stat().st_mode & 0o077 == 0
    assert ran[0].stdout.split() == ["-m", "dstui.jobs.control.in_allocation", str(by_hand), str(tmp_path)]
    assert ran[1].stdout.split()[2] == str(tmp_path / "given") and not (tmp_path / "given").exists()
