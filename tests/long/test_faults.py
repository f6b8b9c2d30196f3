"""Real faults under the real launcher, on the real Run screen: each is named with its rank; prints how soon after the last rank's end.

DSTUI_FAULTS=raise,kill tries only these. The seconds are printed, but only the names are asserted.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot

from dstui.jobs.control.start import start
from dstui.jobs.control.stop import stop
from dstui.jobs.store.folder import JobFolder
from dstui.jobs.store.status import ranks_of
from dstui.logs.log_folder import FINAL
from dstui.machine.snapshot import Machine
from dstui.plan import load
from dstui.render.target import Target
from dstui.tui.app import DstuiApp
from dstui.tui.run.diagnosis_pane import DiagnosisPane
from tests.job_json import status_json
from tests.jobs.lab import memory_cgroup
from tests.tui.conftest import screen, text_of

HERE = Path(__file__).parent
PATIENCE = 240.0
SOON = 5.0
"""Seconds after the end; for a hang, after `run.silence`."""
PLAN = """\
version: 1
name: faults
job: {{script: crash_script.py, args: [--config, "{{ds_config}}", {words}], workdir: "{path}"}}
cluster: {{hosts: {{localhost: 2}}, {cluster} env: {{DS_ACCELERATOR: cpu, OMP_NUM_THREADS: 1, {env}}}}}
run: {{silence: 6}}
deepspeed:
  train_micro_batch_size_per_gpu: 2
  optimizer: {{type: Adam, params: {{lr: 1e-3, torch_adam: true}}}}
  zero_optimization: {{stage: 1}}
"""
Prepared = AbstractContextManager[dict[str, str]]


@contextmanager
def nothing(_: Path) -> Iterator[dict[str, str]]:
    """Prepare nothing."""
    yield {}


@contextmanager
def small_cgroup(_: Path) -> Iterator[dict[str, str]]:
    """Run the whole job in a cgroup of 3 GB: rank 1 takes more."""
    with memory_cgroup(3 << 30) as group:
        before = [line.partition(":")[2] for line in Path("/proc/self/cgroup").read_text().splitlines()]
        mine = next(path.partition(":")[2] for path in before if path.startswith(("memory:", ":")))
        base = Path("/sys/fs/cgroup/memory" if "memory" in str(group.parent) else "/sys/fs/cgroup")
        (group / "cgroup.procs").write_text(str(os.getpid()))  # child processes are in it too
        try:
            yield {}
        finally:
            (base / mine.lstrip("/") / "cgroup.procs").write_text(str(os.getpid()))


@contextmanager
def small_disk(path: Path) -> Iterator[dict[str, str]]:
    """Mount a file system of 4 MB."""
    disk = path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "none", str(disk)], check=False).returncode:
        pytest.skip("mounting is not possible here")
    try:
        yield {"env": f"CRASH_DISK: {disk}"}
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


@contextmanager
def taken_port(_: Path) -> Iterator[dict[str, str]]:
    """Listen on rank 0's port."""
    with socket.create_server(("", 0)) as server:
        yield {"cluster": f"master_port: {server.getsockname()[1]},"}


@dataclass(frozen=True)
class Fault:
    """What is done, and what the screen must report. `rank` None: no rank, or any of several that fail at once."""

    cause: str
    rank: int | None
    words: str = ""
    prepare: Callable[[Path], Prepared] = nothing
    then: Callable[[JobFolder], Any] = lambda _: None
    kind: str = "failure"


def when_running(act: Callable[[JobFolder], Any]) -> Callable[[JobFolder], Any]:
    """Return a function that acts after the first step."""

    def later(folder: JobFolder) -> Any:
        return act(folder) if folder.log(0).exists() and b"step 0" in folder.log(0).read_bytes() else None

    return later


def stop_from_elsewhere(folder: JobFolder) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-m", "dstui", "stop", str(folder.path)], stdout=subprocess.DEVNULL)


def interrupt(folder: JobFolder) -> bool:
    """Send SIGINT to the supervisor, as Ctrl-C does."""
    os.kill(status_json(folder)["supervisor"]["pid"], signal.SIGINT)
    return True


def delete_script(folder: JobFolder) -> bool:
    (Path(json.loads(folder.launch_file.read_text())["workdir"]) / "crash_script.py").unlink()
    return True


FAULTS = {
    "raise": Fault("USER-PY", 1, "--fault, raise"),
    "raise-all": Fault("USER-PY", None, "--fault, raise-all"),
    "exit-3": Fault("EARLY-EXIT", 1, "--fault, exit-3"),
    "segfault": Fault("SIGSEGV", 1, "--fault, segfault"),
    "abort": Fault("SIGABRT", 1, "--fault, abort"),
    "kill": Fault("KILLED-UNKNOWN", 1, "--fault, kill"),
    "ulimit": Fault("ALLOC-REFUSED", 1, "--fault, limited-memory"),
    "cgroup": Fault("OOM-HOST", 1, "--fault, small-cgroup", small_cgroup),
    "gpu-memory": Fault("OOM-GPU", 1, "--fault, gpu-memory"),
    "disk": Fault("CKPT-DISK", 1, "--fault, full-disk", small_disk),
    "bus-error": Fault("SIGBUS-SHM", 1, "--fault, full-mapping", small_disk),
    "skip": Fault("DESYNC-EARLY-EXIT", 1, "--fault, skip"),
    "port": Fault("PORT-IN-USE", 0, "", taken_port),
    "script": Fault("NO-SCRIPT", None, "", then=delete_script),
    "hang": Fault("hang", 1, "--fault, stuck, --talk"),
    "loop": Fault("hang", 1, "--fault, endless-loop, --talk"),
    "data": Fault("hang", 1, "--fault, blocked-data, --talk"),
    "halted": Fault("hang", 1, "--fault, halted, --talk"),
    "slow": Fault("straggler", 1, '--fault, slow, --steps, "200"'),
    "shape": Fault("hang", 1, "--fault, other-shape"),
    "order": Fault("hang", 1, "--fault, other-order"),
    "missing": Fault("hang", 0, "--fault, missing"),
    "stop": Fault("CTRL-C", None, '--pause, "2"', then=when_running(stop_from_elsewhere), kind="stop"),
    "ctrl-c": Fault("CTRL-C", None, '--pause, "2"', then=when_running(interrupt), kind="stop"),
    "success": Fault("nothing", None),
}
CHOSEN = [name for name in os.environ.get("DSTUI_FAULTS", "").split(",") if name] or list(FAULTS)


async def seen(pilot: Pilot[int], folder: JobFolder, fault: Fault) -> tuple[float, str, int | None, str]:
    """Return what the pane shows once the job has ended (or hangs): time of the first report, cause, rank, kind."""
    why, first, done = pilot.app.screen.query_one(DiagnosisPane), 0.0, None
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        await pilot.pause(0.02)
        done = done or fault.then(folder)
        found = why.diagnosis
        if found is not None and why.display and found.title[:20] in screen(pilot):
            first = first or time.time()
            if status_json(folder).get("state") in FINAL and (done is None or not hasattr(done, "poll") or done.poll() is not None):
                await pilot.pause(1.0)  # the launcher's log may add something
                assert why.diagnosis is not None
                return first, why.diagnosis.cause or "unknown", why.diagnosis.first_failing_rank, why.diagnosis.kind
        elif fault.cause == "hang" and (late := late_rank(pilot)) is not None:
            return time.time(), "hang", late, "failure"
        elif fault.cause == "straggler" and (slow := re.search(r"rank (\d+) is the straggler", screen(pilot))):
            return time.time(), "straggler", int(slow[1]), "failure"
        elif pilot.app.session.state.run == "succeeded":
            at = time.time()
            await pilot.pause(2.0)
            return at, "nothing" if why.diagnosis is None else str(why.diagnosis.cause), None, fault.kind
    raise AssertionError(f"nothing was said:\n{screen(pilot)}")


def late_rank(pilot: Pilot[int]) -> int | None:
    """Return the rank that is missing in the collective, and its line, as the pane shows it without a key."""
    text = " ".join(text_of(pilot, "#why").split())
    line = r"rank (\d+) has not reached the \w+ that rank \d+ waits in\..* rank \1: (?:in .*?crash_script\.py:\d+|unknown, a signal has stopped)"
    told = re.search(line, text) or re.search(
        r"wait in different collectives.* rank (\d+): waiting in \w+, from .*?crash_script\.py:\d+", text
    )
    return int(told[1]) if told else None


async def one(name: str, path: Path) -> dict[str, Any]:
    """Start the job, watch it, and record what is reported."""
    fault = FAULTS[name]
    path.mkdir()
    (path / "crash_script.py").write_text((HERE / "crash_script.py").read_text())
    with ExitStack() as stack:
        words = {"words": fault.words, "cluster": "", "env": "", **stack.enter_context(fault.prepare(path))}
        plan = load(PLAN.format(path=path, **words), "plan.yaml", str(path))
        folder = start(Target(plan, Machine.unprobed()), run_dir=path / "job")
        stack.callback(stop, folder)
        app = DstuiApp(plan, None, Machine.unprobed(), folder, reference=False)
        async with app.run_test(size=(120, 40)) as pilot:
            await pilot.pause()
            said, cause, rank, kind = await seen(pilot, folder, fault)
        ends = [rank.ended for rank in ranks_of(folder, folder.read_status()).ranks.values() if rank.ended]
        lines = [view.stat().st_mtime for number in (0, 1) if (view := folder.log(number)).exists()]
        since = max(lines) + plan.run.silence if cause == "hang" else max(ends, default=said)
    right = (cause, kind) == (fault.cause, fault.kind) and (fault.rank is None or rank == fault.rank)
    return {"fault": name, "cause": cause, "rank": rank, "seconds": round(said - since, 2), "right": right}


async def test_each_fault_is_named_with_its_rank_by_the_tui(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    outcomes = []
    for name in CHOSEN:
        try:
            outcomes.append(await one(name, tmp_path / name))
        except AssertionError as error:
            outcomes.append({"fault": name, "cause": str(error), "rank": None, "seconds": 0.0, "right": False})
        with capsys.disabled():
            told = outcomes[-1]
            slow = "   later than wanted" if told["seconds"] > SOON and told["fault"] != "success" else ""
            print(f"\n{told['fault']:<12} {told['cause']:<20} rank {told['rank']!s:<5} {told['seconds']:6.2f} s"
                  f"   {'right' if told['right'] else 'WRONG'}{slow}", end="")  # fmt: skip
    assert all(outcome["right"] for outcome in outcomes)
