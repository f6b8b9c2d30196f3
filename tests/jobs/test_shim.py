"""The shim between a launcher and a rank, alone: what it passes on and records, and which process dies with which."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dstui.jobs.rank import shim
from tests.jobs.lab import has_ended, read
from tests.waiting import wait_for

RANK = {"RANK": "3", "LOCAL_RANK": "1", "WORLD_SIZE": "4", "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29501"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for part in ("logs", "ranks"):
        (tmp_path / part).mkdir()
    return tmp_path


def begin(folder: Path, code: str, *args: str, env: dict[str, str] | None = None, through: tuple[str, ...] = ()) -> subprocess.Popen[bytes]:
    """Start a shim whose rank runs this code; `through`: a launcher command in between."""
    script = folder / "rank.py"
    script.write_text(code)
    names = {name: value for name, value in os.environ.items() if name not in RANK}
    words = [*through, sys.executable, shim.__file__, "--local_rank=1", str(folder), "the-tag", str(script), *args]
    return subprocess.Popen(words, env={**names, **(RANK if env is None else env)}, stderr=subprocess.PIPE)


def record(folder: Path, rank: int = 3) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(read(folder / "ranks" / f"rank_{rank}.json") or b"{}")
    return found


def started(folder: Path) -> dict[str, Any]:
    """Return the record once the rank has written its first line."""
    wait_for(lambda: b"ready" in read(folder / "logs" / "rank_3.log"))
    found: dict[str, Any] = wait_for(lambda: record(folder))
    return found


def kill_from_outside(pid: int, name: str) -> None:
    """Send a signal from a process other than the shim's launcher, which these tests are."""
    subprocess.run(["/bin/sh", "-c", f"kill -{name} {pid}"], check=True)


@pytest.mark.parametrize(("end", "code"), [("sys.exit(0)", 0), ("sys.exit(7)", 7), ("os.kill(os.getpid(), 9)", 137), ("os.abort()", 134)])
def test_exit_status_passes_through_and_is_recorded(folder: Path, end: str, code: int) -> None:
    assert begin(folder, f"import os, sys\n{end}").wait(30) == code
    found = record(folder)
    assert (found["exit_code"], found["rank"], found["world_size"], found["tag"]) == (code, 3, 4, "the-tag")
    assert found["host"] == os.uname().nodename
    assert found["started"] <= found["ended"]
    assert found["master"] == ["10.0.0.1", "29501"]
    assert found["local_rank"] == 1


def test_gpus_visible_to_a_rank_are_recorded(folder: Path) -> None:
    assert begin(folder, "", env={**RANK, "CUDA_VISIBLE_DEVICES": "1,3"}).wait(30) == 0
    assert record(folder)["gpus"] == "1,3"


def test_both_outputs_go_to_the_ranks_log_and_local_rank_to_the_script(folder: Path) -> None:
    code = "import os, sys\nprint(sys.argv[1:], os.environ['DSTUI_JOB'])\nsys.stderr.write('to stderr')\nprint(1 / 0)"
    assert begin(folder, code, "a b", "$HOME").wait(30) == 1
    log = (folder / "logs" / "rank_3.log").read_text()
    assert log.startswith("['--local_rank=1', 'a b', '$HOME'] the-tag\nto stderr")
    assert "ZeroDivisionError" in log


def test_module_runs_as_with_python_m(folder: Path) -> None:
    words = [sys.executable, shim.__file__, "--local_rank=1", str(folder), "the-tag", "-m", "platform", "--terse"]
    assert subprocess.run(words, env={**os.environ, **RANK}, check=False).returncode == 0
    assert (folder / "logs" / "rank_3.log").read_text().startswith("Linux")


def test_mpi_and_slurm_ranks_get_the_names_that_deepspeed_reads(folder: Path) -> None:
    code = "import os\nprint(*(os.environ[n] for n in ('RANK', 'LOCAL_RANK', 'WORLD_SIZE')))"
    given = {"OMPI_COMM_WORLD_RANK": "5", "OMPI_COMM_WORLD_LOCAL_RANK": "1", "OMPI_COMM_WORLD_SIZE": "8"}
    assert begin(folder, code, env=given).wait(30) == 0
    assert (folder / "logs" / "rank_5.log").read_text() == "5 1 8\n"


def test_shim_without_a_rank_runs_nothing_and_says_why(folder: Path) -> None:
    process = begin(folder, "print('never')", env={})
    _, said = process.communicate()
    assert process.returncode == 2
    assert b"no rank (none of RANK, OMPI_COMM_WORLD_RANK" in said


def test_rank_dies_when_the_shim_is_killed(folder: Path) -> None:
    process = begin(folder, "import time\nprint('ready', flush=True)\ntime.sleep(1000)")
    pid = started(folder)["pid"]
    process.kill()
    process.wait()
    wait_for(lambda: has_ended(pid))
    assert record(folder)["exit_code"] is None


def test_signal_from_outside_is_passed_on(folder: Path) -> None:
    code = "import signal, time, sys\nsignal.signal(signal.SIGUSR1, lambda *_: sys.exit(9))\nprint('ready', flush=True)\ntime.sleep(1000)"
    process = begin(folder, code)
    started(folder)
    kill_from_outside(process.pid, "USR1")
    assert process.wait(30) == 9


PARENT = """
import os, pathlib, signal, subprocess, sys, time
child = subprocess.Popen(sys.argv[1:])
signal.signal(signal.SIGUSR2, lambda *_: (child.send_signal(signal.SIGTERM), pathlib.Path("sent").touch()))
signal.signal(signal.SIGUSR1, lambda *_: os._exit(0))
while True:
    time.sleep(1000)
"""
LISTENING = """
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: (print("asked to end", flush=True), sys.exit(0)))
signal.signal(signal.SIGUSR1, lambda *_: print("outside", flush=True))
print("ready", flush=True)
while True:
    time.sleep(1000)
"""


def test_launcher_signal_is_not_doubled_but_launcher_death_is_passed_on(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Launchers signal the whole tree themselves. If the launcher dies, the shim asks the rank to end."""
    monkeypatch.chdir(tmp_path)
    parent = begin(folder, LISTENING, through=(sys.executable, "-c", PARENT))
    found = started(folder)
    log = folder / "logs" / "rank_3.log"
    parent.send_signal(signal.SIGUSR2)
    wait_for((tmp_path / "sent").exists)
    for count in (1, 2):  # once the second has arrived, the launcher's earlier signal has been handled
        kill_from_outside(found["shim"], "USR1")
        wait_for(lambda count=count: read(log).count(b"outside") == count)
    assert b"asked" not in read(log)
    parent.send_signal(signal.SIGUSR1)  # it dies
    parent.wait(30)
    assert wait_for(lambda: record(folder)["ended"])
    assert read(log).count(b"asked") == 1
    assert record(folder)["exit_code"] == 0


def test_folder_in_place_of_log_and_record_does_not_stop_the_rank(folder: Path) -> None:
    for name in ("logs/rank_3.log", "ranks/rank_3.json"):
        (folder / name).mkdir()
    process = begin(folder, "import sys\nsys.exit(5)")
    _, said = process.communicate(timeout=60)
    assert process.returncode == 5
    assert said.count(b"dstui: cannot write") == 3


@pytest.mark.parametrize("put", [lambda path: path.symlink_to("/dev/zero"), os.mkfifo], ids=["a link", "a FIFO"])
def test_link_or_pipe_costs_the_log_and_the_record_is_replaced(folder: Path, put: Callable[[Path], None]) -> None:
    for name in ("logs/rank_3.log", "ranks/rank_3.json"):
        put(folder / name)
    process = begin(folder, "import sys\nsys.exit(5)")
    _, said = process.communicate(timeout=60)
    assert process.returncode == 5
    assert said.count(b"dstui: cannot write") == 1
    record = folder / "ranks" / "rank_3.json"
    assert record.is_file() and not record.is_symlink()
    assert json.loads(record.read_text())["exit_code"] == 5


def test_record_is_written_into_a_deleted_folder(folder: Path) -> None:
    process = begin(folder, f"import shutil\nshutil.rmtree({str(folder / 'ranks')!r})")
    assert process.wait(60) == 0
    assert record(folder)["exit_code"] == 0


def test_record_is_written_if_another_rank_recreates_the_folder_meanwhile(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make, path = os.mkdir, folder / "gone" / "rank_3.json"

    def make_after_another(name: str, mode: int) -> None:
        make(name, mode)
        make(name, mode)

    monkeypatch.setattr(os, "mkdir", make_after_another)
    shim.record(str(path), {"exit_code": 0})
    assert json.loads(path.read_text()) == {"exit_code": 0}


def test_blocked_and_ignored_signal_reaches_the_rank(folder: Path) -> None:
    """A shell does this under nohup, and with `&` in a script."""
    through = ("/bin/sh", "-c", 'trap "" INT HUP TERM; exec "$@"', "sh")
    process = begin(folder, "import signal, time\nprint('ready', flush=True)\ntime.sleep(1000)", through=through)
    started(folder)
    kill_from_outside(process.pid, "TERM")
    assert process.wait(30) == 143


def test_sender_of_a_signal_is_recorded(folder: Path) -> None:
    child = begin(folder, "import time\nprint('ready', flush=True)\ntime.sleep(600)")
    started(folder)
    kill_from_outside(child.pid, "TERM")
    assert child.wait(60) == 143
    assert record(folder)["signal"].startswith("SIGTERM from process ")
