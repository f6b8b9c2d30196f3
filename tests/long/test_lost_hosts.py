"""Four hosts, of which one is lost permanently while the job runs: how the job ends, what is reported, and what is left.

python -m pytest -n0 -q -s tests/long/test_lost_hosts.py
"""

from __future__ import annotations

import contextlib
import json
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "hosts"))

import farm as farming
import slurm as slurming
from remote_job import RemoteJob

from tests.waiting import wait_for

HOSTS = "h1: 1, h2: 1, h3: 1, h4: 1"
WORKS = ("all:count 100 0.01", "all:hang")
"""Like ranks that train and then wait for one that does not come."""


@contextlib.contextmanager
def job(path: Path, *, shared_tmp: bool = False) -> Iterator[RemoteJob]:
    """Yield a job to start on four new hosts."""
    if reason := farming.missing():
        pytest.skip(reason)
    with farming.Farm(4, shared_tmp=shared_tmp) as farm:
        remote_job = RemoteJob(farm, path)
        yield remote_job
        if remote_job.dstui and remote_job.dstui.poll() is None:
            remote_job.interrupt(signal.SIGTERM)
            remote_job.wait()


def lose(remote_job: RemoteJob) -> float:
    """Wait until every rank waits for the others, then kill h2; return the time."""
    wait_for(lambda: all("99\n" in remote_job.log(rank) for rank in range(4)), otherwise=remote_job.words)
    remote_job.farm.power_off("h2")
    return time.monotonic()


def lost(remote_job: RemoteJob, began: float, limit: float) -> None:
    """Assert that the job has failed because of h2, in time, and that nothing is left of it on the others."""
    code, out, err = remote_job.wait()
    took = time.monotonic() - began
    assert code == 137 and "h2 has been unreachable for" in err and "not confirmed on h2 that nothing is left" in err, out + err
    assert limit < took < limit + 60, took
    assert (remote_job.status["state"], remote_job.status["hosts"]["h2"]["state"]) == ("failed", "unreachable")
    assert "run.host_lost" in remote_job.status["hosts"]["h2"]["problem"]
    assert {remote_job.status["hosts"][host]["state"] for host in ("h1", "h3", "h4")} == {"ended"}
    found = remote_job.diagnosis()
    assert (found["cause"], found["host"], found["first_failing_rank"]) == ("HOST-LOST", "h2", 1)
    remote_job.nothing_left("h2")
    print(f"ended {took:.1f} s after the host had gone, host_lost: {limit:g}")


@pytest.mark.parametrize("shared_tmp", [False, True], ids=["own /tmp", "shared /tmp"])
@pytest.mark.parametrize("launcher", ["ssh", "pdsh", "torchrun"])
def test_permanently_lost_host_ends_the_job(tmp_path: Path, launcher: str, shared_tmp: bool) -> None:
    if launcher == "pdsh" and not shutil.which("pdsh"):
        pytest.skip("pdsh is not installed: .ci/run installs it")
    with job(tmp_path, shared_tmp=shared_tmp) as remote_job:
        remote_job.start(*WORKS, hosts=HOSTS, cluster=f"launcher: {launcher}", run="host_lost: 5")
        lost(remote_job, lose(remote_job), 5)


def test_training_with_a_lost_host_ends(tmp_path: Path) -> None:
    with job(tmp_path) as remote_job:
        training = "{module: dstui.examples.train_tiny, args: [--steps, '100000', --deepspeed_config, '{ds_config}']}"
        remote_job.start(hosts=HOSTS, job=training, run="host_lost: 10")
        wait_for(lambda: all("step 3/" in remote_job.log(rank) for rank in range(4)), 300, otherwise=remote_job.words)
        remote_job.farm.power_off("h2")
        lost(remote_job, time.monotonic(), 10)


def test_lost_host_is_reported_every_minute_until_then(tmp_path: Path) -> None:
    with job(tmp_path) as remote_job:
        remote_job.start(*WORKS, hosts=HOSTS, run="host_lost: 125", words=("--json",))
        lose(remote_job)
        code, out, _ = remote_job.wait()
        events = [event for line in out.splitlines() if (event := json.loads(line))["event"] == "host" and event["host"] == "h2"]
        told = [event for event in events if "seconds" in event]
        assert [(event["state"], round(event["seconds"] / 60)) for event in told] == [("unreachable", 1), ("unreachable", 2), ("lost", 2)]
        assert "h2 has been unreachable for 1 min" in told[0]["text"] and "The job fails after 2 min 05 s" in told[0]["text"]
        assert code == 137
        remote_job.nothing_left("h2")


def test_cut_connection_during_a_healthy_training_ends_nothing(tmp_path: Path) -> None:
    with job(tmp_path) as remote_job:
        go = tmp_path / "go"
        remote_job.start("0:count 2500 0.01", f"all:wait {go}", hosts=HOSTS, run="host_lost: 3")
        remote_job.ready(0, 1, 2, 3)
        remote_job.farm.cable("h2", plugged=False)
        wait_for(lambda: remote_job.status["hosts"]["h2"]["state"] == "unreachable", otherwise=remote_job.words)
        wait_for(lambda: "2499\n" in remote_job.log(0), otherwise=remote_job.words)  # longer than host_lost
        assert remote_job.status["state"] == "running"
        go.touch()
        remote_job.farm.cable("h2", plugged=True)
        code, out, err = remote_job.wait()
        assert code == 0, out + err
        remote_job.nothing_left()


def test_slurm_nodes_are_released(tmp_path: Path) -> None:
    if reason := slurming.missing():
        pytest.skip(reason)
    with job(tmp_path) as remote_job, slurming.Slurm(remote_job.farm, tmp_path / "slurm") as cluster:
        remote_job.environment = cluster.variables
        remote_job.start(*WORKS, hosts=HOSTS, cluster="launcher: slurm", env={"OMP_NUM_THREADS": "1"}, run="host_lost: 5")
        lost(remote_job, lose(remote_job), 5)
        cluster.run("scontrol", "update", "nodename=h2", "state=down", "reason=gone")  # slurmctld finds out by itself after minutes
        wait_for(lambda: cluster.jobs() == [], otherwise=remote_job.words)


def test_ranks_of_a_login_node_are_ended_from_another_one(tmp_path: Path) -> None:
    """The supervisor of ranks on the login node is gone: they are found by their tag, over ssh."""
    with job(tmp_path) as remote_job:
        remote_job.start("all:hang", hosts="localhost: 2", words=("--detach",))
        assert remote_job.wait()[0] == 0
        remote_job.ready()
        remote_job.kill_on("login", "dstui.jobs.supervisor", str(remote_job.folder.path))
        remote_job.silence_since(time.time() - 120)
        stopped = remote_job.run("stop", str(remote_job.folder.path), "--take-over", host="h3")
        assert stopped.returncode == 0, stopped
        assert remote_job.pids("login") == [] and remote_job.status["state"] == "stopped"
