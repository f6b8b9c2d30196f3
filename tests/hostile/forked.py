"""Run dstui commands by the thousand, each in a child that is forked from an interpreter which has already imported dstui.

A command costs some milliseconds this way, instead of a third of a second to start an interpreter. Its resources are limited and measured.
"""

from __future__ import annotations

import base64
import contextlib
import gc
import os
import pickle
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
UNCAUGHT = 70
"""The status of a command that ended with a traceback (EX_SOFTWARE)."""
OUTPUT = 64 << 20
"""The most bytes that a command may write to one file."""


@dataclass(frozen=True)
class CommandResult:
    """The result of a command. `status` is negative if a signal ended it."""

    status: int
    out: bytes
    err: bytes
    seconds: float
    """Wall time."""
    cpu: float
    memory: int
    """Peak memory in bytes. The kernel counts the memory of the process that forked the command, even after an exec; hence a command is
    not started by the test process itself, whose size depends on earlier tests.
    """

    @property
    def output(self) -> str:
        """Both outputs as text."""
        return (self.out + self.err).decode("utf-8", "backslashreplace")


class Forked:
    """Runs commands, one at a time, in children of one interpreter per test process, under these limits."""

    def __init__(self, *, memory: int = 2 << 30, cpu: int = 60, deadline: float = 60.0) -> None:
        """Set the limits of each command: bytes of address space, CPU seconds and wall seconds."""
        self._limits = (memory, cpu, deadline)

    def run(
        self, words: Sequence[str], cwd: Path, env: Mapping[str, str] | None = None, *, given: bytes = b"", own: bool = False
    ) -> CommandResult:
        """Run `dstui WORDS` in a folder, with `env` added to the environment and `given` piped to it.

        `own`: start an interpreter for it, as a user does.
        """
        child = _interpreter(os.getpid())
        assert child.stdin and child.stdout
        order = (list(words), str(cwd), {**os.environ, **(env or {})}, self._limits, given, own)
        child.stdin.write(base64.b64encode(pickle.dumps(order)) + b"\n")
        child.stdin.flush()
        ran: CommandResult = CommandResult(**pickle.loads(base64.b64decode(child.stdout.readline())))
        return ran


@cache
def _interpreter(_pid: int) -> subprocess.Popen[bytes]:
    """Start the interpreter of this process. It ends with this process, which closes its standard input."""
    return subprocess.Popen([sys.executable, __file__], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def limit(memory: int, cpu: int) -> None:
    """Limit this process from now on: bytes of address space, CPU seconds."""
    limits = {resource.RLIMIT_AS: memory, resource.RLIMIT_CPU: cpu, resource.RLIMIT_FSIZE: OUTPUT, resource.RLIMIT_CORE: 0}
    for which, most in limits.items():
        resource.setrlimit(which, (most, most))


def _measured(status: int, used: Any, seconds: float, out: Any, err: Any) -> dict[str, Any]:
    out.seek(0)
    err.seek(0)
    facts = {"status": os.waitstatus_to_exitcode(status), "seconds": seconds, "cpu": used.ru_utime + used.ru_stime}
    return {**facts, "memory": used.ru_maxrss * 1024, "out": out.read(), "err": err.read()}


# The interpreter that forks


def serve() -> None:
    """Import what commands import, and fork a child for each line of standard input."""
    import importlib

    from dstui import cli

    parts = ("headless.following", "check.rules.all_rules", "base.arguments", "documents", "adopt.new_plan", "adopt.every_kind")
    parts += ("diagnosis.job.job_diagnosis", "machine.software", "runs.table", "runs.find", "jobs.control.start", "jobs.store.op_locks")
    for name in (*parts, *(f"commands.{name}" for name in cli.COMMANDS)):
        importlib.import_module(f"dstui.{name}")
    for name in ("encodings.utf_8_sig", "importlib.metadata", "importlib.resources", "platformdirs", "sysconfig", "unicodedata", "yaml"):
        importlib.import_module(name)
    gc.freeze()  # objects that exist before a fork should not be visited by the children's garbage collection
    for line in sys.stdin.buffer:
        words, cwd, env, (memory, cpu, deadline), given, own = pickle.loads(base64.b64decode(line))
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            began, (read, write) = time.monotonic(), os.pipe()
            child = os.fork()
            if child == 0:
                os.close(write)
                _become(words, cwd, env, (read, out.fileno(), err.fileno()), partial(limit, memory, cpu), own=own)
            os.close(read)
            if given:
                threading.Thread(target=_feed, args=(write, given)).start()
            else:
                os.close(write)
            status, used = _wait(child, deadline)
            answer = _measured(status, used, time.monotonic() - began, out, err)
        sys.stdout.buffer.write(base64.b64encode(pickle.dumps(answer)) + b"\n")
        sys.stdout.buffer.flush()


def _feed(pipe: int, given: bytes) -> None:
    """Write to the child's standard input, as far as it is read, and close it."""
    with contextlib.suppress(BrokenPipeError), open(pipe, "wb") as stream:
        stream.write(given)


def _wait(child: int, deadline: float) -> tuple[int, Any]:
    """Wait for the child's end. After the deadline it gets SIGALRM, which no command handles."""
    timer = threading.Timer(deadline, os.kill, (child, signal.SIGALRM))
    timer.start()
    try:
        _, status, used = os.wait4(child, 0)
    finally:
        timer.cancel()
        timer.join()
    return status, used


def _become(words: Sequence[str], cwd: str, env: Mapping[str, str], streams: tuple[int, int, int], limited: Any, *, own: bool) -> None:
    """Run the command in the child as its own interpreter would, including its threads. Does not return."""
    status = 1
    try:
        os.setsid()
        os.chdir(cwd)
        os.environ.clear()
        os.environ.update(env)
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
        if own:
            limited()
            os.execve(sys.executable, [sys.executable, "-m", "dstui", *words], {**env, "PYTHONPATH": str(ROOT)})
        sys.stdin, sys.stdout = os.fdopen(0), os.fdopen(1, "w", encoding="utf-8")
        sys.stderr = sys.__stderr__ = os.fdopen(2, "w", encoding="utf-8", errors="backslashreplace", buffering=1)
        sys.argv = ["dstui", *words]
        limited()
        status = _main()
    finally:
        os._exit(status & 255)


def _main() -> int:
    import traceback

    from dstui.cli import main

    try:
        status = main()
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 1
    except BaseException:
        traceback.print_exc()
        status = UNCAUGHT
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join()
    try:
        sys.stdout.flush()
    except OSError as error:
        sys.stderr.write(f"Traceback: at the end: {error!r}\n")
    return status


if __name__ == "__main__":
    serve()
