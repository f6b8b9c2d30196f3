"""Files left on a host are only removed if they are the job's own and nobody uses them."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from dstui.jobs.store.cleanup import BuildNews, OpBuilds, build_root, remove_buffers
from dstui.jobs.store.op_locks import lock_findings, remove_locks, stale_locks
from tests.waiting import wait_for

HOLD = (
    "import mmap, sys; f = open(sys.argv[1], 'r+b'); m = mmap.mmap(f.fileno(), 0); f.close(); print('held', flush=True); sys.stdin.read()"
)


PIPES: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}


def buffer(folder: Path, address: str, port: int, rank: int) -> Path:
    path = folder / f"deepspeed_allreduce_buffer_{os.getuid()}_{address}_{port}_{rank}"
    path.write_bytes(b"x" * 4096)
    return path


def test_only_buffers_of_the_jobs_address_and_port_are_removed(tmp_path: Path) -> None:
    mine = {buffer(tmp_path, "10.0.0.1", 29501, rank) for rank in (0, 1, 10)}
    others = {buffer(tmp_path, "10.0.0.1", 2950, 0), buffer(tmp_path, "10.0.0.2", 29501, 0), buffer(tmp_path, "10.0.0.1", 29502, 0)}
    assert set(remove_buffers([("10.0.0.1", "29501"), ("10.0.0.1", "29501")], tmp_path)) == mine
    assert set(tmp_path.iterdir()) == others


def test_buffer_mapped_by_another_process_stays(tmp_path: Path) -> None:
    path = buffer(tmp_path, "127.0.0.1", 29501, 0)
    with subprocess.Popen([sys.executable, "-c", HOLD, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None and holder.stdout.readline() == b"held\n"
        assert remove_buffers([("127.0.0.1", "29501")], tmp_path) == []
        holder.communicate(b"")
    assert remove_buffers([("127.0.0.1", "29501")], tmp_path) == [path]


def test_unheld_lock_is_reported_once_with_its_path(tmp_path: Path) -> None:
    lock = tmp_path / "py311_cpu" / "shm_comm" / "lock"
    lock.parent.mkdir(parents=True)
    lock.touch()
    builds = OpBuilds(tmp_path)
    assert builds.poll({}) == []  # it may be about to end
    text = f"ranks that need shm_comm wait forever for a build that was killed; rm {lock} lets them continue"
    assert builds.poll({}) == [BuildNews(text, str(lock.parent), lasts=True)]
    assert builds.poll({}) == []
    builds.remove_locks()
    assert lock.exists()  # it does not belong to this job


def test_build_of_another_run_is_reported_until_it_ends(tmp_path: Path) -> None:
    lock = tmp_path / "cpu_adam" / "lock"
    lock.parent.mkdir()
    (tmp_path / "ninja").symlink_to("/bin/sh")
    builds = OpBuilds(tmp_path)
    with lock.open("w"), subprocess.Popen([tmp_path / "ninja", "-c", "echo; read line; sleep 100; true"], **PIPES) as ninja:
        assert ninja.stdin and ninja.stdout and ninja.stdout.readline()
        assert builds.poll({}) == []  # nothing to report so far
        ninja.stdin.write(b"\n")
        ninja.stdin.flush()
        text = f"process {os.getpid()}, not of this job, is compiling cpu_adam; ranks that need it wait"
        assert wait_for(partial(builds.poll, {})) == [BuildNews(text, str(lock.parent), lasts=True)]
        ninja.kill()
    lock.unlink()
    assert builds.poll({}) == [BuildNews("", str(lock.parent), lasts=False)]


def test_extensions_are_built_in_torchs_folder() -> None:
    assert build_root({"TORCH_EXTENSIONS_DIR": "/x", "HOME": "/h"}) == Path("/x")
    assert build_root({"XDG_CACHE_HOME": "/c", "HOME": "/h"}) == Path("/c/torch_extensions")
    assert build_root({"HOME": "/h"}) == Path("/h/.cache/torch_extensions")


BATON = """
import runpy, sys
from importlib.util import find_spec
torch = find_spec("torch").submodule_search_locations[0]  # this one file of it, which needs nothing of the rest
assert runpy.run_path(torch + "/utils/file_baton.py")["FileBaton"](sys.argv[1]).try_acquire()
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def baton(tmp_path: Path) -> Iterator[tuple[Path, subprocess.Popen[bytes]]]:
    """Yield torch's own lock in the build folder of an op, an hour old, and the process that holds it."""
    lock = tmp_path / "py311_cpu" / "cpu_adam" / "lock"
    lock.parent.mkdir(parents=True)
    with subprocess.Popen([sys.executable, "-c", BATON, str(lock)], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as builder:
        assert builder.stdout is not None and builder.stdout.readline() == b"held\n"
        os.utime(lock, (1e9, 1e9))
        yield lock, builder
        builder.kill()


def test_lock_of_a_living_build_is_not_stale(tmp_path: Path, baton: tuple[Path, subprocess.Popen[bytes]]) -> None:
    lock, _ = baton
    assert stale_locks(tmp_path) == ()
    assert "is kept: a process uses it" in remove_locks([str(lock)])
    assert lock.exists()


def test_lock_of_a_killed_build_is_reported_with_its_removal(tmp_path: Path, baton: tuple[Path, subprocess.Popen[bytes]]) -> None:
    lock, builder = baton
    builder.kill()
    builder.wait()
    assert stale_locks(tmp_path) == (lock,)
    (finding,) = lock_findings(stale_locks(tmp_path))
    assert finding.fix is not None and finding.fix.by_key
    assert finding.fix.text == f"remove the lock: rm {lock}"
    assert lock.exists()  # looking removes nothing
    assert remove_locks(finding.fix.removes) == f"{lock} is removed."
    assert not lock.exists()


def test_only_old_own_files_called_lock_count_as_locks(tmp_path: Path) -> None:
    for name in ("fresh", "linked", "pipe"):
        (tmp_path / name).mkdir()
    (tmp_path / "fresh" / "lock").touch()
    (tmp_path / "other").write_text("precious")
    (tmp_path / "linked" / "lock").symlink_to(tmp_path / "other")
    os.mkfifo(tmp_path / "pipe" / "lock")
    os.utime(tmp_path / "pipe" / "lock", (1e9, 1e9))
    os.utime(tmp_path / "other", (1e9, 1e9))
    assert stale_locks(tmp_path) == ()
    remove_locks([str(tmp_path / name) for name in ("fresh/lock", "linked/lock", "pipe/lock", "other")])
    assert all((tmp_path / name).exists() for name in ("fresh/lock", "linked/lock", "pipe/lock", "other"))


def test_lock_on_a_shared_disk_may_belong_to_another_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lock = tmp_path / "py311_cpu" / "cpu_adam" / "lock"
    lock.parent.mkdir(parents=True)
    lock.touch()
    shared = [SimpleNamespace(mountpoint="/", fstype="ext4"), SimpleNamespace(mountpoint=str(tmp_path), fstype="nfs4")]
    monkeypatch.setattr(psutil, "disk_partitions", lambda **_all: shared)
    for age, found in ((60, ()), (3600, (lock,))):
        os.utime(lock, (time.time() - age,) * 2)
        assert stale_locks(tmp_path) == found
