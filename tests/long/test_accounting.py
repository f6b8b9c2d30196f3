"""The output of `sacct` for every way a job can end, from a real slurmdbd, and what dstui reports once slurmctld has forgotten the job.

python -m pytest -n0 -s tests/long/test_accounting.py        two minutes; needs Debian's slurmdbd and mariadb-server
"""

from __future__ import annotations

import json
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "hosts"))

import accounting
from farm import Farm
from remote_job import RemoteJob

from tests import recorded_slurm
from tests.waiting import wait_for

LOOK = """\
import json, sys
from dstui.jobs.queue.scheduler import look
found = {job: look(job) for job in sys.argv[1:]}
print(json.dumps({job: [one.state, one.meaning.means, one.meaning.exit_code, one.nodes] for job, one in found.items()}))
"""
SACCT = ["sacct", "--noheader", "--parsable2", "--allocations", "--user=0", "--starttime=now-30days"]
COLUMNS = "--format=JobIDRaw,State,Start,NodeList,Reason"
SLEEP = "--wrap=sleep 300"
GREEDY = "--wrap=python3 -c 'import time; x = bytearray(200 << 20); time.sleep(60)'"
BOTH = ("--nodes=2", "--exclusive")
ENDS = {
    "completed": ["COMPLETED", "ended", None, "h1"],
    "failed": ["FAILED", "ended", None, "h1"],
    "oom": ["OUT_OF_MEMORY", "failed", 137, "h1"],
    "cancelled": ["CANCELLED by 0", "stopped", 143, "h1"],
    "while it waits": ["CANCELLED by 0", "stopped", 143, "None assigned"],
    "node": ["NODE_FAIL", "failed", 1, "h2"],
    "requeued": ["COMPLETED", "ended", None, "h1"],
    "preempted": ["PREEMPTED", "failed", 143, "h[1-2]"],
    "timeout": ["TIMEOUT", "failed", 124, "h[1-2]"],
}


@pytest.fixture(scope="module")
def slurm(farm: Farm) -> Iterator[accounting.SlurmWithAccounting]:
    """Start SLURM with accounting; jobs of `short` have a minute and preempt those of `all`."""
    if reason := accounting.missing():
        pytest.skip(reason)
    state = Path(tempfile.mkdtemp(prefix="dstui-slurm-", dir="/srv"))
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("slurm.CONFIGURATION", accounting.configuration())
            with accounting.SlurmWithAccounting(farm, state / "slurm") as running:
                yield running
    finally:
        shutil.rmtree(state, ignore_errors=True)


def submit(slurm: accounting.SlurmWithAccounting, *words: str) -> str:
    return slurm.run("sbatch", "--parsable", "--output=/dev/null", "--mem=20", *words).strip()


def runs(slurm: accounting.SlurmWithAccounting, *jobs: str) -> None:
    wait_for(lambda: all(slurm.state_of(job) == "RUNNING" for job in jobs), otherwise=lambda: slurm.run("squeue"))


def shape(line: str) -> str:
    """Return a line of sacct without its variable parts."""
    return re.sub(r"g\[?[-\d]+\]?|h\[?[-\d]+\]?", "NODES", re.sub(r"\d{4}-\d\d-\d\dT[\d:]{8}", "TIME", re.sub(r"^\d+", "JOB", line)))


def ended(slurm: accounting.SlurmWithAccounting) -> dict[str, str]:
    """Submit jobs that end in different ways; return kind of end -> job number."""
    jobs = {"completed": submit(slurm, "--nodelist=h1", "--wrap=true"), "failed": submit(slurm, "--nodelist=h1", "--wrap=exit 3")}
    jobs["oom"] = submit(slurm, "--nodelist=h1", GREEDY)
    jobs["cancelled"], jobs["node"] = submit(slurm, "--nodelist=h1", SLEEP), submit(slurm, "--nodelist=h2", "--no-requeue", SLEEP)
    jobs["requeued"] = submit(slurm, "--nodelist=h1", "--requeue", "--wrap=sleep 3")
    runs(slurm, jobs["cancelled"], jobs["node"], jobs["requeued"])
    slurm.run("scontrol", "requeue", jobs["requeued"])
    slurm.run("scancel", jobs["cancelled"])
    slurm.run("scontrol", "update", "NodeName=h2", "State=DOWN", "Reason=test")
    wait_for(lambda: slurm.state_of(jobs["requeued"]) == "PENDING")
    assert seen_by_dstui(slurm, jobs["requeued"])[jobs["requeued"]][1] == "queued"
    slurm.run("scontrol", "update", f"JobId={jobs['requeued']}", "StartTime=now+1")
    slurm.run("scontrol", "update", "NodeName=h2", "State=RESUME")
    wait_for(lambda: not slurm.jobs(), 90, otherwise=lambda: slurm.run("squeue"))
    jobs["preempted"] = submit(slurm, "--no-requeue", *BOTH, SLEEP)
    runs(slurm, jobs["preempted"])
    jobs["timeout"] = submit(slurm, "--partition=short", *BOTH, SLEEP)
    runs(slurm, jobs["timeout"])
    jobs["while it waits"] = submit(slurm, *BOTH, SLEEP)
    wait_for(lambda: slurm.facts_of(jobs["while it waits"]).get("Reason") == "Resources", otherwise=lambda: slurm.run("squeue"))
    slurm.run("scancel", jobs["while it waits"])
    wait_for(lambda: not slurm.jobs(), 150, otherwise=lambda: slurm.run("squeue"))
    return jobs


def seen_by_dstui(slurm: accounting.SlurmWithAccounting, *jobs: str) -> dict[str, list[object]]:
    """Return what dstui sees of jobs, in a process with its own cache."""
    with tempfile.TemporaryDirectory(dir=slurm.state) as cache:
        text = slurm.run("env", f"XDG_CACHE_HOME={cache}", sys.executable, "-c", LOOK, *jobs)
    found: dict[str, list[object]] = json.loads(text)
    return found


def test_each_end_is_read_from_accounting_once_the_controller_forgot_it(slurm: accounting.SlurmWithAccounting) -> None:
    jobs = ended(slurm)
    wait_for(lambda: "JobId=" not in slurm.run("scontrol", "show", "jobs"), 60)
    text = slurm.run(*SACCT, COLUMNS)
    print("", text, sep="\n")
    found = seen_by_dstui(slurm, *jobs.values())
    assert {name: found[job] for name, job in jobs.items()} == ENDS, text
    assert {shape(line) for line in text.splitlines()} == {shape(line) for line in recorded_slurm.ACCOUNTING.splitlines()}


def test_runs_of_dstui_end_as_accounting_says(slurm: accounting.SlurmWithAccounting, farm: Farm, tmp_path: Path) -> None:
    job = RemoteJob(farm, tmp_path)
    job.environment = slurm.variables
    job.start("all:hang", hosts="", cluster="launcher: sbatch, num_nodes: 2, num_gpus: 1, slurm: {account: physics, extra: ['--mem=900']}")
    job.ready()
    slurm.run("scontrol", "update", "NodeName=h2", "State=DOWN", "Reason=test")
    code, _, err = job.wait()
    slurm.run("scontrol", "update", "NodeName=h2", "State=RESUME")
    assert code == 1 and "a node of it failed" in err, err + job.words()
    wait_for(lambda: "JobId=" not in slurm.run("scontrol", "show", "jobs"), 60)
    status = json.loads(job.folder.status_file.read_text())
    job.folder.status_file.write_text(
        json.dumps({**status, "state": "running", "ended": None, "exit_code": None})
    )  # nobody could write the end
    (one,) = json.loads(job.run("runs", "--json").stdout)["runs"]
    assert (one["state"], one["exit_code"]) == ("failed", 1), one
    assert "physics" in slurm.run("sacct", "--noheader", "--allocations", "--format=Account")
