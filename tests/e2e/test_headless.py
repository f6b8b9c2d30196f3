"""`dstui --headless` with the real launcher: the job's exit status, and no process left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.terminal import Terminal
from tests.waiting import PATIENCE, wait_for

pytestmark = pytest.mark.launcher

PROBE = """\
import os, signal, sys, time
rank, what = int(os.environ["RANK"]), sys.argv[-1]
print(f"rank {rank} is up, config {os.path.exists(os.environ['DSTUI_DS_CONFIG'])}", flush=True)
if rank == 1 and what == "exit":
    sys.exit(3)
if rank == 1 and what == "kill":
    os.kill(os.getpid(), signal.SIGKILL)
while what == "chat":
    print("and on", flush=True)
    time.sleep(0.1)
if what != "end":
    time.sleep(1000)
"""


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """Return the folder of a Plan whose two ranks do what their argument says, without torch."""
    (tmp_path / "probe.py").write_text(PROBE)
    (tmp_path / "plan.yaml").write_text(
        "version: 1\nname: probe\njob: {script: probe.py, args: [end]}\ncluster: {hosts: {localhost: 2}, env: {DS_ACCELERATOR: cpu}}\n"
        "deepspeed: {train_micro_batch_size_per_gpu: 1}\n"
    )
    return tmp_path


def start(folder: Path, *args: str, what: str = "end") -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "dstui", "--headless", "plan.yaml", "--run-dir", "run", "--set", f"job.args=[{what}]", *args],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def processes_of(folder: Path) -> Iterator[str]:
    """Yield command lines of running processes of this job, found by its folder in command line or environment."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                text = (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes()
            except OSError:
                continue
            if str(folder / "run").encode() in text:
                yield text.decode(errors="replace").replace("\0", " ")[:200]


def test_successful_job_exits_with_0_and_lines_carry_their_rank(job: Path) -> None:
    process = start(job)
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, err
    assert "[0] rank 0 is up, config True" in out
    assert "[1] rank 1 is up, config True" in out
    assert "exit status 0" in out
    status = json.loads((job / "run" / "status.json").read_text())
    assert (status["state"], status["exit_code"], status["ranks"]["1"]["exit_code"]) == ("succeeded", 0, 0)
    assert (job / "run" / "logs" / "rank_1.log").read_text() == "rank 1 is up, config True\n"


@pytest.mark.parametrize(("what", "code"), [("exit", 3), ("kill", 137)])
def test_status_is_that_of_the_first_failed_rank(job: Path, what: str, code: int) -> None:
    process = start(job, what=what)
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == code, err
    assert "[rank 1" in out.rpartition("exit status")[2]  # the diagnosis names the rank that failed first
    assert list(processes_of(job)) == []


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_signal_stops_the_whole_job(job: Path, number: int, code: int) -> None:
    process = start(job, what="stay")
    assert process.stdout is not None
    for line in process.stdout:
        if "rank 1 is up" in line:
            break
    process.send_signal(number)
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == code, err
    assert list(processes_of(job)) == []
    status = json.loads((job / "run" / "status.json").read_text())
    assert (status["state"], status["exit_code"]) == ("stopped", code)


def test_ctrl_c_ends_a_probe_and_leaves_nothing(job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (job / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(job / "tmp"))
    words = [sys.executable, "-m", "dstui", "probe", "plan.yaml", "--set", "job.args=[stay]"]
    process = subprocess.Popen(words, cwd=job, stderr=subprocess.PIPE, text=True)
    wait_for(lambda: list((job / "tmp").glob("dstui-probe-*/probe/logs/rank_1.log")))
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGINT)
    assert "nothing was trained or saved" in process.communicate(timeout=PATIENCE)[1]
    assert (process.returncode, list((job / "tmp").glob("dstui-probe-*"))) == (130, [])


def test_closed_terminal_stops_the_job(job: Path) -> None:
    command = [sys.executable, "-m", "dstui", "--headless", "plan.yaml", "--run-dir", "run", "--set", "job.args=[stay]"]
    terminal = Terminal(command, cwd=str(job))
    terminal.wait("rank 0 is up", "rank 1 is up")
    assert terminal.hang_up() == 129
    assert list(processes_of(job)) == []
    status = json.loads((job / "run" / "status.json").read_text())
    assert (status["state"], status["exit_code"]) == ("stopped", 129)


def test_closed_pipe_stops_the_job(job: Path) -> None:
    process = start(job, what="chat")
    assert process.stdout is not None and process.stderr is not None
    for line in process.stdout:
        if "rank 1 is up" in line:
            break
    process.stdout.close()
    assert process.wait(PATIENCE) == 141
    assert "Traceback" not in process.stderr.read()
    assert list(processes_of(job)) == []
    assert json.loads((job / "run" / "status.json").read_text())["state"] == "stopped"


def test_killed_headless_takes_its_job_with_it_but_not_a_detached_one(job: Path) -> None:
    detached = start(job, "--detach", what="end")
    out, _ = detached.communicate(timeout=PATIENCE)
    assert (detached.returncode, out.strip()) == (0, str(job / "run"))
    attached = start(job, "--run-dir", "second", what="stay")
    assert attached.stdout is not None
    for line in attached.stdout:
        if "rank 0 is up" in line:
            break
    attached.kill()
    attached.wait()
    for name, state in {"run": "succeeded", "second": "stopped"}.items():
        wait_for(lambda name=name, state=state: json.loads((job / name / "status.json").read_text())["state"] == state)


def test_unwritable_index_is_reported_for_a_detached_job_too(job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (job / "no-folder").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(job / "no-folder"))
    done = start(job, "--detach")
    said = done.communicate(timeout=PATIENCE)
    assert done.returncode == 0
    assert said[0] == f"{job / 'run'}\n"
    assert "the index of runs cannot be written" in said[1]
    wait_for(lambda: not list(processes_of(job)))  # it ends by itself


def test_json_is_one_event_per_line_from_start_to_exit(job: Path) -> None:
    process = start(job, "--json")
    out, _ = process.communicate(timeout=PATIENCE)
    events = [json.loads(line) for line in out.splitlines()]
    assert ["version" in event for event in events] == [True] + [False] * (len(events) - 1)
    assert (events[0]["event"], events[0]["version"], events[-1]["event"], events[-1]["exit_code"]) == ("start", 1, "exit", 0)
    assert {"event": "rank", "rank": 1, "state": "ended", "exit_code": 0}.items() <= next(
        e for e in reversed(events) if e["event"] == "rank" and e["rank"] == 1
    ).items()
    assert any(e["event"] == "line" and e["rank"] == 0 and e["text"] == "rank 0 is up, config True" for e in events)


def test_json_of_a_failure_has_its_diagnosis_before_the_exit(job: Path) -> None:
    process = start(job, "--json", what="exit")
    out, _ = process.communicate(timeout=PATIENCE)
    *_, diagnosis, end = (json.loads(line) for line in out.splitlines())
    assert (diagnosis["event"], diagnosis["first_failing_rank"], "version" in diagnosis) == ("diagnosis", 1, False)
    assert (end["event"], end["exit_code"], process.returncode) == ("exit", 3, 3)


def test_interpreter_without_deepspeed_exits_with_1_and_writes_nothing(job: Path) -> None:
    bare = job / "python"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S -E "$@"\n')
    bare.chmod(0o755)
    process = start(job, "--set", "job.python=./python")
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 1
    assert "has no deepspeed" in err
    assert not (job / "run").exists()


@pytest.mark.parametrize(
    ("override", "sentence", "code"),
    [
        ("job.script=nowhere.py", "there is no file", 1),
        ("job.workdir=nowhere", "there is no folder", 1),
        ("deepspeed.zero_optimization.stage=7", "stage", 2),
        ("cluster.cpu_ranks=none", "expected a whole number", 2),
    ],
)
def test_obstacle_is_reported_before_anything_is_written(job: Path, override: str, sentence: str, code: int) -> None:
    process = start(job, "--set", override)
    _, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, "Traceback" in err) == (code, False), err
    assert sentence in err
    assert not (job / "run").exists()


def test_unwritable_job_folder_exits_with_1(job: Path) -> None:
    (job / "file").write_text("")
    (job / "full").mkdir()
    (job / "full" / "something").write_text("mine")
    for place, sentence in {"/proc/dstui": "Cannot make the job folder", "file": "is a file", "full": "is not empty"}.items():
        process = start(job, "--run-dir", place)
        _, err = process.communicate(timeout=PATIENCE)
        assert (process.returncode, sentence in err, "Traceback" in err) == (1, True, False), err
    assert [p.name for p in (job / "full").iterdir()] == ["something"]


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small file system needs root")
def test_full_disk_is_reported_and_leaves_nothing(job: Path) -> None:
    small = job / "small"
    small.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(small)], capture_output=True, check=False).returncode:
        pytest.skip("mount is not permitted here")
    try:
        (small / "ballast").write_bytes(b"x" * 60_000)
        process = start(job, "--run-dir", str(small / "run"))
        _, err = process.communicate(timeout=PATIENCE)
        assert (process.returncode, "disk is full" in err) == (1, True), err
        assert [p.name for p in small.iterdir()] == ["ballast"]
    finally:
        subprocess.run(["umount", str(small)], check=False)


def test_local_job_imports_nothing_for_other_hosts(job: Path) -> None:
    program = "import sys; from dstui.cli import main; code = main(['--headless', 'plan.yaml', '--run-dir', 'run']); "
    program += "print('MODULES', *sys.modules); sys.exit(code)"
    done = subprocess.run([sys.executable, "-c", program], cwd=job, capture_output=True, text=True, check=True)
    modules = done.stdout.rpartition("MODULES")[2].split()
    assert "rank 1 is up" in done.stdout and "dstui.jobs.control.start" in modules
    for_other_hosts = ("dstui.doctor", "dstui.hosts", "dstui.jobs.hosts", "dstui.machine.remote", "dstui.jobs.supervisor.host_orders")
    assert [name for name in modules if name.startswith(for_other_hosts)] == []
