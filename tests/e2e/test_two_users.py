"""Two real users on one machine: what each sees of the other's jobs, and that nobody acts for another, whatever folders claim."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest

import dstui
from tests.launcher_path import BARE_LAUNCHER
from tests.terminal import Terminal
from tests.waiting import wait_for

pytestmark = [pytest.mark.launcher, pytest.mark.xdist_group("two users")]

SECRET = "hunter2-of-user-a"
PLAN = """\
version: 1
name: shared
job: {script: train.py, args: [--password, SECRET], integration: deepspeed}
cluster: {cpu_ranks: 1}
run: {on_end: "touch CANARY", restarts: {max: 1, backoff: 0}}
deepspeed: {train_batch_size: 1}
"""
SCRIPT = "import time\nprint('step 1 loss 2.0', flush=True)\ntime.sleep(1000)\n"
BECOME = "import os, sys; os.setgroups([]); os.setgid({0}); os.setuid({0}); os.umask(0o022); os.execvp(sys.argv[1], sys.argv[1:])"
LOOKS = (
    ("runs",),
    ("diagnose", "FOLDER"),
    ("logs", "FOLDER"),
    ("stop", "FOLDER"),
    ("stop",),
    ("stacks", "FOLDER"),
    ("bundle", "FOLDER", "-o", "bundle.zip"),
)
IN_OTHER_WORDS = (
    ("runs", "--json"),
    ("runs", "--changes"),
    ("diagnose", "FOLDER", "--json"),
    ("logs", "FOLDER", "--metrics", "csv"),
)
"""The same commands, whose output about a secret may differ."""


@dataclass(frozen=True)
class Python:
    """An interpreter with dstui that every user can run."""

    path: str
    env: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, place: Path) -> Python:
        """Return this interpreter; a copy with the same packages if its folder is closed to others."""
        this = cls(sys.executable)
        return this if this.runs() else cls._copied(place / "python")

    @classmethod
    def _copied(cls, place: Path) -> Python:
        stdlib, executable = Path(sysconfig.get_path("stdlib")), Path(sys.executable).resolve()
        shutil.copytree(stdlib, place / "lib" / stdlib.name, ignore=shutil.ignore_patterns("site-packages", "test", "idlelib"))
        for library in Path(sys.base_prefix, "lib").glob("libpython*"):
            shutil.copy2(library, place / "lib")
        (place / "bin").mkdir()
        shutil.copy2(executable, place / "bin" / executable.name)
        packages = [sysconfig.get_path("purelib"), str(Path(dstui.__file__).parents[1])]
        env = {"PYTHONHOME": str(place), "PYTHONPATH": ":".join((BARE_LAUNCHER, *packages)), "LD_LIBRARY_PATH": str(place / "lib")}
        return cls(str(place / "bin" / executable.name), env)

    def runs(self) -> bool:
        """Return whether others can run it."""
        argv = [sys.executable, "-c", BECOME.format(60_001), self.path, "-m", "dstui", "--version"]
        return subprocess.run(argv, cwd="/", env={**os.environ, **self.env, "HOME": "/"}, capture_output=True, check=False).returncode == 0


@dataclass
class User:
    """A user with an id and a home."""

    uid: int
    home: Path
    python: Python

    def argv(self, *words: object) -> list[str]:
        """Return a command line that runs dstui as this user."""
        return [sys.executable, "-c", BECOME.format(self.uid), self.python.path, "-m", "dstui", *map(str, words)]

    @property
    def env(self) -> dict[str, str]:
        mine = {
            "HOME": str(self.home),
            **{f"XDG_{name}_HOME": str(self.home / name.lower()) for name in ("STATE", "CONFIG", "CACHE", "DATA")},
        }
        return {**os.environ, **self.python.env, **mine, "DS_ACCELERATOR": "cpu", "USER": f"user{self.uid}"}

    def dstui(self, *words: object, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        """Run a dstui command and assert that it prints no traceback."""
        done = subprocess.run(
            self.argv(*words),
            cwd=cwd or self.home,
            env=self.env,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
            stdin=subprocess.DEVNULL,
        )
        assert "Traceback" not in done.stdout + done.stderr, (words, done.stderr)
        assert done.returncode in (0, 1, 2), (words, done)
        return done

    def own(self, path: Path) -> None:
        """Give everything below a path to this user."""
        for each in (path, *path.rglob("*")):
            os.chown(each, self.uid, self.uid, follow_symlinks=False)


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    """Yield a folder that every user can enter."""
    if os.geteuid() != 0:
        pytest.skip("two users need root")
    folder = Path(tempfile.mkdtemp(prefix="dstui-users-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def users(place: Path) -> tuple[User, User]:
    """Return the users A and B."""
    python, made = Python.of(place), list[User]()
    if not python.runs():
        pytest.skip("other users can run neither this interpreter nor a copy of it: its packages are in a folder that they cannot enter")
    for name, uid in (("a", 60_001), ("b", 60_002)):
        (place / name).mkdir(mode=0o755)
        made.append(User(uid, place / name, python))
        made[-1].own(place / name)
    a, b = made
    return a, b


@dataclass
class Running:
    """A's job."""

    folder: Path
    canary: Path
    pids: tuple[int, ...]

    def lives(self) -> bool:
        """Return whether all of it still runs, under its first supervisor."""
        tag = json.loads((self.folder / "status.json").read_text())["tag"]
        return all(map(psutil.pid_exists, self.pids)) and supervisors(self.folder) == 1 and bool(tag)


def supervisors(folder: Path) -> int:
    """Return the number of supervisors of a folder."""
    lines = [process.info["cmdline"] or [] for process in psutil.process_iter(["cmdline"])]
    return sum("dstui.jobs.supervisor" in line and str(folder) in line for line in lines)


@pytest.fixture(scope="module")
def job(users: tuple[User, User], place: Path) -> Iterator[Running]:
    """Start a job of A in a folder that nobody else may enter, as dstui creates it."""
    a, _ = users
    work, canary = a.home / "work", place / "canary-of-a"
    work.mkdir()
    (work / "train.py").write_text(SCRIPT)
    (work / "plan.yaml").write_text(PLAN.replace("CANARY", str(canary)).replace("SECRET", SECRET))
    a.own(work)
    done = a.dstui("--headless", "plan.yaml", "--detach", cwd=work)
    assert done.returncode == 0, done.stderr
    folder = Path(done.stdout.strip().splitlines()[-1])

    def rank() -> int | None:
        status = json.loads((folder / "status.json").read_text())
        return status["ranks"].get("0", {}).get("pid") if status["state"] == "running" else None

    pids = (wait_for(rank), json.loads((folder / "status.json").read_text())["supervisor"]["pid"])
    wait_for(lambda: b"step 1" in (folder / "logs" / "rank_0.log").read_bytes())
    yield Running(folder, canary, pids)
    assert a.dstui("stop", folder, cwd=work).returncode == 0
    wait_for(lambda: not any(map(psutil.pid_exists, pids)))


def look_at(user: User, folder: Path, cwd: Path, looks: tuple[tuple[str, ...], ...] = LOOKS) -> str:
    """Run every command and return all output."""
    said = ""
    for words in looks:
        done = user.dstui(*(folder if word == "FOLDER" else word for word in words), cwd=cwd)
        assert not (words[0] == "stop" and done.returncode == 0), f"stopped: {done.stdout}"
        said += done.stdout + done.stderr
    return said + followed(user, folder, cwd) + attached(user, folder, cwd)


def followed(user: User, folder: Path, cwd: Path) -> str:
    """Return the output of `logs --follow` in its first seconds, ended with ctrl+c."""
    argv = user.argv("logs", folder, "--follow")
    with subprocess.Popen(argv, cwd=cwd, env=user.env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as follows:
        with suppress(subprocess.TimeoutExpired):
            follows.wait(3.0)
        follows.send_signal(signal.SIGINT)
        said = follows.communicate(timeout=60)[0]
    assert "Traceback" not in said
    return said


def attached(user: User, folder: Path, cwd: Path) -> str:
    """Return the screen of `attach` after s and y, which would stop one's own job."""
    terminal = Terminal(user.argv("attach", folder), env=user.env, cwd=str(cwd))
    try:
        if may_enter(user, folder):
            terminal.wait("Log: all ranks", "it is read-only here")
            for key in ("s", "y"):
                terminal.press(key)
                terminal.settle(0.5, timeout=3.0)  # the clock of a running job always moves
            said = terminal.text
            terminal.press("q")
            assert terminal.exit_code() == 0
        else:
            assert terminal.exit_code() == 1
            said = terminal.text
    finally:
        terminal.close()
    assert "Traceback" not in said
    return said


def may_enter(user: User, folder: Path) -> bool:
    """Return whether a folder is open to a user."""
    facts = folder.stat()
    return user.uid in (0, facts.st_uid) or bool(facts.st_mode & 0o005)


def contents(folder: Path) -> dict[str, tuple[int, int, bytes]]:
    """Return every name below a folder with its owner, mode and bytes."""
    found = [(path, path.lstat()) for path in sorted(folder.rglob("*"))]
    return {str(path): (facts.st_uid, facts.st_mode, path.read_bytes() if path.is_file() else b"") for path, facts in found}


def test_private_job_is_invisible_to_others(users: tuple[User, User], job: Running) -> None:
    _, b = users
    assert job.folder.stat().st_mode & 0o777 == 0o700
    said = look_at(b, job.folder, b.home, LOOKS + IN_OTHER_WORDS)
    assert SECRET not in said and "step 1" not in said
    assert "is stopped" not in said and "No process is left" not in said
    assert job.lives()


def test_job_opened_to_others_is_only_readable(users: tuple[User, User], job: Running) -> None:
    a, b = users
    closed = {path: path.stat().st_mode & 0o777 for path in (job.folder, *job.folder.rglob("*"))}
    for path, mode in closed.items():
        path.chmod(mode | (0o055 if path.is_dir() else 0o044))
    try:
        said = look_at(b, job.folder, b.home, LOOKS + IN_OTHER_WORDS)
        assert "step 1 loss 2.0" in said
        assert "is another user's" in said
        assert "is stopped" not in said and "No process is left" not in said
        assert job.lives()
        assert not job.canary.exists()
        assert a.dstui("runs", cwd=a.home / "work").stdout.count("running") == 1
    finally:
        for path, mode in closed.items():
            with suppress(FileNotFoundError):
                path.chmod(mode)


def test_copy_of_anothers_job_starts_stops_and_reveals_nothing(users: tuple[User, User], job: Running) -> None:
    _, b = users
    copy = b.home / "dstui_runs" / job.folder.name
    shutil.copytree(job.folder, copy)
    b.own(b.home / "dstui_runs")
    before = contents(copy)
    said = look_at(b, copy, b.home)
    assert "is not in your index of runs" in said
    assert "is stopped" not in said
    assert contents(copy) == before
    assert supervisors(copy) == 0
    assert not job.canary.exists()
    assert job.lives()


@pytest.mark.parametrize("looker", [pytest.param("A", marks=pytest.mark.twin), "root"])
def test_command_in_anothers_folder_is_not_run(users: tuple[User, User], place: Path, looker: str) -> None:
    a, b = users
    canary = place / f"canary-for-{looker}"
    folder = b.home / f"for-{looker}" / "dstui_runs" / "evil-20300102-030405"
    hostile_job(folder, canary)
    b.own(b.home / f"for-{looker}")
    for path in (folder.parents[1], *folder.parents[1].rglob("*")):
        path.chmod(0o755 if path.is_dir() or path.suffix == ".sh" else 0o644)
    (place / looker).mkdir(mode=0o700, exist_ok=True)
    user = a if looker == "A" else User(0, place / looker, a.python)
    before = contents(folder)
    said = look_at(user, folder, user.home)
    assert "is another user's" in said
    assert "is stopped" not in said
    assert contents(folder) == before
    assert supervisors(folder) == 0
    assert not canary.exists()


def hostile_job(folder: Path, canary: Path) -> None:
    """Write a job as B would: it claims to run without a supervisor; ending it, resuming it or asking its interpreter runs a command."""
    touch = f"touch {canary}"
    for name in ("logs", "ranks"):
        (folder / name).mkdir(parents=True)
    (folder / "evil.sh").write_text(f"#!/bin/sh\n{touch}\n")
    (folder / "plan.yaml").write_text(PLAN.replace("touch CANARY", touch).replace("script:", f"python: {folder}/evil.sh, script:"))
    launch = {
        "python": f"{folder}/evil.sh",
        "options": [],
        "script": ["x.py"],
        "args": [],
        "env": {},
        "workdir": str(folder),
        "on_end": touch,
    }
    (folder / "launch.json").write_text(json.dumps({**launch, "restarts": {"max": 3, "backoff": 0, "args": []}}))
    (folder / "logs" / "rank_0.log").write_text("step 1 loss 2.0\nValueError: a bad shard\n")
    (folder / "events.jsonl").write_text("")
    ranks = {"0": {"host": os.uname().nodename, "pid": 1, "state": "started", "exit_code": None}}
    status = {
        "version": 1,
        "state": "running",
        "tag": "b-tag",
        "attempt": 1,
        "started": time.strftime("%Y-%m-%dT%H:%M:%S.000+00:00"),
        "ranks": ranks,
    }
    (folder / "status.json").write_text(json.dumps(status))
    record = {"rank": 0, "host": os.uname().nodename, "pid": 4194300, "shim": 4194300, "ticks": 1, "tag": "b-tag", "started": 1767323000.0}
    (folder / "ranks" / "rank_0.json").write_text(json.dumps({**record, "ended": 1767323005.0, "exit_code": 1}))
