"""The reference checker: a child process that has imported the installed DeepSpeed and answers many questions.

The child is `dstui/reference/parse.py` or `initialize.py`, run by file path with the interpreter of the ranks. These files document the
protocol.
"""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import field, replace
from pathlib import Path
from typing import Any

from dstui.base import child_python
from dstui.base.dataclass import dataclass
from dstui.documents.trusted_python import probe_python
from dstui.machine.codec import Unknown
from dstui.machine.snapshot import Machine
from dstui.plan import Plan

CHILDREN = Path(__file__).parent.parent / "reference"
START = 60.0
"""Seconds until the child must be ready: importing DeepSpeed takes 2 on an idle machine, 20 on a busy one."""
ANSWER = {"parse": 20.0, "initialize": 630.0}


class ReferenceFailure(Exception):
    """There is no verdict. Holds the reason as a sentence."""


@dataclass(frozen=True, slots=True)
class ReferenceVerdict:
    """The installed DeepSpeed's verdict on a configuration."""

    ok: bool
    version: str
    kind: str = ""
    """The class of the error it raised."""
    message: str = ""
    warnings: tuple[str, ...] = ()
    when: str | None = None
    """The moment of the failure, if it was asked for: parse, initialize or run."""
    types: Mapping[str, bool] = field(default_factory=dict)
    """The 16-bit floats that its CPU accelerator supports here."""
    instead_of: str = ""
    """The Plan's interpreter, if dstui's own was asked instead."""

    @property
    def name(self) -> str:
        """The version of DeepSpeed that judged."""
        return ("dstui's " if self.instead_of else "") + f"DeepSpeed {self.version}"


def add_float_types(machine: Machine, types: Mapping[str, bool]) -> Machine:
    """Return a machine without GPUs with the 16-bit floats that DeepSpeed's accelerator for CPUs supports."""
    if machine.accelerator != "cpu" or not types:
        return machine
    software = machine.software
    fp16, bf16 = types.get("fp16", software.fp16), types.get("bf16", software.bf16)
    return replace(machine, software=replace(software, fp16=fp16, bf16=bf16))


def ask_float_types(plan: Plan, machine: Machine) -> Machine:
    """Return the machine with DeepSpeed's answer on 16-bit floats if the Plan trains in fp16 on CPUs: only DeepSpeed knows it."""
    wanted = machine.accelerator == "cpu" and isinstance(machine.software.fp16, Unknown) and plan.get("deepspeed.fp16.enabled") is True
    if wanted:
        with suppress(ReferenceFailure), ReferenceChecker(probe_python(plan)) as checker:
            return add_float_types(machine, checker.types())
    return machine


class ReferenceChecker:
    """One child process. Start it early, since `judge` waits for it. Thread-safe."""

    def __init__(self, python: str = sys.executable, *, how: str = "parse", path: str = "") -> None:
        """Prepare a checker. `how`: parse or initialize; `path` goes first on the child's PYTHONPATH (another release of DeepSpeed)."""
        self.version, self.how, self._python = "", how, python
        self._types: Mapping[str, bool] = {}
        self._lock = threading.Lock()
        self._rest = b""
        self._asked = 0
        try:
            self._child = subprocess.Popen(
                [python, *child_python.options(python), str(CHILDREN / f"{how}.py")],
                cwd=child_python.NEUTRAL,
                env=child_python.environment(first=path),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
        except OSError as error:
            raise ReferenceFailure(f"{python} cannot be started: {error.strerror}") from None

    def validate(self, config: Mapping[str, Any] | str, world_size: int | None = None, **more: Any) -> ReferenceVerdict:
        """Return DeepSpeed's verdict on a configuration (or, with parse, on a file's text) for a number of ranks. Raises ReferenceFailure.

        `more` for initialize: steps=N trains N steps, optimizer=True passes one of the script's.
        """
        with self._lock:
            self._wait_until_ready()
            self._asked += 1
            what = {"text": config} if isinstance(config, str) else {"config": config}
            line = json.dumps({"id": self._asked, "world_size": world_size or 1, **what, **more}) + "\n"
            try:
                assert self._child.stdin is not None
                self._child.stdin.write(line.encode())
                self._child.stdin.flush()
            except OSError:
                raise ReferenceFailure("the reference checker's process has ended") from None
            answer = self._line(ANSWER[self.how])
        reported = tuple(answer.get("warnings", ()))
        return ReferenceVerdict(
            answer["ok"], self.version, answer["kind"] or "", answer["message"], reported, answer.get("when"), self._types
        )

    def types(self) -> Mapping[str, bool]:
        """Return which 16-bit floats, fp16 and bf16, DeepSpeed's accelerator for CPUs supports here. Raises ReferenceFailure."""
        with self._lock:
            self._wait_until_ready()
            return self._types

    def close(self) -> None:
        """End the child."""
        if self._child.poll() is None:
            self._child.kill()
        self._child.wait()
        for pipe in (self._child.stdin, self._child.stdout):
            if pipe is not None:
                pipe.close()

    def __enter__(self) -> ReferenceChecker:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def _wait_until_ready(self) -> None:
        if not self.version:
            reported = self._line(START)
            self.version, self._types = str(reported["version"]), reported.get("types", {})

    def _line(self, seconds: float) -> dict[str, Any]:
        """Return the next answer. Raises ReferenceFailure if none comes in time; the child is then unusable."""
        assert self._child.stdout is not None
        until = time.monotonic() + seconds
        with selectors.DefaultSelector() as selector:
            selector.register(self._child.stdout, selectors.EVENT_READ)
            while b"\n" not in self._rest:
                if not selector.select(max(0.0, until - time.monotonic())):
                    self._child.kill()
                    raise ReferenceFailure(f"DeepSpeed gave no answer in {seconds:.0f} s")
                if not (read := os.read(self._child.stdout.fileno(), 65536)):
                    raise ReferenceFailure(
                        f"{' '.join((self._python, *child_python.options(self._python)))} has no DeepSpeed that can be imported"
                        if not self.version
                        else "the reference checker's process has ended"
                    )
                self._rest += read
        line, _, self._rest = self._rest.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        return answer
