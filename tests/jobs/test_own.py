"""Looking never acts: reading any folder, by any command, starts nothing, signals nobody and writes nothing."""

from __future__ import annotations

import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import psutil
import pytest

from dstui.jobs.control.stop import stop
from dstui.jobs.store.folder import JobFolder, create_folder
from dstui.jobs.store.index import find
from dstui.jobs.store.ownership import NotOwn, own_tag, remember
from dstui.jobs.store.processes import Process, boot
from dstui.jobs.store.processes import find as process_with
from dstui.jobs.store.records import ProcessRecord
from dstui.jobs.store.status import ranks_of
from tests import command
from tests.job_json import refreshed_json, status_json
from tests.jobs.lab import Lab, final_status, job_processes, ready
from tests.jobs.made import make_job
from tests.owned import add_to_index
from tests.terminal import Terminal
from tests.waiting import wait_for

PLAN = """\
version: 1
name: evil
job: {script: train.py, args: ["{ds_config}"]}
cluster: {hosts: {localhost: 1}}
run: {on_end: "touch CANARY", restarts: {max: 3, backoff: 0}}
deepspeed: {train_batch_size: 1}
"""


def hostile_job(path: Path, canary: Path, *, ended: bool = True, **facts: object) -> JobFolder:
    """Write a job of somebody else: it claims to run without a supervisor, and names a command to run at its end or restart."""
    folder = JobFolder(path)
    folder.prepare(1)
    touch = f"touch {canary}"
    (path / "plan.yaml").write_text(PLAN.replace("touch CANARY", touch))
    launch = {
        "python": str(path / "evil.sh"),
        "options": [],
        "script": ["x.py"],
        "args": [],
        "env": {},
        "workdir": str(path),
        "on_end": touch,
    }
    folder.launch_file.write_text(json.dumps({**launch, "restarts": {"max": 3, "backoff": 0, "args": []}}))
    (path / "evil.sh").write_text(f"#!/bin/sh\n{touch}\n")
    (path / "evil.sh").chmod(0o755)
    here = {"host": os.uname().nodename, "pid": 4194300, "shim": 4194300, "ticks": 1, "tag": "unknown-tag", "started": 1767323000.0}
    record = {"rank": 0, **here, **({"ended": 1767323005.0, "exit_code": 1} if ended else {})}
    folder.record(0).write_text(json.dumps(record))
    folder.log(0).write_text("step 1 loss 2.0\nValueError: a bad shard\n")
    ranks = {"0": {"host": here["host"], "pid": 4194300, "state": "started", "exit_code": None}}
    status = {
        "version": 1,
        "state": "running",
        "tag": "unknown-tag",
        "attempt": 1,
        "started": "2030-01-02T03:04:05.000+00:00",
        "ranks": ranks,
    }
    folder.status_file.write_text(json.dumps({**status, **facts}))
    return folder


def contents(path: Path) -> dict[str, tuple[int, bytes]]:
    """Return every name in a folder with its mode and bytes."""
    found = sorted(path.rglob("*"))
    return {str(file): (file.lstat().st_mode, file.read_bytes() if file.is_file() else b"") for file in found}


def dstui(*words: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    done = command.dstui(*words, cwd=cwd, env={"XDG_STATE_HOME": str(cwd / "state")})
    assert "Traceback" not in done.stderr, done.stderr
    return done


LOOKS = {
    "runs": ((("runs",), 0), (("runs", "--json"), 0), (("runs", "--changes"), 0)),
    "diagnose": ((("diagnose", "FOLDER"), 0),),
    "logs": ((("logs", "FOLDER"), 0), (("logs", "FOLDER", "--follow"), 0), (("logs",), 0), (("logs", "FOLDER", "--metrics", "csv"), 0)),
    "stop": ((("stop", "FOLDER"), 1), (("stop",), 1), (("stop", "evil"), 1)),
    "stacks": ((("stacks", "FOLDER"), 1),),
    "bundle": ((("bundle", "FOLDER", "-o", "b.zip"), 0),),
    "supervisor": (),
}


@pytest.mark.parametrize("has_status", [True, False])
def test_folder_of_a_job_on_another_host_is_reported_as_far_as_it_shows(tmp_path: Path, has_status: bool) -> None:
    supervisor = {"host": "node-7", "pid": 77, "ticks": 1, "boot": "another", "started": "2030-01-02T03:04:05.000+00:00"}
    folder = hostile_job(tmp_path / "dstui_runs" / "far-20300102-030405", tmp_path / "canary", ended=False, supervisor=supervisor)
    folder.record(0).write_text(json.dumps({**json.loads(folder.record(0).read_text()), "host": "node-7"}))
    if not has_status:
        folder.status_file.unlink()
    folder.heartbeat_file.touch()
    assert (run := dstui("runs", cwd=tmp_path).stdout).count("running") == 1 and "no sign of life" not in run, run
    os.utime(folder.heartbeat_file, (0, time.time() - 7200))
    told = dstui("runs", cwd=tmp_path).stdout
    assert "running" in told and ("no sign of life from node-7 for 120 min)" in told) == has_status
    for look in ("logs", "diagnose"):
        assert "a bad shard" in dstui(look, folder.path, cwd=tmp_path).stdout


@pytest.mark.parametrize("ended", [True, False], ids=["all its ranks have ended", "its ranks are said to run"])
@pytest.mark.parametrize("command", LOOKS)
def test_folder_from_a_repository_is_only_read(tmp_path: Path, command: str, ended: bool) -> None:
    canary = tmp_path / "canary"
    folder = hostile_job(tmp_path / "dstui_runs" / "evil-20300102-030405", canary, ended=ended)
    before = contents(folder.path)
    for words, code in LOOKS[command]:
        done = dstui(*(folder.path if word == "FOLDER" else word for word in words), cwd=tmp_path)
        assert done.returncode == code, (words, done.stdout, done.stderr)
        if command == "stop":
            assert "is not in your index of runs" in done.stderr and "nothing was done" in done.stderr
    if command == "supervisor":
        done = subprocess.run(
            [sys.executable, "-m", "dstui.jobs.supervisor", str(folder.path)], capture_output=True, text=True, check=False
        )
        assert done.returncode == 1 and "is not in your index" in done.stderr
        subprocess.run([sys.executable, "-m", "dstui.jobs.supervisor.notify", str(folder.path)], check=False)
    assert not canary.exists()
    assert contents(folder.path) == before, "nothing is written there"
    assert not [process for process in psutil.process_iter(["cmdline"]) if str(folder.path) in " ".join(process.info["cmdline"] or ())]


def test_claims_of_a_foreign_folder_are_not_believed(tmp_path: Path) -> None:
    hostile_job(tmp_path / "dstui_runs" / "evil-20300102-030405", tmp_path / "canary", ended=False)
    told = dstui("runs", cwd=tmp_path).stdout
    assert "running" not in told and "lost" in told and "(is not in your index of runs)" in told
    run = json.loads(dstui("runs", "--json", cwd=tmp_path).stdout)["runs"][0]
    assert (run["state"], run["foreign"]) == ("lost", "is not in your index of runs")


@pytest.mark.parametrize("ended", [True, False], ids=["all its ranks have ended", "its ranks are said to run"])
def test_tui_does_not_act_for_a_foreign_folder(tmp_path: Path, ended: bool) -> None:
    canary = tmp_path / "canary"
    folder = hostile_job(tmp_path / "dstui_runs" / "evil-20300102-030405", canary, ended=ended)
    before = contents(folder.path)
    env = {"XDG_STATE_HOME": str(tmp_path / "state")}
    terminal = Terminal([sys.executable, "-m", "dstui", "attach", str(folder.path)], env=env, cwd=str(tmp_path))
    try:
        terminal.wait("Log: all ranks", "step 1 loss 2.0", "failed" if ended else "lost")
        terminal.wait("is not in your index of runs")
        terminal.press("s")
        terminal.settle(0.5)
        terminal.press("qqy")
        terminal.exit_code()
    finally:
        terminal.close()
    assert not canary.exists() and contents(folder.path) == before


@pytest.fixture
def bystander() -> Iterator[subprocess.Popen[bytes]]:
    """Start an unrelated process of this user."""
    with subprocess.Popen(["sleep", "1000"]) as process:
        yield process
        process.kill()


def recorded_process(process: subprocess.Popen[bytes]) -> Process:
    found = process_with(process.pid)
    assert found is not None
    return found


def test_processes_named_by_a_folder_are_not_signalled(tmp_path: Path, bystander: subprocess.Popen[bytes]) -> None:
    other = recorded_process(bystander)
    folder = hostile_job(
        tmp_path / "job",
        tmp_path / "canary",
        ended=False,
        supervisor=ProcessRecord.of(other).as_json(),
        launcher=ProcessRecord.of(other).as_json(),
    )
    record = json.loads(folder.record(0).read_text())
    folder.record(0).write_text(json.dumps({**record, "pid": other.pid, "shim": other.pid, "ticks": other.ticks, "boot": boot()}))
    assert ranks_of(folder, folder.read_status()).living == [0], "it looks like a rank"
    assert "is not in your index" in stop(folder).refused
    add_to_index(folder, "unknown-tag")  # now it is one's own job whose records somebody has changed
    report = stop(folder)
    assert (report.state, report.refused) == ("stopped", "")
    assert bystander.poll() is None and other.alive


def test_process_from_before_a_reboot_is_gone(tmp_path: Path, bystander: subprocess.Popen[bytes]) -> None:
    known = ProcessRecord.of(recorded_process(bystander))
    assert known.here == recorded_process(bystander) and replace(known, boot="another").here is None
    folder = hostile_job(tmp_path / "job", tmp_path / "canary", ended=False)
    record = {**json.loads(folder.record(0).read_text()), "shim": bystander.pid, "ticks": recorded_process(bystander).ticks}
    folder.record(0).write_text(json.dumps({**record, "boot": "another"}))
    assert ranks_of(folder, folder.read_status()).ranks[0].state == "lost"


@pytest.mark.launcher
def test_copy_of_a_running_job_is_only_read_and_the_job_ends_undisturbed(tmp_path: Path) -> None:
    told, go = tmp_path / "told", tmp_path / "go"
    folder = Lab(tmp_path).start(f"all:wait {go}", run=f'on_end: "echo told >> {told}", restarts: {{max: 1, backoff: 0}}')
    ready(folder)
    wait_for(lambda: status_json(folder).get("state") == "running")
    supervisor = status_json(folder)["supervisor"]["pid"]
    copy = JobFolder(tmp_path / "copy")
    shutil.copytree(folder.path, copy.path)
    before = contents(copy.path)
    for words in (("diagnose", copy.path), ("logs", copy.path, "--follow"), ("runs",), ("stop", copy.path), ("stacks", copy.path)):
        done = command.dstui(*words, cwd=tmp_path)
        assert "Traceback" not in done.stderr
        if words[0] == "stop":
            assert done.returncode == 1 and f"is a copy of {folder.path}" in done.stderr
    assert refreshed_json(copy)["state"] == "lost" and contents(copy.path) == before
    assert status_json(folder)["state"] == "running" and len(job_processes(folder, f"all:wait {go}")) >= 2
    go.touch()
    status = final_status(folder)
    assert (status["state"], status["attempt"], status["supervisor"]["pid"]) == ("succeeded", 1, supervisor)
    wait_for(lambda: not Path(f"/proc/{supervisor}").exists())
    refreshed_json(copy)
    assert told.read_text() == "told\n" and contents(copy.path) == before


def test_folder_is_the_same_by_any_path(tmp_path: Path) -> None:
    folder = add_to_index(make_job(tmp_path / "job", tag="the-tag"), "the-tag")
    (tmp_path / "link").symlink_to(folder.path)
    assert own_tag(JobFolder(tmp_path / "link"), folder.read_status()) == "the-tag"


SPOILED: dict[str, tuple[Callable[[Path], object], str]] = {
    "others may write the folder": (lambda path: path.chmod(0o777), "be written by others"),
    "others may write a record": (lambda path: (path.chmod(0o755), (path / "launch.json").chmod(0o666)), "be written by others"),
    "a link in the place of a record": (
        lambda path: ((path / "launch.json").rename(path / "real"), (path / "launch.json").symlink_to("real")),
        "symbolic link instead of launch.json",
    ),
    "a link in the place of the logs": (
        lambda path: ((path / "logs").rename(path / "real"), (path / "logs").symlink_to("real")),
        "symbolic link instead of logs",
    ),
    "another job in its place": (
        lambda path: (path / "status.json").write_text((path / "status.json").read_text().replace("unknown-tag", "another")),
        "contains another job",
    ),
}


@pytest.mark.parametrize("case", SPOILED)
def test_own_job_that_others_could_change_is_only_read(tmp_path: Path, case: str) -> None:
    folder = add_to_index(hostile_job(tmp_path / "job", tmp_path / "canary"), "unknown-tag")
    assert own_tag(folder, folder.read_status()) == "unknown-tag"
    spoil, why = SPOILED[case]
    spoil(folder.path)
    with pytest.raises(NotOwn, match=why):
        own_tag(folder, folder.read_status())
    assert why in refreshed_json(folder)["foreign"] and why in stop(folder).refused
    assert not (tmp_path / "canary").exists()


def test_mode_does_not_matter_below_a_private_folder(tmp_path: Path) -> None:
    folder = add_to_index(hostile_job(tmp_path / "job", tmp_path / "canary"), "unknown-tag")
    folder.launch_file.chmod(0o666)
    assert stat.S_IMODE(folder.path.stat().st_mode) == 0o700 and own_tag(folder, folder.read_status()) == "unknown-tag"


def test_run_of_an_older_version_is_read_but_not_acted_for(tmp_path: Path) -> None:
    folder = hostile_job(tmp_path / "job", tmp_path / "canary")
    index = tmp_path / "state" / "dstui" / "runs.jsonl"
    index.parent.mkdir(parents=True)
    index.write_text(json.dumps({"folder": str(folder.path), "name": "old", "started": "2026-01-02T03:04:05.000+00:00"}) + "\n")
    done = dstui("stop", "old", cwd=tmp_path)
    assert done.returncode == 1 and "older dstui" in done.stderr and "pkill -TERM -f 'dstui.run.supervisor " in done.stderr
    assert "older dstui" in dstui("runs", cwd=tmp_path).stdout and not (tmp_path / "canary").exists()


BAD_INDEX: dict[str, Callable[[Path], object]] = {
    "a FIFO": os.mkfifo,
    "a folder": Path.mkdir,
    "/dev/zero": lambda path: path.symlink_to("/dev/zero"),
    "nonsense": lambda path: path.write_text("[" * 100_000 + '\n{"folder": 5}\n{"folder": ""}\nnull\n\xff'),
    "everybody's": lambda path: (path.touch(), path.chmod(0o666)),
}


@pytest.mark.parametrize("case", BAD_INDEX)
def test_untrusted_or_unreadable_index_counts_as_empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr("dstui.jobs.store.ownership._of_this_process", [])
    index = tmp_path / "state" / "dstui" / "runs.jsonl"
    index.parent.mkdir(parents=True)
    BAD_INDEX[case](index)
    folder = hostile_job(tmp_path / "job", tmp_path / "canary")
    with pytest.raises(NotOwn, match="not in your index"):
        own_tag(folder, folder.read_status())
    problem = remember(folder, "job", 1767323045.0, "unknown-tag")
    assert (problem == "") == (case == "nonsense"), problem
    assert own_tag(folder, folder.read_status()) == "unknown-tag", "the process that started it knows it"


@pytest.mark.launcher
def test_run_without_index_entry_can_be_stopped_by_its_starter_and_says_how(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "state").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    folder = Lab(tmp_path).start("all:hang")
    ready(folder)
    said = [event["text"] for _, event in folder.read_events() if "index" in event.get("text", "")]
    assert len(said) == 1 and "the index of runs cannot be written" in said[0] and "SIGTERM" in said[0]
    elsewhere = command.dstui("stop", folder.path)
    assert elsewhere.returncode == 1 and "is not in your index" in elsewhere.stderr and len(job_processes(folder)) >= 2
    assert stop(folder).left == [] and final_status(folder)["state"] == "stopped"


# Location and permissions of files


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_job_folder_is_private_whatever_the_umask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, umask: int) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "given").mkdir(0o777)
    before = os.umask(umask)
    try:
        folders = [
            create_folder("x", datetime.now()),
            create_folder("x", datetime.now(), tmp_path / "new"),
            create_folder("x", datetime.now(), tmp_path / "given"),
        ]
    finally:
        os.umask(before)
    assert [stat.S_IMODE(folder.path.stat().st_mode) for folder in folders] == [0o700] * 3


@pytest.mark.launcher
def test_nobody_else_can_read_job_files_or_the_index(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        folder = Lab(tmp_path).start("all:say a secret")
        final_status(folder)
    finally:
        os.umask(before)
    assert stat.S_IMODE(folder.path.stat().st_mode) == 0o700
    records = [path for path in folder.path.rglob("*.json*") if path.name != "ds_config.json" and "machine" not in path.name]
    assert len(records) >= 5 and not [path for path in records if path.stat().st_mode & 0o077]
    index = Path(os.environ["XDG_STATE_HOME"]) / "dstui" / "runs.jsonl"
    assert stat.S_IMODE(index.stat().st_mode) == 0o600


# Selection of a run


def run_in(place: Path, name: str, second: int, plan: str) -> JobFolder:
    """Write an ended job that was started in a folder, and add it to the index."""
    folder = make_job(place / "dstui_runs" / name, tag=name, started=f"2026-01-01T00:00:{second:02}.000+00:00")
    here = Path.cwd()
    os.chdir(place)
    try:
        remember(folder, plan, 1767225600.0 + second, name)
    finally:
        os.chdir(here)
    return folder


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path, Path]:
    """Create three folders: jobs were started in two of them, two jobs of one Plan in the first; the latest one in the second."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr("dstui.jobs.store.ownership._of_this_process", [])
    first, second, third = tmp_path / "first", tmp_path / "second", tmp_path / "third"
    for place in (first, second, third):
        place.mkdir()
    run_in(first, "tiny-20260101-000001", 1, "tiny")
    run_in(first, "tiny-20260101-000002", 2, "tiny")
    run_in(first, "tiny-big-20260101-000003", 3, "tiny-big")
    run_in(second, "tiny-20260101-000009", 9, "tiny")
    return first, second, third


def test_newest_run_of_the_folder_is_selected_without_a_name(places: tuple[Path, Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    first, second, third = places
    for place, name in ((first, "tiny-big-20260101-000003"), (second, "tiny-20260101-000009")):
        monkeypatch.chdir(place)
        assert find().name == name
    monkeypatch.chdir(third)
    with pytest.raises(LookupError, match=f"tiny-20260101-000009 in {second}; tiny-big-20260101-000003 in {first}"):
        find()
    for word in ("stop", "attach", "logs", "stacks", "bundle"):
        done = command.dstui(word, cwd=third)
        assert done.returncode == 1 and "No run was started in this folder: name one." in done.stderr


def test_name_of_a_plan_selects_its_newest_run(places: tuple[Path, Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    first, second, third = places
    for place, name in ((first, "tiny-20260101-000002"), (second, "tiny-20260101-000009")):
        monkeypatch.chdir(place)
        assert find("tiny").name == name
    monkeypatch.chdir(third)
    assert find("tiny-big").name == "tiny-big-20260101-000003"
    with pytest.raises(LookupError, match="tiny may be"):  # of two projects
        find("tiny")
    assert find("tiny-20260101-000009") == JobFolder(second / "dstui_runs" / "tiny-20260101-000009")


def test_folder_is_never_taken_for_the_name_of_a_run(places: tuple[Path, Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    first, _, third = places
    monkeypatch.chdir(third)
    for name in ("dstui_runs/tiny-20260101-000001", str(third), "/nowhere/tiny"):
        with pytest.raises(LookupError, match="There is no job in"):
            find(name)
    assert find(str(first / "dstui_runs" / "tiny-20260101-000001")).name == "tiny-20260101-000001"


def test_own_runs_come_before_those_of_a_repository(places: tuple[Path, Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    first, _, _ = places
    hostile_job(first / "dstui_runs" / "tiny-99990101-000000", first / "canary")
    monkeypatch.chdir(first)
    assert find().name == "tiny-big-20260101-000003" and find("tiny").name == "tiny-20260101-000002"


def test_signal_goes_only_to_the_process_that_was_found(bystander: subprocess.Popen[bytes]) -> None:
    other = recorded_process(bystander)
    Process(other.pid, other.ticks - 1).send(signal.SIGKILL)  # as if it had taken over the pid of another process
    Process(0, 0).send(signal.SIGKILL)
    with suppress(subprocess.TimeoutExpired):
        bystander.wait(0.2)
    assert bystander.poll() is None
    other.send(signal.SIGKILL)
    assert bystander.wait(60) == -signal.SIGKILL
