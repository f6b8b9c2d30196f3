"""`cluster.launcher: sbatch` on a real SLURM: every end that a job in a queue may have, from submission to an empty queue."""

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
from far import BEHAVE, Far
from farm import Farm

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
    """SLURM with two partitions; jobs of `short` have a minute and take the nodes from those of `all`."""
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


def note_row(what: str, job: Far, slurm: slurming.Slurm) -> None:
    """Note the state of a job at the end of a test, for the table."""
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
def far(farm: Farm, slurm: slurming.Slurm, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Far]:
    """A job to be queued."""
    job = Far(farm, tmp_path)
    job.environment = slurm.variables
    yield job
    slurm.run("scancel", "--me")
    wait_for(lambda: not queue(slurm), otherwise=job.words)
    note_row(request.node.name.removeprefix("test_").replace("_", " "), job, slurm)
    if job.dstui and job.dstui.poll() is None:
        job.dstui.kill()


def queue(slurm: slurming.Slurm) -> list[str]:
    """The numbers of the jobs in the queue."""
    return slurm.run("squeue", "--noheader", "--format=%A").split()


def start(far: Far, *behaviour: str, cluster: str = CLUSTER, **more: Any) -> None:
    far.start(*behaviour, hosts="", cluster=cluster, env={"OMP_NUM_THREADS": "1"}, **more)


def number(far: Far) -> str:
    """SLURM's number of the job."""
    wait_for(lambda: bool(far.folder.status_file.exists() and far.status.get("slurm_job")), otherwise=far.words)
    return str(far.status["slurm_job"])


def ends_as(slurm: slurming.Slurm, job: str) -> str:
    """SLURM's own state of a job, once all its nodes are free."""
    wait_for(lambda: job not in queue(slurm), otherwise=lambda: slurm.run("squeue"))
    return slurm.state_of(job)


def nothing_left(far: Far, slurm: slurming.Slurm) -> None:
    """An empty queue, no process and no folder on any node."""
    wait_for(lambda: not queue(slurm), otherwise=lambda: slurm.run("squeue"))
    far.nothing_left()


def test_a_job_waits_is_told_why_trains_and_leaves_nothing(far: Far, slurm: slurming.Slurm) -> None:
    blocking = slurm.run("sbatch", "--parsable", "--nodes=2", "--exclusive", "--output=/dev/null", "--wrap=sleep 600").strip()
    start(far, job=TRAIN)
    job = number(far)
    wait_for(lambda: "waits for free nodes" in (listed := far.run("runs").stdout) and "queued" in listed, 40)
    slurm.run("scancel", blocking)
    code, out, err = far.wait()
    assert code == 0, out + err + far.words()
    assert f"SLURM job {job}: waits for free nodes" in err and "step 3/3 loss" in far.log(0) and "step 3/3 loss" in far.log(1)
    assert far.status["state"] == "succeeded" and {rank["host"] for rank in far.status["ranks"].values()} == {"h1", "h2"}
    assert ends_as(slurm, job) == "COMPLETED"
    nothing_left(far, slurm)


def test_a_rank_that_fails_is_the_jobs_status_and_its_diagnosis(far: Far, slurm: slurming.Slurm) -> None:
    start(far, "1:fail RuntimeError broken", "all:hang")
    code, _, err = far.wait()
    assert (code, far.status["state"], ends_as(slurm, number(far))) == (1, "failed", "FAILED"), err + far.words()
    assert far.diagnosis()["first_failing_rank"] == 1
    nothing_left(far, slurm)


def test_before_its_time_is_up_a_job_is_queued_again_as_its_next_attempt(far: Far, slurm: slurming.Slurm) -> None:
    start(far, "all:hang", run="restarts: {max: 1, args: ['all:say again']}")
    far.ready()
    job = number(far)
    slurm.run("scancel", "--batch", "--signal=USR1", job)
    wait_for(lambda: slurm.state_of(job) == "PENDING", otherwise=far.words)
    assert far.status["state"] == "queued" and far.dstui and far.dstui.poll() is None
    slurm.run("scontrol", "update", f"JobId={job}", "StartTime=now+3")
    wait_for(lambda: far.status["attempt"] == 2 and far.status["state"] == "running", otherwise=far.words)
    far.interrupt(signal.SIGINT)
    code, _, err = far.wait()
    assert code == 130 and "the job is queued again" in err, err + far.words()
    nothing_left(far, slurm)


def test_a_job_whose_time_is_up_has_failed_and_is_told_why(far: Far, slurm: slurming.Slurm) -> None:
    start(far, "all:hang", cluster=CLUSTER.replace("partition: all", "partition: short, time: '1'"))
    far.ready()
    code, _, err = far.wait()
    assert (code, far.status["state"], ends_as(slurm, number(far))) == (124, "failed", "TIMEOUT"), err + far.words()
    assert "raise cluster.slurm.time" in err
    nothing_left(far, slurm)


@pytest.mark.parametrize("waiting", [False, True])
def test_dstui_stop_cancels_a_job_waiting_or_running(far: Far, slurm: slurming.Slurm, waiting: bool) -> None:
    if waiting:
        slurm.run("sbatch", "--nodes=2", "--exclusive", "--output=/dev/null", "--wrap=sleep 600")
    start(far, "all:hang", run="restarts: {max: 3}")
    job = number(far)
    if not waiting:
        far.ready()
    stopped = far.run("stop", str(far.folder.path))
    assert stopped.returncode == 0 and "is stopped: stopped, exit status 143" in stopped.stdout, stopped.stdout + stopped.stderr
    code, _, err = far.wait()
    assert (code, far.status["state"], ends_as(slurm, job)) == (143, "stopped", "CANCELLED"), err + far.words()
    slurm.run("scancel", "--me")
    nothing_left(far, slurm)


def test_a_job_that_somebody_else_cancels_is_told_so(far: Far, slurm: slurming.Slurm) -> None:
    start(far, "all:hang")
    far.ready()
    slurm.run("scancel", number(far))
    code, _, err = far.wait()
    assert (code, far.status["state"]) == (143, "stopped") and "cancelled by scancel, not by dstui" in err, err + far.words()
    nothing_left(far, slurm)


def test_a_preempted_job_waits_again_and_goes_on_as_its_next_attempt(far: Far, slurm: slurming.Slurm) -> None:
    start(far, "all:hang", run="restarts: {max: 1}")
    far.ready()
    job = number(far)
    other = slurm.run(
        "sbatch", "--parsable", "--partition=short", "--nodes=2", "--exclusive", "--output=/dev/null", "--wrap=sleep 600"
    ).strip()
    wait_for(lambda: far.status["state"] == "queued", otherwise=far.words)
    assert "preempted" in far.words()
    slurm.run("scancel", other)
    wait_for(lambda: slurm.state_of(job) == "PENDING", otherwise=far.words)
    slurm.run("scontrol", "update", f"JobId={job}", "StartTime=now+3")
    wait_for(lambda: far.status["attempt"] == 2 and far.status["state"] == "running", otherwise=far.words)
    far.run("stop", str(far.folder.path))
    assert far.wait()[0] == 143
    nothing_left(far, slurm)


def test_slurmctld_may_restart_while_a_job_waits_and_while_it_runs(far: Far, slurm: slurming.Slurm) -> None:
    blocking = slurm.run("sbatch", "--parsable", "--nodes=2", "--exclusive", "--output=/dev/null", "--wrap=sleep 600").strip()
    start(far, "all:say ready", f"all:wait {far.path}/go", "all:say done")
    job = number(far)
    slurm.stop_controller()
    wait_for(lambda: "SLURM does not answer" in (listed := far.run("runs").stdout) and "queued" in listed, 60)
    slurm.start_controller()
    wait_for(lambda: "waits for" in far.run("runs").stdout, 60, otherwise=far.words)
    slurm.run("scancel", blocking)
    far.ready()
    slurm.stop_controller()
    wait_for(lambda: "running" in far.run("runs").stdout, 60)
    (far.path / "go").touch()
    wait_for(lambda: far.folder.has_ended, otherwise=far.words)
    slurm.start_controller()
    code, _, err = far.wait()
    assert (code, far.status["state"], ends_as(slurm, job)) == (0, "succeeded", "COMPLETED"), err + far.words()
    assert "done" in far.log(0) and "done" in far.log(1)
    nothing_left(far, slurm)


def test_a_drained_node_is_told_and_waited_for(far: Far, slurm: slurming.Slurm) -> None:
    slurm.run("scontrol", "update", "NodeName=h2", "State=DRAIN", "Reason=test")
    try:
        start(far, "all:say done")
        job = number(far)
        wait_for(lambda: "down, drained" in far.run("runs").stdout, otherwise=lambda: slurm.run("squeue") + far.run("runs").stdout)
    finally:
        slurm.run("scontrol", "update", "NodeName=h2", "State=RESUME")
    code, _, err = far.wait()
    assert (code, ends_as(slurm, job)) == (0, "COMPLETED"), err + far.words()
    nothing_left(far, slurm)


def test_two_submissions_of_one_plan_are_two_jobs(far: Far, slurm: slurming.Slurm) -> None:
    other = Far(far.farm, far.path)
    other.folder, other.environment = type(far.folder)(far.path / "other"), far.environment
    for one in (far, other):
        start(one, "all:say done")
    codes = [one.wait()[0] for one in (far, other)]
    assert codes == [0, 0] and number(far) != number(other), far.words() + other.words()
    for one in (far, other):
        assert "done" in one.log(0) and "done" in one.log(1)
        nothing_left(one, slurm)


@pytest.mark.parametrize("host", ["h1", "h2"])
def test_a_node_that_fails_ends_the_job_and_is_named(far: Far, slurm: slurming.Slurm, host: str) -> None:
    start(far, "all:hang")
    far.ready()
    job = number(far)
    far.farm.cable(host, plugged=False)
    try:
        code, _, err = far.wait()
        assert "failed" in far.run("runs").stdout
    finally:
        far.farm.cable(host, plugged=True)
    assert code == 1 and "a node of it failed" in err, err + far.words()
    assert ends_as(slurm, job) == "NODE_FAIL"
    wait_for(lambda: slurm.run("sinfo", "-h", "-o", "%T %D").split() == ["idle", "2"], otherwise=lambda: slurm.run("sinfo"))
    wait_for(lambda: not far.pids("h1") and not far.pids("h2"))
    wait_for(lambda: far.run("stop", str(far.folder.path)) and far.status["state"] == "failed", otherwise=far.words)
    assert far.status["exit_code"] == 1, "who acts next writes the end that SLURM made, once the supervisor that was cut off is gone"


def test_what_slurm_refuses_is_told_and_leaves_nothing(far: Far, slurm: slurming.Slurm) -> None:
    start(far, "all:hang", cluster=CLUSTER.replace("partition: all", "partition: nowhere"))
    code, _, err = far.wait()
    assert code == 2 and "this cluster has no partition nowhere: it has all, short" in err, err
    start(far, "all:hang", cluster=CLUSTER.replace("--exclusive", "--nodelist=nowhere"))
    code, _, err = far.wait()
    assert code == 1 and "Invalid node name specified" in err, err
    assert not far.folder.path.exists() and not queue(slurm)


def test_detached_it_prints_the_folder_and_the_number_and_a_script_by_hand_leaves_a_folder_too(far: Far, slurm: slurming.Slurm) -> None:
    start(far, "all:say done", words=["--detach"])
    code, out, err = far.wait()
    assert (code, out.strip()) == (0, str(far.folder.path)) and f"SLURM job {number(far)}" in err, err
    assert far.ended()["state"] == "succeeded", far.words()
    script = far.run("render", str(far.path / "plan.yaml"), "--only", "sbatch").stdout
    assert script == (far.folder.path / "job.sbatch").read_text()
    (far.path / "by-hand.sbatch").write_text(script)
    job = slurm.run("sbatch", "--parsable", f"--output={far.path}/by-hand.log", str(far.path / "by-hand.sbatch")).strip()
    by_hand = Far(far.farm, far.path)
    by_hand.folder = type(far.folder)(far.path / f"dstui_runs/far-slurm-{job}")
    assert by_hand.ended()["state"] == "succeeded", by_hand.words()
    assert "done" in by_hand.log(1)
    nothing_left(by_hand, slurm)


def test_a_watchdog_that_aborts_its_rank_under_srun_is_the_cause_and_not_the_cancelled_step(far: Far, slurm: slurming.Slurm) -> None:
    far.start("1:watchdog 4", "0:hang", cluster="launcher: slurm", env={"OMP_NUM_THREADS": "1"})
    code, out, err = far.wait()
    assert far.folder.status_file.exists(), out + err
    told, found = time.time(), far.diagnosis()
    ended = max(json.loads(far.folder.record(rank).read_text())["ended"] for rank in (0, 1))
    assert (found["cause"], found["first_failing_rank"], far.status["exit_code"]) == ("NCCL-WATCHDOG", 1, code), out + err + far.words()
    print(f"watchdog abort under srun, by dstui: {found['confidence']}, {told - ended:.1f} s after the last rank's end")
    assert code == 134
    far.nothing_left()


def test_the_log_of_an_srun_whose_task_is_aborted_by_a_watchdog_names_the_watchdog(slurm: slurming.Slurm, tmp_path: Path) -> None:
    rank = f"RANK=$SLURM_PROCID exec {sys.executable} {BEHAVE} '1:watchdog 1' '0:hang'"
    log = slurm.run("srun", "--nodes=2", "--ntasks=2", "--kill-on-bad-exit", "--label", "sh", "-c", rank)
    (tmp_path / "srun.log").write_text(log)
    assert "task 1: Aborted" in log and "CANCELLED" in log, log
    done = slurm.farm.run("login", sys.executable, "-m", "dstui", "diagnose", str(tmp_path / "srun.log"), "--json", env=slurm.variables)
    found = json.loads(done.stdout)
    assert (found["cause"], found["first_failing_rank"]) == ("NCCL-WATCHDOG", 1), log + done.stdout
    print(f"watchdog abort under srun, its own log: {found['confidence']}")
