"""Launchers × shapes, trained to the end, and faults × launchers, over pretend hosts with the real sshd, pdsh, Open MPI, MPICH and SLURM.

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
from far import Far

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
    """Four hosts."""
    if reason := farming.missing():
        pytest.skip(reason)
    with farming.Farm(4) as hosts:
        yield hosts


@pytest.fixture(scope="module")
def cluster(farm: farming.Farm, tmp_path_factory: pytest.TempPathFactory) -> Iterator[slurming.Slurm]:
    """The same four, under SLURM."""
    if reason := slurming.missing():
        pytest.skip(reason)
    with slurming.Slurm(farm, tmp_path_factory.mktemp("slurm")) as found:
        yield found


@pytest.fixture
def far(farm: farming.Farm, tmp_path: Path) -> Iterator[Far]:
    """A job to be started."""
    job = Far(farm, tmp_path)
    yield job
    for host in farm.hosts:
        farm.cable(host, plugged=True)
    if job.dstui and job.dstui.poll() is None:
        job.interrupt(signal.SIGTERM)
        job.wait()


@pytest.fixture
def launcher(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """A launcher, with what it needs on this machine; skipped where that is not there."""
    name: str = request.param
    programs = {"pdsh": ["pdsh"], "openmpi": ["mpirun.openmpi"], "mpich": ["mpirun.mpich", "hydra_pmi_proxy"], "slurm": ["srun", "salloc"]}
    absent = [program for program in programs.get(name, []) if not shutil.which(program)]
    if absent:
        pytest.skip(f"{name} needs {', '.join(absent)}")
    if name in ("openmpi", "mpich"):  # both are called mpirun: the one that is meant comes first
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
    far: Far, launcher: str, request: pytest.FixtureRequest, *behaviour: str, shape: str = "2x1", job: str = "", run: str = ""
) -> None:
    """Start a job with this launcher; SLURM's within an allocation."""
    env, allocation = {}, None
    if launcher == "accelerate":
        env["PYTHONPATH"] = os.pathsep.join(filter(None, [str(accelerate()), os.environ.get("PYTHONPATH")]))
    if launcher == "slurm":
        allocation = request.getfixturevalue("cluster")
        env |= {"OMP_NUM_THREADS": "1"}
    hosts = ",".join(pair.split(":")[0].strip() for pair in SHAPES[shape][0].split(","))
    far.within = ["salloc", "--quiet", f"--nodelist={hosts}"] if allocation else []
    far.environment = allocation.variables if allocation else {}
    far.start(*behaviour, hosts=SHAPES[shape][0], cluster=LAUNCHERS[launcher], env=env, job=job, run=run)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("launcher", LAUNCHERS, indirect=True)
def test_train(far: Far, launcher: str, shape: str, request: pytest.FixtureRequest) -> None:
    """Trained to the end, every rank's lines here, the exit status right."""
    began = time.monotonic()
    begin(far, launcher, request, shape=shape, job=TRAIN)
    code, out, err = far.wait()
    assert code == 0, out + err + far.words()
    for rank in range(SHAPES[shape][1]):
        assert "step 3/3 loss" in far.log(rank), rank
    assert {rank["exit_code"] for rank in far.status["ranks"].values()} == {0}
    far.nothing_left()
    print(f"{launcher:14} {shape}  trained in {time.monotonic() - began:5.1f} s")


@pytest.mark.parametrize("launcher", ["slurm"], indirect=True)
def test_a_host_outside_of_the_allocation_is_told_and_nothing_starts(far: Far, launcher: str, cluster: slurming.Slurm) -> None:
    far.within, far.environment = ["salloc", "--quiet", "--nodelist=h1"], cluster.variables
    far.start("all:hang", cluster=LAUNCHERS[launcher])
    code, out, err = far.wait()
    assert code == 1 and "h2: SLURM has no resources on it for this job" in err and "h1: " not in err, out + err
    far.nothing_left()


def test_what_srun_allocates_outside_of_an_allocation_is_released(far: Far, cluster: slurming.Slurm) -> None:
    far.environment = cluster.variables
    far.start("all:say done", cluster=LAUNCHERS["slurm"], env={"OMP_NUM_THREADS": "1"})
    code, out, err = far.wait()
    assert code == 0, out + err + far.words()
    wait_for(lambda: cluster.jobs() == [], otherwise=far.words)
    far.nothing_left()


def test_after_a_kill_the_next_command_releases_what_srun_has_allocated(far: Far, cluster: slurming.Slurm) -> None:
    far.environment = cluster.variables
    far.start("all:hang", cluster=LAUNCHERS["slurm"], env={"OMP_NUM_THREADS": "1"})
    far.ready()
    assert cluster.jobs() == [f"dstui-{far.status['tag']}"] * 2
    for words in (("dstui", "--headless"), ("dstui.jobs.supervisor", str(far.folder.path)), ("srun", far.status["tag"])):
        assert far.kill_on("login", *words) > 0
    assert cluster.jobs() == [f"dstui-{far.status['tag']}"] * 2
    far.run("runs")
    assert far.ended()["state"] == "stopped"
    wait_for(lambda: cluster.jobs() == [], otherwise=far.words)
    far.nothing_left()


def exits(far: Far) -> str:
    """A rank exits with 3 (it was told so before)."""
    return "rank 1 on h2 ended with 3"


def killed(far: Far) -> str:
    """A rank is killed."""
    far.kill_rank(1, "h2")
    return "rank 1 on h2 ended with 137"


def cut(far: Far) -> str:
    """A host's link is cut, and mended once that has been said; every numbered line comes exactly once."""
    far.farm.cable("h2", plugged=False)
    wait_for(lambda: far.status["hosts"]["h2"]["state"] == "unreachable", otherwise=far.words)
    return "h2 is unreachable"


def session(far: Far) -> str:
    """The sshd sessions of a host are killed."""
    assert far.kill_on("h2", "sshd: root") > 0
    return ""


def supervisor(far: Far) -> str:
    """The supervisor is killed."""
    assert far.kill_on("login", "dstui.jobs.supervisor", str(far.folder.path)) == 1
    return ""


def starter(far: Far) -> str:
    """What starts the ranks of a host, or of all, is killed."""
    where = "login" if far.status["launcher"] else "h2"
    names = ("deepspeed.launcher.", "torch.distributed.run", "accelerate.commands.launch")
    assert sum(far.kill_on(where, name) for name in names) > 0
    return "rank 1 on h2 ended with 143" if where == "h2" else "the launcher has ended, but ranks 0-1 have not: they are stopped"


def interrupted(far: Far) -> str:
    """Ctrl-C."""
    far.interrupt(signal.SIGINT)
    return ""


FAULTS: dict[str, tuple[Callable[[Far], str], tuple[str, ...], set[int]]] = {
    "exits": (exits, ("1:exit 3", "all:hang"), {3}),
    "killed": (killed, ("all:hang",), {137}),
    "cut": (cut, ("all:count 2500 0.01",), {0}),
    "session": (session, ("all:count 1500 0.01",), {0, 143, 137}),
    "supervisor": (supervisor, ("all:count 1500 0.01",), {0}),
    "starter": (starter, ("all:hang",), {143, 137}),
    "interrupted": (interrupted, ("all:hang",), {130}),
}
"""What happens, how the ranks behave, and which exit statuses dstui may then end with."""
KEEPS_NO_CONNECTION = ("ssh", "pdsh", "mpich", "torchrun", "torchrun-c10d", "accelerate")
"""Launchers whose ranks do not mind that the sessions by which their host is reached are killed; Open MPI ends them with its orted."""


UNTOLD = ("supervisor", "interrupted")
"""What nobody has to be told: another supervisor takes over, or it was the user."""


def told(far: Far, since: float) -> float:
    """Seconds until the job said that something is wrong: a rank's failure, or a host that is unreachable; inf where it said neither."""
    events = [event for _, event in far.folder.read_events() if event.get("t", 0.0) >= since]
    wrong = (event for event in events if event.get("state") in ("unreachable", "lost") or event.get("exit_code"))
    return min((event["t"] for event in wrong), default=float("inf")) - since


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("launcher", LAUNCHERS, indirect=True)
def test_fault(far: Far, launcher: str, fault: str, request: pytest.FixtureRequest) -> None:
    """Noticed, the right host and rank named, nothing left anywhere; where the job can go on, every line exactly once."""
    if launcher == "slurm" and fault == "session":
        pytest.skip("no sshd has a part in it")
    happens, behaviour, codes = FAULTS[fault]
    begin(far, launcher, request, *behaviour)
    far.ready()
    began = time.time()
    words = happens(far)
    if fault == "cut":
        far.farm.cable("h2", plugged=True)
    code, out, err = far.wait()
    assert code in codes and words in err, out + err + far.words()
    if code == 0 and "count" in behaviour[0]:
        lines = [str(number) for number in range(int(behaviour[0].split()[1]))]
        assert all([line for line in far.log(rank).splitlines() if line.isdigit()] == lines for rank in (0, 1))
    if fault == "session" and launcher in KEEPS_NO_CONNECTION:
        assert code == 0
    far.nothing_left()
    since = read_record(far.folder.record(1))["ended"] if fault == "exits" else began
    assert fault in UNTOLD or told(far, since) < 60, far.words()
    words = "nothing to tell" if fault in UNTOLD else f"told after {told(far, since):4.1f} s"
    print(f"{launcher:14} {fault:12} {words}, ended with {code} after {time.time() - since:5.1f} s")


def test_a_farm_goes_up_and_down_twenty_times_and_leaves_nothing() -> None:
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
    """What a farm makes on the machine."""
    names = [name for name in farming.do("ip", "netns", "list").split() if name.startswith(f"dstui{os.getpid()}-")]
    return {*names, *(str(path) for folder in ("/run", "/etc/netns") for path in Path(folder).glob(f"dstui{os.getpid()}-*"))}


@pytest.mark.parametrize("launcher", ["slurm"], indirect=True)
def test_a_number_of_hosts_takes_those_of_the_allocation(far: Far, launcher: str, cluster: slurming.Slurm) -> None:
    far.within, far.environment = ["salloc", "--quiet", "--nodelist=h1,h2"], cluster.variables
    far.start(hosts="", cluster=f"num_nodes: 2, num_gpus: 1, {LAUNCHERS[launcher]}", env={"OMP_NUM_THREADS": "1"}, job=TRAIN)
    code, out, err = far.wait()
    assert code == 0, out + err + far.words()
    assert {rank["host"] for rank in far.status["ranks"].values()} == {"h1", "h2"}
    far.nothing_left()


@pytest.mark.parametrize(
    ("launcher", "fault"),
    [*product(("ssh", "slurm"), ("stuck", "endless-loop")), *product(LAUNCHERS, ("blocked-data",))],
    indirect=["launcher"],
)
def test_a_hang_over_hosts_is_told_with_the_rank_and_its_line(
    far: Far, launcher: str, fault: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """Without being asked: the silence of all ranks, then which rank of another host has not come, and in which line it is."""
    words = f"[--config, '{{ds_config}}', --fault, {fault}, --talk]"
    begin(far, launcher, request, job=f"{{script: {HERE / 'crash_script.py'}, args: {words}, workdir: '{tmp_path}'}}", run="silence: 8")

    def in_step() -> list[dict[str, Any]]:  # the start may be silent too
        return [event for event in far.events("stacks") if "all_reduce" in event["lines"][0]]

    wait_for(in_step, 90, otherwise=far.words)
    (told,) = in_step()
    silent = max(far.folder.log(rank).stat().st_mtime for rank in (0, 1)) + 8
    assert told["late"] == [1] and "crash_script.py:" in told["at"], told
    print(f"{launcher:8} {fault:14} {told['lines'][0]} {told['at']}: {told['t'] - silent:.1f} s after the allowed silence")
    assert told["t"] - silent < 10
    assert far.run("stop", str(far.folder.path)).returncode == 0
