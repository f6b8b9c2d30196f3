"""What stays behind on a host is removed only when it is the job's own and nobody uses it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from dstui.run.jobs.cleanup import OpBuilds, build_root, remove_buffers

HOLD = (
    "import mmap, sys; f = open(sys.argv[1], 'r+b'); m = mmap.mmap(f.fileno(), 0); f.close(); print('held', flush=True); sys.stdin.read()"
)


def buffer(folder: Path, address: str, port: int, rank: int) -> Path:
    path = folder / f"deepspeed_allreduce_buffer_{os.getuid()}_{address}_{port}_{rank}"
    path.write_bytes(b"x" * 4096)
    return path


def test_only_buffers_of_the_jobs_own_address_and_port_go(tmp_path: Path) -> None:
    mine = {buffer(tmp_path, "10.0.0.1", 29501, rank) for rank in (0, 1, 10)}
    others = {buffer(tmp_path, "10.0.0.1", 2950, 0), buffer(tmp_path, "10.0.0.2", 29501, 0), buffer(tmp_path, "10.0.0.1", 29502, 0)}
    assert set(remove_buffers([("10.0.0.1", "29501"), ("10.0.0.1", "29501")], tmp_path)) == mine
    assert set(tmp_path.iterdir()) == others


def test_a_buffer_that_another_process_has_mapped_stays(tmp_path: Path) -> None:
    path = buffer(tmp_path, "127.0.0.1", 29501, 0)
    with subprocess.Popen([sys.executable, "-c", HOLD, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None and holder.stdout.readline() == b"held\n"
        assert remove_buffers([("127.0.0.1", "29501")], tmp_path) == []
        holder.communicate(b"")
    assert remove_buffers([("127.0.0.1", "29501")], tmp_path) == [path]


def test_a_lock_that_nobody_holds_is_reported_once_with_its_path(tmp_path: Path) -> None:
    lock = tmp_path / "py311_cpu" / "shm_comm" / "lock"
    lock.parent.mkdir(parents=True)
    lock.touch()
    builds = OpBuilds(tmp_path)
    assert builds.poll({}) == []  # it may be on its way out
    assert builds.poll({}) == [f"{lock} was left by a build that was killed: ranks that need shm_comm wait for ever. Delete it"]
    assert builds.poll({}) == []
    builds.remove_locks()
    assert lock.exists()  # not of this job


def test_a_build_of_another_run_is_said_to_be_waited_for(tmp_path: Path) -> None:
    lock = tmp_path / "cpu_adam" / "lock"
    lock.parent.mkdir()
    with lock.open("w"):
        assert OpBuilds(tmp_path).poll({}) == [f"process {os.getpid()}, not of this job, is compiling cpu_adam; ranks that need it wait"]


def test_extensions_are_built_where_torch_builds_them() -> None:
    assert build_root({"TORCH_EXTENSIONS_DIR": "/x", "HOME": "/h"}) == Path("/x")
    assert build_root({"XDG_CACHE_HOME": "/c", "HOME": "/h"}) == Path("/c/torch_extensions")
    assert build_root({"HOME": "/h"}) == Path("/h/.cache/torch_extensions")
