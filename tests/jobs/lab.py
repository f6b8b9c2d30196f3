"""A laboratory for real jobs: starting them, waiting for what can be seen of them, finding their processes."""

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
WHOLE_DEEPSPEED = 'env: {PYTHONPATH: ""}'
"""For a Plan's `cluster`: a launcher that imports torch and all of DeepSpeed, as users have it; the tests' does not (tests/bare_launcher)."""


class Lab:
    """A folder with a job in it: two ranks of `behave.py` under the real launcher."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def start(self, *behaviour: str, cluster: str = "", owner_pid: int | None = None, job: str = "", run: str = "") -> JobFolder:
        """Start a job whose ranks behave as said (see behave.py)."""
        script = job or f"script: {HERE / 'behave.py'}"
        words = ", ".join(f'"{word}"' for word in behaviour)
        text = f'version: 1\nname: lab\njob: {{{script}, args: [{words}], workdir: "{self.path}"}}\n'
        text += (
            f"cluster: {{hosts: {{localhost: 2}}{', ' + cluster if cluster else ''}}}\nrun: {{{run}}}\ndeepspeed: {{train_batch_size: 2}}\n"
        )
        plan = load(text, "lab.yaml", str(self.path))
        return start(Target(plan, Machine.unprobed()), run_dir=self.path / "job", owner_pid=owner_pid)


def end_of(folder: JobFolder) -> dict[str, Any]:
    """The final status, without bringing it up to date."""

    def final() -> dict[str, Any] | None:
        status = status_json(folder)
        return status if status.get("state") in FINAL else None

    found: dict[str, Any] = wait_for(final)
    return found


def ready(folder: JobFolder) -> None:
    """Wait until both ranks have said that they are there."""
    wait_for(lambda: all(b"ready" in read(folder.log(rank)) for rank in (0, 1)))


def read(path: Path) -> bytes:
    """A file's bytes; nothing where it does not exist yet."""
    return path.read_bytes() if path.exists() else b""


def of_job(folder: JobFolder, *words: str) -> list[psutil.Process]:
    """The processes that carry the job's tag, and these words on their command line."""
    tag, found = status_json(folder)["tag"], []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.environ().get("DSTUI_JOB") == tag and all(word in process.cmdline() for word in words):
                found.append(process)
    return found


def shims(folder: JobFolder) -> list[psutil.Process]:
    """The shims of a job's ranks."""
    return [process for process in of_job(folder, str(folder.path)) if any(word.endswith("shim.py") for word in process.cmdline()[:3])]


@contextmanager
def kills_by_the_kernel(*, wanted: bool) -> Iterator[None]:
    """The kernel counts for the whole host what it kills for want of memory: who provokes that does it while nobody relies on the count."""
    with (Path(tempfile.gettempdir()) / f"dstui-tests-{os.getuid()}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX if wanted else fcntl.LOCK_SH)
        yield


@contextmanager
def memory_cgroup(limit: int) -> Iterator[Path]:
    """A cgroup with so many bytes of memory; who writes its pid into `cgroup.procs` there is in it. Skips where none can be made."""
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


def gone(pid: int) -> bool:
    """Whether a process has ended (a zombie has)."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
