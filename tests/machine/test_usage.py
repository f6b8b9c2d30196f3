"""Resource use of each rank in real jobs: a rank's GPU is found by any naming, and a CPU rank is its process."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import fakenvml
import pytest

from dstui.jobs.control.start import start
from dstui.jobs.control.stop import stop
from dstui.jobs.store.folder import JobFolder, read_json
from dstui.jobs.store.status import initial
from dstui.jobs.watch.usage import Sampler, Usage, summarise_usage
from dstui.jobs.watch.usage_history import UsageHistory, read_history
from dstui.machine.probe import probe
from dstui.machine.snapshot import Machine
from dstui.plan import load
from dstui.render.target import Target
from tests.job_json import write_status_json
from tests.owned import add_to_index
from tests.waiting import wait_for

MIB, GIB = 1 << 20, 1 << 30
SLEEPER = "import os, time\nprint(os.environ.get('CUDA_VISIBLE_DEVICES'), flush=True)\ntime.sleep(600)\n"
PLAN = "version: 1\njob: {{script: train.py}}\ncluster: {cluster}\ndeepspeed: {{train_micro_batch_size_per_gpu: 1}}\n"


def launched(tmp_path: Path, machine: Machine, cluster: str) -> JobFolder:
    (tmp_path / "train.py").write_text(SLEEPER)
    return start(Target(load(PLAN.format(cluster=cluster), "plan.yaml", str(tmp_path)), machine), run_dir=tmp_path / "job")


@pytest.mark.launcher
def test_ranks_on_gpus_1_and_3_use_these(library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = "= nvmlDeviceGetUtilizationRates 3 - 97 40\n= nvmlDeviceGetCurrentClocksEventReasons 3 - 4\n"
    (tmp_path / "profile").write_text(lines + fakenvml.profile("a100-half-of-a-board"))
    for name, value in {
        "LD_LIBRARY_PATH": library,
        "FAKENVML_PROFILE": tmp_path / "profile",
        "DS_ACCELERATOR": "cpu",
        "LOCAL_SIZE": 4,
    }.items():
        monkeypatch.setenv(name, str(value))
    machine = probe(60.0)
    assert len(machine.gpus) == 4
    folder = launched(tmp_path, machine, "{include: 'localhost:1,3'}")
    sampler = Sampler(folder, 0.05, UsageHistory(folder.path).add)
    try:
        wait_for(lambda: len(sampler.latest) == 2 and not sampler.note)
        assert [usage.device for _, usage in sorted(sampler.latest.items())] == [1, 3]
        assert sampler.latest[0] == Usage("GPU", 7, 601 * MIB, 100.0, 1, capacity=80 * GIB, temperature=36)
        assert re.fullmatch("GPU 97 %  60. MB  100 W", str(sampler.latest[1]))
        assert re.fullmatch("2 GPUs 52 %  60. MB  200 W", summarise_usage(sampler.latest.values()))
        wait_for(lambda: read_history(folder.path).samples.get(1))
        kept = read_history(folder.path).samples[1][-1]
        assert (kept.load, kept.capacity, kept.throttle) == (97, 80 * GIB, ("power cap",))
    finally:
        assert not stop(folder).left
        sampler.close()


@pytest.mark.launcher
def test_gpus_of_a_remote_host_are_reported_by_its_agent(library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "profile").write_text("= nvmlDeviceGetUtilizationRates 1 - 97 40\n" + fakenvml.profile("a100-half-of-a-board"))
    for name, value in {"LD_LIBRARY_PATH": library, "FAKENVML_PROFILE": tmp_path / "profile"}.items():
        monkeypatch.setenv(name, str(value))
    folder = launched(tmp_path, probe(60.0), "{hosts: {localhost: 2}, launcher: ssh}")
    sampler = Sampler(folder, 0.05)
    try:
        wait_for(lambda: len(sampler.latest) == 2, 60)
        assert sampler.latest[1] == Usage("GPU", 97, 601 * MIB, 100.0, 1, host="localhost", capacity=80 * GIB, temperature=36)
        assert re.fullmatch("2 GPUs 52 %  60. MB  200 W", summarise_usage(sampler.latest.values())) and sampler.note == ""
    finally:
        assert not stop(folder).left
        sampler.close()


def test_gpus_with_equal_numbers_on_two_hosts_are_two() -> None:
    assert summarise_usage([Usage("GPU", 50, GIB, 100.0, 0, host=host) for host in ("h1", "h2")]) == "2 GPUs 50 %  1.0 GB  200 W"


@pytest.mark.launcher
def test_cpu_rank_is_its_process(tmp_path: Path) -> None:
    folder = launched(tmp_path, Machine.unprobed(), "{hosts: {localhost: 1}}")
    sampler = Sampler(folder, 0.05)
    try:
        wait_for(lambda: sampler.latest.get(0) and sampler.latest[0].load is not None)
        usage = sampler.latest[0]
        assert usage.kind == "CPU" and usage.memory is not None and MIB < usage.memory < GIB
        wait_for(lambda: read_history(folder.path).samples.get(0))  # the supervisor keeps it
    finally:
        assert not stop(folder).left
    wait_for(lambda: not sampler.latest)  # the job has ended, and the sampling with it


def recorded(path: Path, env: dict[str, str], **record: object) -> JobFolder:
    """Write a running job with one rank."""
    folder = add_to_index(JobFolder(path), "tag")
    folder.prepare(1)
    assert folder.lock() is not None
    status = initial("tag", {0: "here"}, None).as_json()
    status["ranks"]["0"]["state"] = "started"
    write_status_json(folder, {**status, "state": "running"})
    folder.launch_file.write_text(json.dumps({"env": env}))
    facts = {"rank": 0, "host": os.uname().nodename, "pid": os.getpid(), "local_rank": 0, "gpus": "0", **record}
    folder.record(0).write_text(json.dumps(facts))
    return folder


def poll_until(folder: JobFolder, ready: Callable[[Sampler], object]) -> Sampler:
    sampler = Sampler(folder, 0.05)
    try:
        wait_for(lambda: ready(sampler))
    finally:
        sampler.close()
    return sampler


def test_missing_driver_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "nothing").mkdir()
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path / "nothing"))
    sampler = poll_until(recorded(tmp_path / "job", {}), lambda sampler: "NVML is not there" in sampler.note)
    assert str(sampler.latest[0]) == "GPU unknown"


@pytest.mark.parametrize(
    ("record", "device"),
    [
        ({"local_rank": 1, "gpus": None}, 1),
        ({"local_rank": 0, "gpus": "1"}, 1),
        ({"local_rank": 1, "gpus": "1"}, 1),
        ({"local_rank": 1, "gpus": "1,0"}, 0),
        ({"local_rank": 1, "gpus": "0"}, 0),
        ({"local_rank": 0, "gpus": "7"}, "CUDA_VISIBLE_DEVICES=7 names no GPU for local rank 0"),
        ({"local_rank": None}, "the rank's record does not say which GPU it has"),
    ],
)
def test_ranks_gpu_is_its_index_in_visible_devices(
    library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, record: dict[str, object], device: int | str
) -> None:
    (tmp_path / "profile").write_text(fakenvml.profile("rtx3090-pair"))
    monkeypatch.setenv("LD_LIBRARY_PATH", str(library))
    monkeypatch.setenv("FAKENVML_PROFILE", str(tmp_path / "profile"))
    folder = recorded(tmp_path / "job", {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}, **record)
    sampler = poll_until(folder, lambda s: s.latest.get(0) and (s.latest[0].device is not None or "NVML" not in s.note))
    assert (sampler.latest[0].why or sampler.latest[0].device) == device


def test_rank_on_another_host_is_not_sampled_and_reported(tmp_path: Path) -> None:
    sampler = poll_until(recorded(tmp_path / "job", {"DS_ACCELERATOR": "cpu"}, host="worker-7"), lambda sampler: sampler.note)
    assert (sampler.latest, sampler.note) == ({}, "CPU use not known on worker-7")
    folder = recorded(tmp_path / "other", {}, host="worker-7")  # launched without knowing whether the host has GPUs
    sampler = poll_until(folder, lambda sampler: sampler.note)
    assert sampler.note == "GPU use not known on worker-7"
    folder.engine(0).parent.mkdir(parents=True)
    folder.engine(0).write_text('{"is": "initialize", "t": 1.0, "device": "cpu"}\n')
    sampler = poll_until(folder, lambda sampler: "CPU" in sampler.note)
    assert sampler.note == "CPU use not known on worker-7"


def test_vanished_process_is_unknown(tmp_path: Path) -> None:
    folder = recorded(tmp_path / "job", {"DS_ACCELERATOR": "cpu"}, pid=2**22 + 1)
    sampler = poll_until(folder, lambda sampler: sampler.note)
    assert "cannot be read" in sampler.note and read_json(folder.record(0))["pid"] == 2**22 + 1


def test_ended_process_gives_no_sample(tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "600"]) as ended:
        folder = recorded(tmp_path / "job", {"DS_ACCELERATOR": "cpu"}, pid=ended.pid)
        sampler = Sampler(folder, 0.02)
        try:
            wait_for(lambda: sampler.latest.get(0))
            ended.kill()  # without wait(), so that it stays in the process table
            wait_for(lambda: not sampler.latest)
            assert sampler.note == ""
        finally:
            sampler.close()
