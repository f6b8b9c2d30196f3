"""The GPUs' state every second: one child process that keeps NVML open and prints a line per interval.

A probe each second would start an interpreter each second; this takes about 1 % of a core with eight GPUs. The child exits when its
standard input closes, so it ends with its parent whatever happens.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import fields, replace
from types import TracebackType

from dstui.base import child_python
from dstui.base.dataclass import dataclass
from dstui.machine.child import HERE
from dstui.machine.codec import Maybe, Unknown, decode
from dstui.machine.snapshot import NOT_ASKED, Machine

PATIENCE = 5
"""After this many intervals without a line, the driver counts as hanging,"""
START_SECONDS = 3.0
"""but not before this time: a busy machine needs a moment to start the child."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuState:
    """The values that change every second, as in the snapshot's Gpu."""

    index: int
    memory_total: Maybe[int] = NOT_ASKED
    memory_used: Maybe[int] = NOT_ASKED
    memory_reserved: Maybe[int] = NOT_ASKED
    utilization: Maybe[int] = NOT_ASKED
    memory_utilization: Maybe[int] = NOT_ASKED
    temperature: Maybe[int] = NOT_ASKED
    power: Maybe[float] = NOT_ASKED
    throttle: Maybe[tuple[str, ...]] = NOT_ASKED


def update_states(machine: Machine, states: Mapping[int, GpuState]) -> Machine:
    """Return the machine with new states of its GPUs."""
    names = [field.name for field in fields(GpuState)]
    gpus = tuple(
        replace(gpu, **{name: getattr(states[gpu.index], name) for name in names}) if gpu.index in states else gpu for gpu in machine.gpus
    )
    return replace(machine, gpus=gpus)


class Live:
    """The stream of states. `poll` never blocks. `close`, or leaving the `with` block, ends the child."""

    def __init__(self, interval: float = 1.0, env: Mapping[str, str] | None = None) -> None:
        """Start the child. Its first line comes after about 50 ms."""
        self.interval = interval
        self._heard = time.monotonic()
        self._rest = b""
        self._child = subprocess.Popen(
            [sys.executable, str(HERE / "nvml.py"), "--watch", str(interval)],
            cwd=child_python.NEUTRAL,
            env=child_python.environment(env),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        assert self._child.stdout
        os.set_blocking(self._child.stdout.fileno(), False)

    @property
    def pid(self) -> int:
        """The process id of the child."""
        return self._child.pid

    def poll(self) -> dict[int, GpuState]:
        """Return the newest state of every GPU by index; empty if nothing is new."""
        newest: dict[int, GpuState] = {}
        for line in self._lines():
            kind, value = json.loads(line)
            if kind == "sample":
                newest = {state["index"]: decode(GpuState, state) for state in value}
        return newest

    @property
    def problem(self) -> Unknown | None:
        """The reason why no more states arrive; None while they do."""
        if self._child.poll() is not None:
            return Unknown("NVML is not there")
        silent = time.monotonic() - self._heard
        late = silent > max(START_SECONDS, PATIENCE * self.interval)
        return Unknown(f"the driver has not answered for {silent:.0f} s") if late else None

    def _lines(self) -> list[bytes]:
        assert self._child.stdout
        with contextlib.suppress(BlockingIOError, ValueError):
            while chunk := os.read(self._child.stdout.fileno(), 1 << 16):
                self._rest += chunk
        *lines, self._rest = self._rest.split(b"\n")
        if lines:
            self._heard = time.monotonic()
        return lines

    def close(self) -> None:
        """End the child. One that hangs in the driver is left to the kernel."""
        assert self._child.stdin and self._child.stdout
        self._child.stdin.close()
        self._child.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._child.wait(0.2)
        self._child.stdout.close()

    def __enter__(self) -> Live:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()
