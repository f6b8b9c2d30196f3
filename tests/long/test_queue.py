"""`cluster.launcher: sbatch` on a real SLURM: every way a queued job can end, from submission to an empty queue."""

from __future__ import annotations

import json
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "hosts"))

import slurm as slurming
from farm import Farm
from remote_job import BEHAVE, RemoteJob

from tests.waiting import wait_for

CLUSTER = "launcher: sbatch, num_nodes: 2, num_gpus: 1, slurm: {partition: all, extra: [--exclusive]}"
TRAIN = "{module: dstui.examples.train_tiny, args: [--steps, '3', --deepspeed_config, '{ds_config}']}"
PREEMPTION = """\
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
SlurmdTimeout=10
PartitionName=all Nodes={hosts} Default=YES MaxTime=INFINITE State=UP
PartitionName=short Nodes={hosts} MaxTime=1 PriorityTier=5 State=UP
"""


@pytest.fixture(scope="module")
def slurm(farm: Farm, tmp_path_factory: pytest.TempPathFactory) -> Iterator[slurming.Slurm]:
    """Start SLURM with two partitions; jobs of `short` have a minute and preempt those of `all`."""
    if reason := slurming.missing():
        pytest.skip(reason)
    with pytest.MonkeyPatch.context() as patch:
        head = slurming.CONFIGURATION.partition("PartitionName=")[0]
        patch.setattr(slurming, "CONFIGURATION", head + PREEMPTION)
        with slurming.Slurm(farm, tmp_path_factory.mktemp("slurm")) as running:
            yield running


ROWS = [("what happens to the job", "SLURM's state", "dstui's", "exit", "attempt", "diagnosis", "in the queue, on nodes")]


@pytest.fixture(scope="module", autouse=True)
def table(request: pytest.FixtureRequest) -> Iterator[None]:
    """Print how each job ended, and what was left of it."""
    yield
    widths = [max(map(len, column)) for column in zip(*ROWS, strict=True)]
    lines = ("  ".join(word.ljust(width) for word, width in zip(row, widths, strict=True)).rstrip() for row in ROWS)
    with request.config.pluginmanager.get_plugin("capturemanager").global_and_fixture_disabled():
        print("", *lines, sep="\n")


def note_row(what: str, job: RemoteJob, slurm: slurming.Slurm) -> None:
    """Record the state of a job at the end of a test, for the table."""
    if not job.folder.status_file.exists():
        return
    status, found = job.status, job.diagnosis()
    cause = (
        f"{found['cause'] or found['kind']}{'' if found['first_failing_rank'] is None else ' of rank ' + str(found['first_failing_rank'])}"
    )
    left = f"{len(queue(slurm))}, {sum(len(job.left(host)) for host in ('login', *job.farm.hosts))}"
    slurms = slurm.state_of(str(status.get("slurm_job"))) or "forgotten"
    ROWS.append((what, slurms, status["state"], str(status["exit_code"]), str(status["attempt"]), cause, left))


@pytest.fixture
def remote_job(farm: Farm, slurm: slurming.Slurm, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[RemoteJob]:
    """Return a job to queue."""
    job = RemoteJob(farm, tmp_path)
    job.environment = slurm.variables
    yield job
    slurm.run("scancel", "--me")
    wait_for(lambda: not queue(slurm), otherwise=job.words)
    note_row(request.node.name.removeprefix("test_").replace("_", " "), job, slurm)
    if job.dstui and job.dstui.poll() is None:
        job.dstui.kill()


def queue(slurm: slurming.Slurm) -> list[str]:
    """Return the numbers of the jobs in the queue."""
    return slurm.run("squeue", "--noheader", "--format=%A").split()


def start(remote_job: RemoteJob, *behaviour: str, cluster: str = CLUSTER, **more: Any) -> None:
    remote_job.start(*behaviour, hosts="", cluster=cluster, env={"OMP_NUM_THREADS": "1"}, **more)


def number(remote_job: RemoteJob) -> str:
    """Return SLURM's number of the job."""
    wait_for(lambda: bool(remote_job.folder.status_file.exists() and remote_job.status.get("slurm_job")), otherwise=remote_job.words)
    return str(remote_job.status["slurm_job"])


def ends_as(slurm: slurming.Slurm, job: str) -> str:
    """Return SLURM's state of a job once all its nodes are free."""
    wait_for(lambda: job not in queue(slurm), otherwise=lambda: slurm.run("squeue"))
    return slurm.state_of(job)


def nothing_left(remote_job: RemoteJob, slurm: slurming.Slurm) -> None:
    """Assert that the queue is empty, and that no node has a process or folder of the job."""
    wait_for(lambda: not queue(slurm), otherwise=lambda: slurm.run("squeue"))
    remote_job.nothing_left()


def test_job_waits_with_a_reason_trains_and_leaves_nothing(remote_job: RemoteJob, slurm: slurming.Slurm) -> None:
    blocking = slurm.run("sbatch", "--parsable", "--nodes=2", "--exclusive", "--output=/dev/null", "--wrap=sleep 600").strip()
    start(remote_job, job=TRAIN)
    job = number(remote_job)
    wait_for(lambda: "waits for free nodes" in (listed := remote_job.run("runs").stdout) and "queued" in listed, 40)
    slurm.run("scancel", blocking)
    code, out, err = remote_job.wait()
    assert code == 0, out + err + remote_job.words()
    assert f"SLURM job {job}: waits for free nodes" in err and "step 3/3 loss" in remote_job.log(0) and "step 3/3 loss" in remote_job.log(1)
    assert remote_job.status["state"] == "succeeded" and {rank["host"] for rank in remote_job.status["ranks"].values()} == {"h1", "h2"}
    assert ends_as(slurm, job) == "COMPLETED"
    nothing_left(remote_job, slurm)


def test_failed_rank_gives_the_jobs_status_and_diagnosis(remote_job: RemoteJob, slurm: slurming.Slurm) -> None:
    start(remote_job, "1:fail RuntimeError broken", "all:hang")
    code, _, err = remote_job.wait()
    assert (code, remote_job.status["state"], ends_as(slurm, number(remote_job))) == (1, "failed", "FAILED"), err + remote_job.words()
    assert remote_job.diagnosis()["first_failing_rank"] == 1
    nothing_left(remote_job, slurm)


def test_job_is_requeued_before_its_time_limit_as_its_next_attempt(remote_job: RemoteJob, slurm: slurming.Slurm) -> None:
    start(remote_job, "all:hang", run="restarts: {max: 1, args: ['all:say again']}")
    remote_job.ready()
    job = number(remote_job)
    slurm.run("scancel", "--batch", "--signal=USR1", job)
    wait_for(lambda: slurm.state_of(job) == "PENDING", otherwise=remote_job.words)
    assert remote_job.status["state"] == "queued" and remote_job.dstui and remote_job.dstui.poll() is None
    slurm.run("scontrol", "update", f"JobId={job}", "StartTime=now+3")
    wait_for(lambda: remote_job.status["attempt"] == 2 and remote_job.status["state"] == "running", otherwise=remote_job.words)
    remote_job.interrupt(signal.SIGINT)
    code, _, err = remote_job.wait()
    assert code == 130 and "the job is queued again" in err, err + remote_job.words()
    nothing_left(remote_job, slurm)


def test_job_past_its_time_limit_has_failed_with_that_reason(remote_job: RemoteJob, slurm: slurming.Slurm) -> None:
    start(remote_job, "all:hang", cluster=CLUSTER.replace("partition: all", "partition: short, time: '1'"))
    remote_job.ready()
    code, _, err = remote_job.wait()
    assert (code, remote_job.status["state"], ends_as(slurm, number(remote_job))) == (124, "failed", "TIMEOUT"), err + remote_job.words()
    assert "raise cluster.slurm.time" in err
    nothing_left(remote_job, slurm)


@pytest.mark.parametrize("waiting", [False, True])
def test_dstui_stop_cancels_a_waiting_or_running_job(remote_job: RemoteJob, slurm: slurming.Slurm, waiting: bool) -> None:
    if waiting:
        slurm.run("sbatch", "--nodes=2", "--exclusive", "--output=/dev/null", "--wrap=sleep 600")
    start(remote_job, "all:hang", run="restarts: {max: 3}")
    job = number(remote_job)
    if not waiting:
        remote_job.ready()
    stopped = remote_job.run("stop", str(remote_job.folder.path))
    assert stopped.returncode == 0 and "is stopped, exit status 143" in stopped.stdout, stopped.stdout + stopped.stderr
    code, _, err = remote_job.wait()
    assert (code, remote_job.status["state"], ends_as(slurm, job)) == (143, "stopped", "CANCELLED"), err + remote_job.words()
    slurm.run("scancel", "--me")
    nothing_left(remote_job, slurm)


def test_job_cancelled_by_somebody_else_is_reported(remote_job: RemoteJob, slurm: slurming.Slurm) -> None:
    start(remote_job, "all:hang")
    remote_job.ready()
    slurm.run("scancel", number(remote_job))
    code, _, err = remote_job.wait()
    assert (code, remote_job.status["state"]) == (143, "stopped") and "cancelled by scancel, not by dstui" in err, err + remote_job.words()
    nothing_left(remote_job, slurm)


def test_preempted_job_waits_again_and_continues_as_its_next_attempt(remote_job: RemoteJob, slurm: slurming.Slurm) -> None:
    start(remote_job, "all:hang", run="restarts: {max: 1}")
    remote_job.ready()
    job = number(remote_job)
    other = slurm.run(
        "sbatch", "--parsable", "--partition=short", "--nodes=2", "--exclusive", "--output=/dev/null", "--wrap=sleep 600"
    ).strip()
    wait_for(lambda: remote_job.status["state"] == "queued", otherwise=remote_job.words)
    assert "preempted" in remote_job.words()
    slurm.run("scancel", other)
    wait_for(lambda: slurm.state_of(job) == "PENDING", otherwise=remote_job.words)
    slurm.run("scontrol", "update", f"JobId={job}", "StartTime=now+3")
    wait_for(lambda: remote_job.status["attempt"] == 2 and remote_job.status["state"] == "running", otherwise=remote_job.words)
    remote_job.run("stop", str(remote_job.folder.path))
    assert remote_job.wait()[0] == 143
    nothing_left(remote_job, slurm)


def test_slurmctld_may_restart_while_a_job_waits_or_runs(remote_job: RemoteJob, slurm: slurming.Slurm) -> None:
    blocking = slurm.run("sbatch", "--parsable", "--nodes=2", "--exclusive", "--output=/dev/null", "--wrap=sleep 600").strip()
    start(remote_job, "all:say ready", f"all:wait {remote_job.path}/go", "all:say done")
    job = number(remote_job)
    slurm.stop_controller()
    wait_for(lambda: "SLURM does not answer" in (listed := remote_job.run("runs").stdout) and "queued" in listed, 60)
    slurm.start_controller()
    wait_for(lambda: "waits for" in remote_job.run("runs").stdout, 60, otherwise=remote_job.words)
    slurm.run("scancel", blocking)
    remote_job.ready()
    slurm.stop_controller()
    wait_for(lambda: "running" in remote_job.run("runs").stdout, 60)
    (remote_job.path / "go").touch()
    wait_for(lambda: remote_job.folder.has_ended, otherwise=remote_job.words)
    slurm.start_controller()
    code, _, err = remote_job.wait()
    assert (code, remote_job.status["state"], ends_as(slurm, job)) == (0, "succeeded", "COMPLETED"), err + remote_job.words()
    assert "done" in remote_job.log(0) and "done" in remote_job.log(1)
    nothing_left(remote_job, slurm)


def test_drained_node_is_reported_and_waited_for(remote_job: RemoteJob, slurm: slurming.Slurm) -> None:
    slurm.run("scontrol", "update", "NodeName=h2", "State=DRAIN", "Reason=test")
    try:
        start(remote_job, "all:say done")
        job = number(remote_job)
        wait_for(
            lambda: "down, drained" in remote_job.run("runs").stdout, otherwise=lambda: slurm.run("squeue") + remote_job.run("runs").stdout
        )
    finally:
        slurm.run("scontrol", "update", "NodeName=h2", "State=RESUME")
    code, _, err = remote_job.wait()
    assert (code, ends_as(slurm, job)) == (0, "COMPLETED"), err + remote_job.words()
    nothing_left(remote_job, slurm)


def test_two_submissions_of_one_plan_are_two_jobs(remote_job: RemoteJob, slurm: slurming.Slurm) -> None:
    other = RemoteJob(remote_job.farm, remote_job.path)
    other.folder, other.environment = type(remote_job.folder)(remote_job.path / "other"), remote_job.environment
    for one in (remote_job, other):
        start(one, "all:say done")
    codes = [one.wait()[0] for one in (remote_job, other)]
    assert codes == [0, 0] and number(remote_job) != number(other), remote_job.words() + other.words()
    for one in (remote_job, other):
        assert "done" in one.log(0) and "done" in one.log(1)
        nothing_left(one, slurm)


@pytest.mark.parametrize("host", ["h1", "h2"])
def test_failed_node_ends_the_job_and_is_named(remote_job: RemoteJob, slurm: slurming.Slurm, host: str) -> None:
    start(remote_job, "all:hang")
    remote_job.ready()
    job = number(remote_job)
    remote_job.farm.cable(host, plugged=False)
    try:
        code, _, err = remote_job.wait()
        assert "failed" in remote_job.run("runs").stdout
    finally:
        remote_job.farm.cable(host, plugged=True)
    assert code == 1 and "a node of it failed" in err, err + remote_job.words()
    assert ends_as(slurm, job) == "NODE_FAIL"
    wait_for(lambda: slurm.run("sinfo", "-h", "-o", "%T %D").split() == ["idle", "2"], otherwise=lambda: slurm.run("sinfo"))
    wait_for(lambda: not remote_job.pids("h1") and not remote_job.pids("h2"))
    wait_for(
        lambda: remote_job.run("stop", str(remote_job.folder.path)) and remote_job.status["state"] == "failed", otherwise=remote_job.words
    )
    assert remote_job.status["exit_code"] == 1, "the next command that may act records SLURM's end once the disconnected supervisor is gone"


def test_submission_refused_by_slurm_is_reported_and_leaves_nothing(remote_job: RemoteJob, slurm: slurming.Slurm) -> None:
    start(remote_job, "all:hang", cluster=CLUSTER.replace("partition: all", "partition: nowhere"))
    code, _, err = remote_job.wait()
    assert code == 2 and "this cluster has no partition nowhere: it has all, short" in err, err
    start(remote_job, "all:hang", cluster=CLUSTER.replace("--exclusive", "--nodelist=nowhere"))
    code, _, err = remote_job.wait()
    assert code == 1 and "Invalid node name specified" in err, err
    assert not remote_job.folder.path.exists() and not queue(slurm)


def test_detached_submission_prints_folder_and_number_and_a_manual_one_leaves_a_folder(
    remote_job: RemoteJob, slurm: slurming.Slurm
) -> None:
    start(remote_job, "all:say done", words=["--detach"])
    code, out, err = remote_job.wait()
    assert (code, out.strip()) == (0, str(remote_job.folder.path)) and f"SLURM job {number(remote_job)}" in err, err
    assert remote_job.ended()["state"] == "succeeded", remote_job.words()
    script = remote_job.run("render", str(remote_job.path / "plan.yaml"), "--only", "sbatch").stdout
    assert script == (remote_job.folder.path / "job.sbatch").read_text()
    (remote_job.path / "by-hand.sbatch").write_text(script)
    job = slurm.run("sbatch", "--parsable", f"--output={remote_job.path}/by-hand.log", str(remote_job.path / "by-hand.sbatch")).strip()
    by_hand = RemoteJob(remote_job.farm, remote_job.path)
    by_hand.folder = type(remote_job.folder)(remote_job.path / f"dstui_runs/far-slurm-{job}")
    assert by_hand.ended()["state"] == "succeeded", by_hand.words()
    assert "done" in by_hand.log(1)
    nothing_left(by_hand, slurm)


def test_watchdog_abort_under_srun_is_the_cause_and_not_the_cancelled_step(remote_job: RemoteJob, slurm: slurming.Slurm) -> None:
    remote_job.start("1:watchdog 4", "0:hang", cluster="launcher: slurm", env={"OMP_NUM_THREADS": "1"})
    code, out, err = remote_job.wait()
    assert remote_job.folder.status_file.exists(), out + err
    told, found = time.time(), remote_job.diagnosis()
    ended = max(json.loads(remote_job.folder.record(rank).read_text())["ended"] for rank in (0, 1))
    assert (found["cause"], found["first_failing_rank"], remote_job.status["exit_code"]) == ("NCCL-WATCHDOG", 1, code), (
        out + err + remote_job.words()
    )
    print(f"watchdog abort under srun, by dstui: {found['confidence']}, {told - ended:.1f} s after the last rank's end")
    assert code == 134
    remote_job.nothing_left()


def test_srun_log_of_a_task_aborted_by_a_watchdog_names_the_watchdog(slurm: slurming.Slurm, tmp_path: Path) -> None:
    rank = f"RANK=$SLURM_PROCID exec {sys.executable} {BEHAVE} '1:watchdog 1' '0:hang'"
    log = slurm.run("srun", "--nodes=2", "--ntasks=2", "--kill-on-bad-exit", "--label", "sh", "-c", rank)
    (tmp_path / "srun.log").write_text(log)
    assert "task 1: Aborted" in log and "CANCELLED" in log, log
    done = slurm.farm.run("login", sys.executable, "-m", "dstui", "diagnose", str(tmp_path / "srun.log"), "--json", env=slurm.variables)
    found = json.loads(done.stdout)
    assert (found["cause"], found["first_failing_rank"]) == ("NCCL-WATCHDOG", 1), log + done.stdout
    print(f"watchdog abort under srun, its own log: {found['confidence']}")
