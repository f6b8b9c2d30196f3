"""`dstui run` of harder scripts: parallel launches, fifty in a loop, launchers that refuse, kills, the Run screen."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dstui.jobs.store.folder import JobFolder
from dstui.jobs.store.status import current_status
from tests.terminal import Terminal
from tests.waiting import wait_for

PRINTS = "import os, sys\nprint('rank', os.environ['RANK'], sys.argv[-1], flush=True)\n"
TRAINS = PRINTS + "import torch\nif '--never' in sys.argv:\n    torch.ones(1, requires_grad=True).sum().backward()\n"


WAITS = """\
import os, time
open("up" + os.environ["RANK"], "w").close()
while not os.path.exists("go"):
    time.sleep(0.05)
print("rank", os.environ["RANK"], "went on", flush=True)
"""
WORDS = [sys.executable, "-m", "dstui", "run"]


def environment() -> dict[str, str]:
    if shutil.which("deepspeed", path=str(Path(sys.executable).parent)) is None:
        pytest.skip("there is no deepspeed program beside this interpreter: pip install deepspeed")
    return {**os.environ, "DS_ACCELERATOR": "cpu", "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin"}


def run(folder: Path, text: str, *options: str) -> subprocess.CompletedProcess[str]:
    (folder / "train.py").write_text(TRAINS if "plain loop" in text else PRINTS)
    words = [*WORDS, *options, "--", "bash", "-c", text]
    return subprocess.run(words, cwd=folder, env=environment(), capture_output=True, text=True, timeout=500, check=False)


def test_two_parallel_launches_are_two_jobs(tmp_path: Path) -> None:
    launch = "deepspeed --num_gpus 2 --master_port {} train.py {} & "
    done = run(tmp_path, launch.format(29641, "a") + launch.format(29642, "b") + "wait")
    ranks = sorted(line for line in done.stdout.splitlines() if line.startswith("rank"))
    assert (done.returncode, ranks) == (0, ["rank 0 a", "rank 0 b", "rank 1 a", "rank 1 b"]), done.stderr
    assert len(list(tmp_path.glob("dstui_runs/*/plan.yaml"))) == 2


def test_fifty_launches_in_a_loop_are_held_one_by_one(tmp_path: Path) -> None:
    done = run(tmp_path, "for n in $(seq 50); do deepspeed --num_gpus 2 train.py $n; done", "--hold", "-o", "held.yaml")
    assert done.returncode == 0, done.stderr
    assert len(list(tmp_path.glob("held*.yaml"))) == 50 and "args: [50]" in (tmp_path / "held-50.yaml").read_text()


def test_plain_torch_loop_is_warned_about_and_runs(tmp_path: Path) -> None:
    done = run(tmp_path, "deepspeed --num_gpus 2 train.py x  # a plain loop")
    assert done.returncode == 0 and "warning PL027" in done.stderr and "error PL027" not in done.stderr, done.stderr
    assert sum(line.startswith("rank") for line in done.stdout.splitlines()) == 2


@pytest.mark.parametrize(
    "launch",
    [
        "deepspeed --num_gpus 2 --m train A",
        "deepspeed --num_gpus 2 --launcher_args",
        "deepspeed --num_gpus 2 no_such_file.py",
        "torchrun --nproc_per_node 2 --start-method nonsense train.py",
        "torchrun --nproc_per_node 2 no_such_file.py",
        "PATH=/usr/bin:/bin; unset -f deepspeed; deepspeed --num_gpus 2 train.py",
    ],
)
def test_refusing_launcher_gives_its_own_message_and_status(launch: str, tmp_path: Path) -> None:
    text = f"{launch}; echo status $?"
    plain = subprocess.run(["bash", "-c", text], cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=300, check=False)
    done = run(tmp_path, text)
    statuses = [[line for line in one.stdout.splitlines() if line.startswith("status")] for one in (plain, done)]
    assert statuses[0] == statuses[1] != ["status 0"], done.stderr
    said = [line for line in plain.stderr.splitlines() if "error:" in line or "can't open" in line or "not found" in line]
    refused_here = "no_such_file.py (job.script): nothing was started" in done.stderr  # dstui's agent starts torchrun here
    assert said and (said[0].partition(": ")[2] in done.stdout + done.stderr or refused_here)


def test_traps_exports_and_exec_of_a_script_are_preserved(tmp_path: Path) -> None:
    text = """\
trap 'echo bye $?' EXIT
trap 'echo failed' ERR
export PATH=/usr/bin:/bin:$PATH
deepspeed --num_gpus 2 train.py a
( cd / && false )
source /dev/null
exec deepspeed --num_gpus 2 train.py b
"""
    done = run(tmp_path, text)
    lines = [line for line in done.stdout.splitlines() if line.startswith(("rank", "bye", "failed"))]
    assert done.returncode == 0 and lines[2] == "failed", done.stderr
    assert sorted(lines) == ["failed", "rank 0 a", "rank 0 b", "rank 1 a", "rank 1 b"]  # exec leaves nobody for the trap of EXIT


def started(folder: Path, text: str) -> tuple[subprocess.Popen[str], JobFolder]:
    """Start a script whose ranks wait for the file `go`; return it and its job."""
    (folder / "train.py").write_text(WAITS)
    words = [*WORDS, "--", "bash", "-c", text]
    process = subprocess.Popen(words, cwd=folder, env=environment(), stdout=subprocess.PIPE, text=True, start_new_session=True)
    wait_for(lambda: (folder / "up0").exists() and (folder / "up1").exists())
    return process, JobFolder(next(folder.glob("dstui_runs/*")))


def test_script_continues_if_dstui_run_is_killed(tmp_path: Path) -> None:
    process, job = started(tmp_path, "deepspeed --num_gpus 2 train.py; echo status $?")
    process.kill()
    (tmp_path / "go").touch()
    assert process.stdout is not None and "status 0" in process.stdout.read()
    status = current_status(job)
    assert status is not None and status.state == "succeeded"


def test_job_ends_if_its_stand_in_is_killed_and_the_script_notices(tmp_path: Path) -> None:
    process, job = started(tmp_path, "deepspeed --num_gpus 2 train.py; echo status $?")
    status = job.read_status()
    assert status is not None and status.owner is not None
    os.kill(status.owner.pid, signal.SIGKILL)
    assert "status 137" in process.communicate(timeout=120)[0]
    wait_for(lambda: (now := current_status(job)) and now.state == "stopped")


@pytest.mark.parametrize("leaves", [False, True], ids=["to its end", "left before"])
def test_each_launch_is_shown_on_the_run_screen_and_the_script_continues(leaves: bool, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(WAITS)
    text = "deepspeed --num_gpus 2 train.py > out.txt; echo status $? >> out.txt; exit 4"
    terminal = Terminal([*WORDS, "--tui", "--", "bash", "-c", text], env=environment(), cwd=str(tmp_path))
    try:
        terminal.wait("Ranks", "Log: all ranks", "running")
        if leaves:
            terminal.press("q")
            terminal.wait("dstui stop")  # printed after the TUI has closed
        (tmp_path / "go").touch()
        assert terminal.exit_code() == 4
    finally:
        terminal.close()
    lines = (tmp_path / "out.txt").read_text().splitlines()
    assert lines[-1] == "status 0" and {"rank 0 went on", "rank 1 went on"} <= set(lines)
