"""Run a look-up program as a child process with a deadline, and collect its lines.

The child may hang inside the kernel, where even SIGKILL waits: then it is abandoned, and its output so far is kept.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from dstui.base import child_python

Line = tuple[str, Any]
"""The kind of a fact ("gpu", "host", …) and its value."""

HERE = Path(__file__).parent
PACKAGE = str(HERE.parent.parent)
IMPORTED = "import sys; sys.path.append({package!r}); from dstui.machine.{program} import main; main()"
"""Runs a look-up program from its cached bytecode: compiling it takes a fifth of its CPU time."""
DONE = "done"
LAST_LINE = b'["done", null]\n'


def run_lookup(program: str, deadline: float, *args: str, python: str = sys.executable, env: Mapping[str, str] | None = None) -> list[Line]:
    """Return the lines that `dstui/machine/PROGRAM.py` prints within `deadline` seconds.

    The last line is ("done", None) or ("late" | "failed", reason). The reason of a failure is the text on standard error.
    """
    command = [str(HERE / f"{program}.py")] if python != sys.executable else ["-c", IMPORTED.format(package=PACKAGE, program=program)]
    return run_command([python, *child_python.options(python), *command, *args], deadline, env=env)


def run_command(command: Sequence[str], deadline: float, *, stdin: bytes = b"", env: Mapping[str, str] | None = None) -> list[Line]:
    """Run a command that prints facts like the look-up programs. Never raises, and exceeds its deadline only slightly."""
    ends_at = time.monotonic() + deadline
    pipe = subprocess.PIPE
    try:
        child = subprocess.Popen(
            command,
            stdin=pipe,
            stdout=pipe,
            stderr=pipe,
            env=child_python.environment(env),
            cwd=child_python.NEUTRAL,
            start_new_session=True,
        )
    except OSError as error:
        return [("failed", f"{command[0]}: {error.strerror}")]
    try:
        out, err = _talk(child, stdin, ends_at)
        lines = [*_parsed(out)]
        if lines and lines[-1][0] == DONE:
            return lines
        left = max(0.0, ends_at - time.monotonic())
        return [*lines, _why(err, deadline, left)]
    finally:
        _end(child)


def _talk(child: subprocess.Popen[bytes], stdin: bytes, ends_at: float) -> tuple[bytes, bytes]:
    """Read both outputs until they close, the answer is complete, or the time is up."""
    assert child.stdin and child.stdout and child.stderr
    collected: dict[int, bytearray] = {child.stdout.fileno(): bytearray(), child.stderr.fileno(): bytearray()}
    with selectors.DefaultSelector() as selector:
        selector.register(child.stdout, selectors.EVENT_READ)
        selector.register(child.stderr, selectors.EVENT_READ)
        rest = memoryview(stdin)
        if rest:
            os.set_blocking(child.stdin.fileno(), False)
            selector.register(child.stdin, selectors.EVENT_WRITE)
        else:
            child.stdin.close()
        while selector.get_map() and (left := ends_at - time.monotonic()) > 0:
            for key, events in selector.select(left):
                if events & selectors.EVENT_WRITE:
                    rest = _feed(child.stdin, rest, selector)
                elif chunk := os.read(key.fd, 1 << 16):
                    collected[key.fd] += chunk
                    if chunk.endswith(LAST_LINE):
                        return bytes(collected[child.stdout.fileno()]), b""
                else:
                    selector.unregister(key.fileobj)
    return bytes(collected[child.stdout.fileno()]), bytes(collected[child.stderr.fileno()])


def _feed(pipe: IO[bytes], rest: memoryview, selector: selectors.BaseSelector) -> memoryview:
    """Write as much as the pipe takes. Close it after the last byte, or if the reader is gone."""
    try:
        rest = rest[os.write(pipe.fileno(), rest) :]
    except BrokenPipeError:
        rest = rest[:0]
    if not rest:
        selector.unregister(pipe)
        pipe.close()
    return rest


def _parsed(out: bytes) -> Iterator[Line]:
    """Yield the complete lines that are facts; a login shell may have printed others."""
    for line in out.split(b"\n"):
        if line.startswith(b"["):
            try:
                kind, value = json.loads(line)
            except ValueError:
                continue
            yield str(kind), value


def _why(err: bytes, deadline: float, left: float) -> Line:
    """Return why the answer is incomplete."""
    if left <= 0:
        return "late", f"no answer within {deadline:g} s"
    return "failed", err.decode(errors="replace").strip() or "it ended without an answer"


def _end(child: subprocess.Popen[bytes]) -> None:
    """Kill the child's whole group and wait for it, unless the kernel holds it."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(0.2)
    for pipe in (child.stdin, child.stdout, child.stderr):
        if pipe and not pipe.closed:
            pipe.close()
