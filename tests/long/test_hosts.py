"""Launchers × shapes trained to the end, and faults × launchers, on test hosts with the real sshd, pdsh, Open MPI, MPICH and SLURM.

python -m pytest -n0 -q -s tests/long/test_hosts.py            one line for each, with its seconds (about half an hour)
… -k 'train and ssh'    … -k 'fault and pdsh'    … -k farm     a part
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "hosts"))

import farm as farming
import slurm as slurming
from remote_job import RemoteJob

from dstui.jobs.store.ranks import read_record
from tests.releases import accelerate
from tests.waiting import wait_for

HERE = Path(__file__).parent
SHAPES = {"2x1": ("h1: 1, h2: 1", 2), "2x2": ("h1: 2, h2: 2", 4), "4x1": ("h1: 1, h2: 1, h3: 1, h4: 1", 4)}
LAUNCHERS = {
    "ssh": "",
    "pdsh": "launcher: pdsh",
    "openmpi": "launcher: openmpi",
    "mpich": "launcher: mpich",
    "slurm": "launcher: slurm",
    "torchrun": "launcher: torchrun",
    "torchrun-c10d": "launcher: torchrun, launcher_args: [--rdzv-backend, c10d]",
    "accelerate": "launcher: accelerate",
}
TRAIN = "{module: dstui.examples.train_tiny, args: [--steps, '3', --deepspeed_config, '{ds_config}']}"


@pytest.fixture(scope="module")
def farm() -> Iterator[farming.Farm]:
    """Start four hosts."""
    if reason := farming.missing():
        pytest.skip(reason)
    with farming.Farm(4) as hosts:
        yield hosts


@pytest.fixture(scope="module")
def cluster(farm: farming.Farm, tmp_path_factory: pytest.TempPathFactory) -> Iterator[slurming.Slurm]:
    """Start SLURM on these hosts."""
    if reason := slurming.missing():
        pytest.skip(reason)
    with slurming.Slurm(farm, tmp_path_factory.mktemp("slurm")) as found:
        yield found


@pytest.fixture
def remote_job(farm: farming.Farm, tmp_path: Path) -> Iterator[RemoteJob]:
    """Return a job to start."""
    job = RemoteJob(farm, tmp_path)
    yield job
    for host in farm.hosts:
        farm.cable(host, plugged=True)
    if job.dstui and job.dstui.poll() is None:
        job.interrupt(signal.SIGTERM)
        job.wait()


@pytest.fixture
def launcher(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """Return a launcher with its requirements on this machine; skips if they are missing."""
    name: str = request.param
    programs = {"pdsh": ["pdsh"], "openmpi": ["mpirun.openmpi"], "mpich": ["mpirun.mpich", "hydra_pmi_proxy"], "slurm": ["srun", "salloc"]}
    absent = [program for program in programs.get(name, []) if not shutil.which(program)]
    if absent:
        pytest.skip(f"{name} needs {', '.join(absent)}")
    if name in ("openmpi", "mpich"):  # both are called mpirun: put the wanted one first on the PATH
        folder = tmp_path / "mpi"
        folder.mkdir()
        for program, called in ((f"mpirun.{name}", "mpirun"), ("hydra_pmi_proxy", "hydra_pmi_proxy")):
            if found := shutil.which(program):
                (folder / called).symlink_to(found)
        monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
        for variable in ("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"):
            monkeypatch.setenv(variable, "1")
    if name == "slurm":
        request.getfixturevalue("cluster")
    return name


def begin(
    remote_job: RemoteJob, launcher: str, request: pytest.FixtureRequest, *behaviour: str, shape: str = "2x1", job: str = "", run: str = ""
) -> None:
    """Start a job with this launcher; for SLURM within an allocation."""
    env, allocation = {}, None
    if launcher == "accelerate":
        env["PYTHONPATH"] = os.pathsep.join(filter(None, [str(accelerate()), os.environ.get("PYTHONPATH")]))
    if launcher == "slurm":
        allocation = request.getfixturevalue("cluster")
        env |= {"OMP_NUM_THREADS": "1"}
    hosts = ",".join(pair.split(":")[0].strip() for pair in SHAPES[shape][0].split(","))
    remote_job.within = ["salloc", "--quiet", f"--nodelist={hosts}"] if allocation else []
    remote_job.environment = allocation.variables if allocation else {}
    remote_job.start(*behaviour, hosts=SHAPES[shape][0], cluster=LAUNCHERS[launcher], env=env, job=job, run=run)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("launcher", LAUNCHERS, indirect=True)
def test_train(remote_job: RemoteJob, launcher: str, shape: str, request: pytest.FixtureRequest) -> None:
    """Trains to the end: all lines arrive and the exit status is right."""
    began = time.monotonic()
    begin(remote_job, launcher, request, shape=shape, job=TRAIN)
    code, out, err = remote_job.wait()
    assert code == 0, out + err + remote_job.words()
    for rank in range(SHAPES[shape][1]):
        assert "step 3/3 loss" in remote_job.log(rank), rank
    assert {rank["exit_code"] for rank in remote_job.status["ranks"].values()} == {0}
    remote_job.nothing_left()
    print(f"{launcher:14} {shape}  trained in {time.monotonic() - began:5.1f} s")


@pytest.mark.parametrize("launcher", ["slurm"], indirect=True)
def test_host_outside_the_allocation_is_reported_and_nothing_starts(remote_job: RemoteJob, launcher: str, cluster: slurming.Slurm) -> None:
    remote_job.within, remote_job.environment = ["salloc", "--quiet", "--nodelist=h1"], cluster.variables
    remote_job.start("all:hang", cluster=LAUNCHERS[launcher])
    code, out, err = remote_job.wait()
    assert code == 1 and "h2: SLURM has no resources on it for this job" in err and "h1: " not in err, out + err
    remote_job.nothing_left()


def test_allocation_made_by_srun_is_released(remote_job: RemoteJob, cluster: slurming.Slurm) -> None:
    remote_job.environment = cluster.variables
    remote_job.start("all:say done", cluster=LAUNCHERS["slurm"], env={"OMP_NUM_THREADS": "1"})
    code, out, err = remote_job.wait()
    assert code == 0, out + err + remote_job.words()
    wait_for(lambda: cluster.jobs() == [], otherwise=remote_job.words)
    remote_job.nothing_left()


def test_stop_after_a_kill_releases_the_allocation_of_srun(remote_job: RemoteJob, cluster: slurming.Slurm) -> None:
    remote_job.environment = cluster.variables
    remote_job.start("all:hang", cluster=LAUNCHERS["slurm"], env={"OMP_NUM_THREADS": "1"})
    remote_job.ready()
    assert cluster.jobs() == [f"dstui-{remote_job.status['tag']}"] * 2
    for words in (("dstui", "--headless"), ("dstui.jobs.supervisor", str(remote_job.folder.path)), ("srun", remote_job.status["tag"])):
        assert remote_job.kill_on("login", *words) > 0
    assert cluster.jobs() == [f"dstui-{remote_job.status['tag']}"] * 2
    remote_job.run("stop")
    assert remote_job.ended()["state"] == "stopped"
    wait_for(lambda: cluster.jobs() == [], otherwise=remote_job.words)
    remote_job.nothing_left()


def exits(remote_job: RemoteJob) -> str:
    """Let a rank exit with 3, as its arguments say."""
    return "rank 1 on h2 ended with 3"


def killed(remote_job: RemoteJob) -> str:
    """Kill a rank."""
    remote_job.kill_rank(1, "h2")
    return "rank 1 on h2 ended with 137"


def cut(remote_job: RemoteJob) -> str:
    """Cut a host's link and restore it once that was reported; every numbered line arrives exactly once."""
    remote_job.farm.cable("h2", plugged=False)
    wait_for(lambda: remote_job.status["hosts"]["h2"]["state"] == "unreachable", otherwise=remote_job.words)
    return "h2 is unreachable"


def session(remote_job: RemoteJob) -> str:
    """Kill the sshd sessions of a host."""
    assert remote_job.kill_on("h2", "sshd: root") > 0
    return ""


def supervisor(remote_job: RemoteJob) -> str:
    """Kill the supervisor."""
    assert remote_job.kill_on("login", "dstui.jobs.supervisor", str(remote_job.folder.path)) == 1
    return ""


def starter(remote_job: RemoteJob) -> str:
    """Kill what starts the ranks of a host, or of all."""
    where = "login" if remote_job.status["launcher"] else "h2"
    names = ("deepspeed.launcher.", "torch.distributed.run", "accelerate.commands.launch")
    assert sum(remote_job.kill_on(where, name) for name in names) > 0
    return "rank 1 on h2 ended with 143" if where == "h2" else "the launcher has ended, but ranks 0-1 have not: they are stopped"


def interrupted(remote_job: RemoteJob) -> str:
    """Send SIGINT, as Ctrl-C does."""
    remote_job.interrupt(signal.SIGINT)
    return ""


FAULTS: dict[str, tuple[Callable[[RemoteJob], str], tuple[str, ...], set[int]]] = {
    "exits": (exits, ("1:exit 3", "all:hang"), {3}),
    "killed": (killed, ("all:hang",), {137}),
    "cut": (cut, ("all:count 2500 0.01",), {0}),
    "session": (session, ("all:count 1500 0.01",), {0, 143, 137}),
    "supervisor": (supervisor, ("all:count 1500 0.01",), {0}),
    "starter": (starter, ("all:hang",), {143, 137}),
    "interrupted": (interrupted, ("all:hang",), {130}),
}
"""Fault -> function, behaviour of the ranks, and allowed exit statuses of dstui."""
KEEPS_NO_CONNECTION = ("ssh", "pdsh", "mpich", "torchrun", "torchrun-c10d", "accelerate")
"""Launchers whose ranks survive the end of the ssh sessions to their host; Open MPI ends them with its orted."""


UNTOLD = ("supervisor", "interrupted")
"""Faults that need no report: another supervisor takes over, or it was the user."""


def seconds_to_report(remote_job: RemoteJob, since: float) -> float:
    """Return the seconds until the job reported a rank's failure or an unreachable host; inf if it reported neither."""
    events = [event for _, event in remote_job.folder.read_events() if event.get("t", 0.0) >= since]
    wrong = (event for event in events if event.get("state") in ("unreachable", "lost") or event.get("exit_code"))
    return min((event["t"] for event in wrong), default=float("inf")) - since


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("launcher", LAUNCHERS, indirect=True)
def test_fault(remote_job: RemoteJob, launcher: str, fault: str, request: pytest.FixtureRequest) -> None:
    """Noticed, with the right host and rank, and nothing left; if the job can continue, every line exactly once."""
    if launcher == "slurm" and fault == "session":
        pytest.skip("no sshd is involved")
    happens, behaviour, codes = FAULTS[fault]
    begin(remote_job, launcher, request, *behaviour)
    remote_job.ready()
    began = time.time()
    words = happens(remote_job)
    if fault == "cut":
        remote_job.farm.cable("h2", plugged=True)
    code, out, err = remote_job.wait()
    assert code in codes and words in err, out + err + remote_job.words()
    if code == 0 and "count" in behaviour[0]:
        lines = [str(number) for number in range(int(behaviour[0].split()[1]))]
        assert all([line for line in remote_job.log(rank).splitlines() if line.isdigit()] == lines for rank in (0, 1))
    if fault == "session" and launcher in KEEPS_NO_CONNECTION:
        assert code == 0
    remote_job.nothing_left()
    since = read_record(remote_job.folder.record(1))["ended"] if fault == "exits" else began
    assert fault in UNTOLD or seconds_to_report(remote_job, since) < 60, remote_job.words()
    words = "nothing to tell" if fault in UNTOLD else f"told after {seconds_to_report(remote_job, since):4.1f} s"
    print(f"{launcher:14} {fault:12} {words}, ended with {code} after {time.time() - since:5.1f} s")


def test_farm_starts_and_stops_twenty_times_and_leaves_nothing() -> None:
    if reason := farming.missing():
        pytest.skip(reason)
    before = leftovers()
    took = []
    for _ in range(20):
        began = time.monotonic()
        with farming.Farm(4) as hosts:
            assert hosts.run("login", "ssh", "h4", "hostname").stdout == "h4\n"
        took.append(time.monotonic() - began)
        assert leftovers() == before
    print(f"20 farms of 4 hosts: {min(took):.1f} to {max(took):.1f} s each, nothing left")


def leftovers() -> set[str]:
    """Return what a farm creates on the machine."""
    names = [name for name in farming.run_checked("ip", "netns", "list").split() if name.startswith(f"dstui{os.getpid()}-")]
    return {*names, *(str(path) for folder in ("/run", "/etc/netns") for path in Path(folder).glob(f"dstui{os.getpid()}-*"))}


@pytest.mark.parametrize("launcher", ["slurm"], indirect=True)
def test_number_of_hosts_takes_those_of_the_allocation(remote_job: RemoteJob, launcher: str, cluster: slurming.Slurm) -> None:
    remote_job.within, remote_job.environment = ["salloc", "--quiet", "--nodelist=h1,h2"], cluster.variables
    remote_job.start(hosts="", cluster=f"num_nodes: 2, num_gpus: 1, {LAUNCHERS[launcher]}", env={"OMP_NUM_THREADS": "1"}, job=TRAIN)
    code, out, err = remote_job.wait()
    assert code == 0, out + err + remote_job.words()
    assert {rank["host"] for rank in remote_job.status["ranks"].values()} == {"h1", "h2"}
    remote_job.nothing_left()


@pytest.mark.parametrize(
    ("launcher", "fault"),
    [*product(("ssh", "slurm"), ("stuck", "endless-loop")), *product(LAUNCHERS, ("blocked-data",))],
    indirect=["launcher"],
)
def test_hang_across_hosts_is_reported_with_rank_and_line(
    remote_job: RemoteJob, launcher: str, fault: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """The job reports by itself: all ranks are silent, then which remote rank is missing, and in which line it is."""
    words = f"[--config, '{{ds_config}}', --fault, {fault}, --talk]"
    begin(
        remote_job, launcher, request, job=f"{{script: {HERE / 'crash_script.py'}, args: {words}, workdir: '{tmp_path}'}}", run="silence: 8"
    )

    def in_step() -> list[dict[str, Any]]:  # the start may be silent too
        return [event for event in remote_job.events("stacks") if "all_reduce" in event["lines"][0]]

    wait_for(in_step, 90, otherwise=remote_job.words)
    (told,) = in_step()
    silent = max(remote_job.folder.log(rank).stat().st_mtime for rank in (0, 1)) + 8
    assert told["late"] == [1] and "crash_script.py:" in told["at"], told
    print(f"{launcher:8} {fault:14} {told['lines'][0]} {told['at']}: {told['t'] - silent:.1f} s after the allowed silence")
    assert told["t"] - silent < 10
    assert remote_job.run("stop", str(remote_job.folder.path)).returncode == 0
