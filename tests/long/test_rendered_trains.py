"""What `dstui render` writes trains without dstui on the test hosts: launch.sh from any folder, job.sbatch under a real SLURM."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import slurm as managing
from farm import Farm

SCRIPT = """\
import os, runpy, signal, sys, time
if "--resume" in sys.argv:
    sys.argv.remove("--resume")
elif "--wait" in os.environ.get("HOW", ""):
    print("waiting", flush=True)
    time.sleep(600)
sys.argv[0] = "train_tiny"
runpy.run_module("dstui.examples.train_tiny", run_name="__main__", alter_sys=True)
"""
PLAN = """\
version: 1
name: two hosts
job: {script: train.py, args: [--steps, "2", --deepspeed_config, "{ds_config}"]}
cluster: {hosts: {h1: 1, h2: 1}, env: {DS_ACCELERATOR: cpu, OMP_NUM_THREADS: "1"}}
run: {restarts: {max: 1, args: [--resume]}}
deepspeed:
  train_micro_batch_size_per_gpu: 2
  optimizer: {type: AdamW, params: {lr: 1e-3, torch_adam: true}}
  zero_optimization: {stage: 1}
"""


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """Write a Plan for two hosts, and its script."""
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "plan.yaml").write_text(PLAN)
    return tmp_path


def render(job: Path, *words: str) -> str:
    """Run `dstui render` and return its output."""
    command = [sys.executable, "-m", "dstui", "render", str(job / "plan.yaml"), *words]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def ended(text: str) -> list[str]:
    """Return the ranks that have trained to the end."""
    return sorted(re.findall(r"rank (\d): done", text))


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Enter a folder other than the job's, with files that DeepSpeed must not use."""
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    (folder / "hostfile").write_text("nowhere slots=8\n")
    (folder / ".deepspeed_env").write_text("# DeepSpeed dies of a comment\n")
    monkeypatch.chdir(folder)
    return folder


def moved(job: Path, launcher: str = "") -> Path:
    """Return launch.sh of the Plan with this launcher, in a folder that was rendered elsewhere and moved."""
    (job / "plan.yaml").write_text(PLAN.replace("h2: 1}", f"h2: 1}}, launcher: {launcher}") if launcher else PLAN)
    render(job, "-o", str(job / "out"))
    return Path(shutil.move(job / "out", job / "it's moved"), "launch.sh")


@pytest.mark.usefixtures("elsewhere")
def test_rendered_folder_trains_from_another_machine_and_folder(farm: Farm, job: Path) -> None:
    ran = farm.run("login", "sh", str(moved(job)), timeout=300)
    assert (ran.returncode, ended(ran.stdout)) == (0, ["0", "1"]), ran.stdout + ran.stderr


@pytest.mark.usefixtures("elsewhere")
def test_nossh_script_trains_when_started_by_hand_on_each_host(farm: Farm, job: Path) -> None:
    script = moved(job, "nossh")
    told = farm.run("login", "sh", str(script))
    assert told.returncode == 2 and [line.split(": ")[0] for line in told.stderr.splitlines()[1:]] == ["  on h1", "  on h2"], told
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    with (
        subprocess.Popen(farm.command("h1", ["sh", str(script), "h1"]), **pipes) as first,
        subprocess.Popen(farm.command("h2", ["sh", str(script), "h2"]), **pipes) as second,
    ):
        found = {host: (ran.communicate(timeout=300)[0], ran.returncode) for host, ran in (("h1", first), ("h2", second))}
    assert {host: (ended(text), code) for host, (text, code) in found.items()} == {"h1": (["0"], 0), "h2": (["1"], 0)}, found


@pytest.fixture
def slurm(farm: Farm, tmp_path: Path) -> Iterator[managing.Slurm]:
    """Start SLURM on the test hosts."""
    if reason := managing.missing():
        pytest.skip(reason)
    with managing.Slurm(farm, tmp_path / "slurm") as running:
        yield running


@pytest.mark.usefixtures("elsewhere")
def test_slurm_script_trains_in_an_allocation(slurm: managing.Slurm, job: Path) -> None:
    text = slurm.run("salloc", "--quiet", "--nodes=2", "sh", str(moved(job, "slurm")), timeout=300)
    assert ended(text) == ["0", "1"], text


def submitted(slurm: managing.Slurm, job: Path, *sets: str, waiting: bool = True) -> str:
    """Submit the rendered script and return its job number; `waiting`: its ranks wait for SIGTERM at their first start."""
    how = ["--set", "cluster.slurm.setup=[export HOW=--wait]"] if waiting else []
    (job / "job.sbatch").write_text(render(job, "--only", "sbatch", *how, *(word for path in sets for word in ("--set", path))))
    number = slurm.run("sbatch", "--parsable", f"--chdir={job}", str(job / "job.sbatch")).strip()
    if waiting:
        until(lambda: log_of(job, number).count("waiting") == 2, slurm, number)
    return number


def log_of(job: Path, number: str) -> str:
    """Return the job's output."""
    log = job / f"two-hosts-{number}.log"
    return log.read_text() if log.is_file() else ""


def test_job_is_requeued_before_its_time_limit_and_trains_on_both_nodes(slurm: managing.Slurm, job: Path) -> None:
    number = submitted(slurm, job)
    slurm.run("scancel", "--batch", "--signal=USR1", number)
    until(lambda: slurm.state_of(number) == "PENDING", slurm, number)  # SLURM would wait two minutes before it starts it again
    slurm.run("scontrol", "update", f"JobId={number}", "StartTime=now+3")  # sooner, slurmd takes it for the ended attempt
    until(lambda: slurm.state_of(number) in ("COMPLETED", "FAILED", "TIMEOUT"), slurm, number)
    text = log_of(job, number)
    assert (slurm.state_of(number), ended(text)) == ("COMPLETED", ["0", "1"]), text
    assert {line[0] for line in text.splitlines() if "done" in line} == {"0", "1"}, "one rank on each node"


@pytest.mark.parametrize("restarts", ["0", "3"])
def test_cancelled_job_stays_cancelled(slurm: managing.Slurm, job: Path, restarts: str) -> None:
    number = submitted(slurm, job, f"run.restarts.max={restarts}")
    assert slurm.facts_of(number)["Requeue"] == ("0" if restarts == "0" else "1")
    slurm.run("scancel", number)
    until(lambda: slurm.run("squeue", "-h").strip() == "", slurm, number)  # also none that waits to begin again
    facts = slurm.facts_of(number)
    assert (facts["JobState"], facts["Restarts"]) == ("CANCELLED", "0"), log_of(job, number)


def test_job_without_restarts_gets_no_warning_of_its_time_limit(slurm: managing.Slurm, job: Path) -> None:
    number = submitted(slurm, job, "run.restarts.max=0")
    assert "trap" not in (job / "job.sbatch").read_text()
    slurm.run("scontrol", "requeue", number)
    assert slurm.state_of(number) == "RUNNING", "SLURM itself refuses to queue it again"
    slurm.run("scancel", number)
    until(lambda: slurm.state_of(number) == "CANCELLED", slurm, number)


def test_number_of_hosts_is_enough_and_nodes_give_gpus_and_cpus(slurm: managing.Slurm, job: Path) -> None:
    """The rendering machine has no GPU; the nodes are declared to have two, and the ranks, which find none, still train."""
    (job / "plan.yaml").write_text(
        re.sub("cluster: .*", "cluster: {num_nodes: 2, num_gpus: 1, slurm: {cpus_per_task: 2, partition: all, time: 10}}", PLAN)
    )
    number = submitted(slurm, job, waiting=False)
    until(lambda: slurm.state_of(number) in ("COMPLETED", "FAILED", "TIMEOUT"), slurm, number)
    facts, text = slurm.facts_of(number), log_of(job, number)
    assert (facts["JobState"], ended(text)) == ("COMPLETED", ["0", "1"]), text
    assert {name: facts[name] for name in ("NumNodes", "CPUs/Task", "TimeLimit")} == {
        "NumNodes": "2",
        "CPUs/Task": "2",
        "TimeLimit": "00:10:00",
    }
    assert facts["TresPerNode"].endswith("gpu:1")


def test_script_of_unnamed_hosts_trains_in_an_allocation(slurm: managing.Slurm, job: Path) -> None:
    cluster = "cluster: {num_nodes: 2, num_gpus: 1, launcher: slurm, env: {DS_ACCELERATOR: cpu}}"
    (job / "plan.yaml").write_text(re.sub("cluster: .*", cluster, PLAN))
    render(job, "-o", str(job / "out"))
    text = slurm.run("salloc", "--quiet", "--nodes=2", "--ntasks-per-node=1", "bash", str(job / "out" / "launch.sh"), timeout=300)
    assert ended(text) == ["0", "1"], text


def until(met: object, slurm: managing.Slurm, number: str, seconds: float = 300) -> None:
    """Wait for a condition of SLURM's job."""
    assert callable(met)
    deadline = time.monotonic() + seconds
    while not met():
        assert time.monotonic() < deadline, slurm.run("scontrol", "show", "job", number)
        time.sleep(0.2)
