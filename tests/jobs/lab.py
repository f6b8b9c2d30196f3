"""Start real jobs, wait for observable events, and find their processes."""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from dstui.jobs.control.start import start
from dstui.jobs.store.folder import JobFolder
from dstui.logs.log_folder import FINAL
from dstui.machine.snapshot import Machine
from dstui.plan import load
from dstui.render.target import Target
from tests.job_json import status_json
from tests.waiting import wait_for

HERE = Path(__file__).parent
FULL_DEEPSPEED = 'env: {PYTHONPATH: ""}'
"""For a Plan's `cluster`: the launcher as users have it, which imports torch and all of DeepSpeed (the tests use tests/bare_launcher)."""


class Lab:
    """A folder with a job: two ranks of `behave.py` under the real launcher."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def start(self, *behaviour: str, cluster: str = "", owner_pid: int | None = None, job: str = "", run: str = "") -> JobFolder:
        """Start a job whose ranks do what the words of behave.py say."""
        script = job or f"script: {HERE / 'behave.py'}"
        words = ", ".join(f'"{word}"' for word in behaviour)
        text = f'version: 1\nname: lab\njob: {{{script}, args: [{words}], workdir: "{self.path}"}}\n'
        text += (
            f"cluster: {{hosts: {{localhost: 2}}{', ' + cluster if cluster else ''}}}\nrun: {{{run}}}\ndeepspeed: {{train_batch_size: 2}}\n"
        )
        plan = load(text, "lab.yaml", str(self.path))
        return start(Target(plan, Machine.unprobed()), run_dir=self.path / "job", owner_pid=owner_pid)


def final_status(folder: JobFolder) -> dict[str, Any]:
    """Wait for the final status and return it, without refreshing it."""

    def final() -> dict[str, Any] | None:
        status = status_json(folder)
        return status if status.get("state") in FINAL else None

    found: dict[str, Any] = wait_for(final)
    return found


def ready(folder: JobFolder) -> None:
    """Wait until both ranks have written "ready"."""
    wait_for(lambda: all(b"ready" in read(folder.log(rank)) for rank in (0, 1)))


def read(path: Path) -> bytes:
    """Return a file's bytes; nothing if it does not exist yet."""
    return path.read_bytes() if path.exists() else b""


def job_processes(folder: JobFolder, *words: str) -> list[psutil.Process]:
    """Return the processes with the job's tag and these words in their command line."""
    tag, found = status_json(folder)["tag"], []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.environ().get("DSTUI_JOB") == tag and all(word in process.cmdline() for word in words):
                found.append(process)
    return found


def shims(folder: JobFolder) -> list[psutil.Process]:
    """Return the shims of a job's ranks."""
    return [
        process for process in job_processes(folder, str(folder.path)) if any(word.endswith("shim.py") for word in process.cmdline()[:3])
    ]


@contextmanager
def kills_by_the_kernel(*, wanted: bool) -> Iterator[None]:
    """Lock the kernel's host-wide count of OOM kills: tests that provoke a kill must not run beside tests that read the count."""
    with (Path(tempfile.gettempdir()) / f"dstui-tests-{os.getuid()}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX if wanted else fcntl.LOCK_SH)
        yield


@contextmanager
def memory_cgroup(limit: int) -> Iterator[Path]:
    """Create a cgroup with a memory limit; a process joins it by writing its pid to `cgroup.procs`. Skips the test if that is impossible."""
    group = _new_cgroup(limit)
    if group is None:
        pytest.skip("no memory cgroup can be made here")
    try:
        with kills_by_the_kernel(wanted=True):
            yield group
    finally:
        wait_for(lambda: not (group / "cgroup.procs").read_text())
        group.rmdir()


def _new_cgroup(limit: int) -> Path | None:
    for base in ("/sys/fs/cgroup/memory", "/sys/fs/cgroup"):
        group = Path(base) / f"dstui-test-{os.getpid()}"
        with suppress(OSError):
            group.mkdir()
            for file in (group / "memory.max", group / "memory.limit_in_bytes"):
                if file.exists():
                    file.write_text(str(limit))
                    return group
            group.rmdir()
    return None


def has_ended(pid: int) -> bool:
    """Return whether a process has ended; a zombie has."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
