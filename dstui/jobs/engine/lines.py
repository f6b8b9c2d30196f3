"""The lines of a rank's hook (dstui/jobs/rank/hook/sitecustomize.py) as typed values.

They are not trusted: invalid lines are skipped, and texts are made safe to show.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from pathlib import Path
from typing import Any

from dstui.base.dataclass import dataclass
from dstui.base.regular_files import json_object, open_regular
from dstui.base.text import sanitise
from dstui.jobs.store.record_forms import integer_between, is_number, is_text, one_of, sound

CHUNK = 1 << 16
LONGEST = 1 << 19
"""Bytes of a line. A configuration has at most half of that."""

Form = Callable[[Any], bool]
MAX_COUNT = 1 << 62
is_count = integer_between(0, MAX_COUNT)
is_model = integer_between(1, 1 << 16)


def is_value(value: Any) -> bool:
    """Return whether a value is a number; NaN and infinity count."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _all(form: Form) -> Form:
    return lambda value: isinstance(value, list) and len(value) <= 1024 and all(map(form, value))


def _named(form: Form) -> Form:
    return lambda value: isinstance(value, dict) and len(value) <= 1024 and all(is_text(name) and form(v) for name, v in value.items())


def _or_none(form: Form) -> Form:
    return lambda value: value is None or form(value)


@dataclass(frozen=True, slots=True)
class HookStarted:
    """The rank's interpreter has started and imported the hook."""

    t: float = 0.0
    pid: int = 0
    mode: str = ""


@dataclass(frozen=True, slots=True)
class EngineMade:
    """deepspeed.initialize has made an engine."""

    t: float = 0.0
    model: int = 1
    """1 for the first engine of the process."""
    caller: str | None = None
    """`file:line` of the call; None if the engine was made in another way."""
    own: str | None = None
    """`file:line` of the user's own code that led to the call."""
    path: str | None = None
    """The file that the configuration was read from; None for a dictionary."""
    config: Mapping[str, Any] | None = None
    """The configuration in DeepSpeed, with every "auto" replaced; None if it is too large."""
    batch: list[int] = field(default_factory=list)
    """train_batch_size, train_micro_batch_size_per_gpu, gradient_accumulation_steps"""
    stage: int | None = None
    parameters: int | None = None
    trained: int | None = None
    engine: str = ""
    optimizer: str | None = None
    inner_optimizer: str | None = None
    """The optimizer that DeepSpeed's own wraps."""
    scheduler: str | None = None
    groups: Mapping[str, int | None] = field(default_factory=dict)
    """Ranks per group: data, tensor, sequence, pipe, expert."""
    precision: str = ""
    device: str = ""
    device_name: str | None = None
    versions: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The model's name in the Plan, from the file name of its configuration; "" if the Plan has one model."""
        file = os.path.basename(self.path or "")  # noqa: PTH119 - a text, of another machine maybe
        return file[len("ds_config_") : -len(".json")] if file.startswith("ds_config_") and file.endswith(".json") else ""


@dataclass(frozen=True, slots=True)
class EngineStep:
    """The engine has completed an optimizer step."""

    t: float = 0.0
    model: int = 1
    step: int = 0
    micro_steps: int = 1
    loss: float | None = None
    """This rank's mean over the micro-batches of the step, or their sum if the program divided them itself."""
    lr: list[float] = field(default_factory=list)
    grad_norm: float | None = None
    loss_scale: float | None = None
    skipped: int = 0
    samples: int = 0
    """Samples of all ranks since the beginning."""
    tokens: int | None = None
    """Tokens of this rank in this step, including padding."""
    elements: int | None = None
    """Elements of the first tensor passed to this rank's model, over the micro-batches of this step."""
    times: Mapping[str, float] = field(default_factory=dict)
    """Seconds: total, and forward, backward and step within it."""
    memory: Mapping[str, int] = field(default_factory=dict)
    """Bytes of the allocator: peak, reserved, and the allocation at the end of a phase."""
    rss: int | None = None

    @property
    def own_seconds(self) -> float | None:
        """Seconds of the step without waiting for other ranks: those outside of backward and step."""
        total = self.times.get("total")
        return None if total is None else max(total - self.times.get("backward", 0.0) - self.times.get("step", 0.0), 0.0)


@dataclass(frozen=True, slots=True)
class CheckpointCall:
    """The engine began or finished saving or loading a checkpoint. `kind`: save or load; `state`: begun or done."""

    t: float = 0.0
    model: int = 1
    step: int = 0
    kind: str = "save"
    state: str = "begun"
    folder: str | None = None
    tag: str | None = None
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class EvaluationDone:
    """The engine ran forward in evaluation mode, and trains again."""

    t: float = 0.0
    model: int = 1
    step: int = 0
    forwards: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class LoneOptimizer:
    """An optimizer of torch stepped without a call of deepspeed.initialize."""

    t: float = 0.0
    optimizer: str = ""
    caller: str = ""
    own: str | None = None
    ranks: int = 1
    """The world size of torch.distributed if that is initialised; else 1."""
    imported: bool = False
    """True if deepspeed had been imported."""


@dataclass(frozen=True, slots=True)
class HookFault:
    """An error in the hook itself; the training continues."""

    t: float = 0.0
    where: str = ""
    error: str = ""


@dataclass(frozen=True, slots=True)
class HookEnded:
    """The rank's interpreter has ended normally, or another program replaces it."""

    t: float = 0.0
    faults: int = 0
    program: str = ""
    """The program that replaces it, which is not observed."""


Report = HookStarted | EngineMade | EngineStep | CheckpointCall | EvaluationDone | LoneOptimizer | HookFault | HookEnded

FORMS: Mapping[type, Mapping[str, Form]] = {
    HookStarted: {"pid": is_count, "mode": is_text},
    EngineMade: {
        "model": is_model,
        "caller": is_text,
        "own": is_text,
        "path": is_text,
        "config": lambda value: isinstance(value, dict),
        "batch": _all(is_count),
        "stage": is_count,
        "parameters": is_count,
        "trained": is_count,
        "engine": is_text,
        "optimizer": is_text,
        "inner_optimizer": is_text,
        "scheduler": is_text,
        "groups": _named(_or_none(is_count)),
        "precision": is_text,
        "device": is_text,
        "device_name": is_text,
        "versions": _named(is_text),
    },
    EngineStep: {
        "model": is_model,
        "step": is_count,
        "micro_steps": is_count,
        "loss": is_value,
        "lr": _all(is_value),
        "grad_norm": is_value,
        "loss_scale": is_value,
        "skipped": is_count,
        "samples": is_count,
        "tokens": is_count,
        "elements": is_count,
        "times": _named(is_number),
        "memory": _named(is_count),
        "rss": is_count,
    },
    CheckpointCall: {
        "model": is_model,
        "step": is_count,
        "state": one_of(("begun", "done")),
        "folder": is_text,
        "tag": is_text,
        "seconds": is_number,
    },
    EvaluationDone: {"model": is_model, "step": is_count, "forwards": is_count, "seconds": is_number},
    LoneOptimizer: {
        "optimizer": is_text,
        "caller": is_text,
        "own": is_text,
        "ranks": is_count,
        "imported": lambda value: isinstance(value, bool),
    },
    HookFault: {"where": is_text, "error": is_text},
    HookEnded: {"faults": is_count, "program": is_text},
}
KINDS: Mapping[str, type] = {
    "start": HookStarted,
    "initialize": EngineMade,
    "step": EngineStep,
    "save": CheckpointCall,
    "load": CheckpointCall,
    "evaluation": EvaluationDone,
    "alone": LoneOptimizer,
    "fault": HookFault,
    "end": HookEnded,
}


def parse(line: bytes) -> Report | None:
    """Parse a line; None if its kind is unknown, or it is incomplete or invalid."""
    found = json_object(line)
    name = found.get("is")
    kind = KINDS.get(name) if isinstance(name, str) else None
    if kind is None or not is_number(found.get("t")) or not sound(found, FORMS[kind]):
        return None
    values = {key: _safe(value) for key in FORMS[kind] if (value := found.get(key)) is not None}
    if kind is CheckpointCall:
        values["kind"] = name
    report: Report = kind(t=found["t"], **values)
    return report


def _safe(value: Any) -> Any:
    """Return a value with all texts in it safe to show."""
    if isinstance(value, str):
        return sanitise(value)
    if isinstance(value, list):
        return [_safe(each) for each in value]
    return {sanitise(str(key)): _safe(each) for key, each in value.items()} if isinstance(value, dict) else value


class EngineLines:
    """Reads the lines of one rank as they arrive; the file may not exist yet."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd = -1
        self.at = 0
        """The number of bytes read."""
        self.modified: float | None = None
        """The time of the last write of the file, if anything of it was read."""
        self._rest = b""

    def read(self, budget: int = CHUNK) -> list[Report]:
        """Return the reports in at most `budget` further bytes; empty if nothing is new."""
        try:
            if self._fd < 0:
                self._fd = open_regular(self.path)
            data = os.pread(self._fd, budget, self.at)
        except OSError:
            return []
        if data:
            self.modified = os.fstat(self._fd).st_mtime
        self.at += len(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > LONGEST:
            self._rest = b""
        return [report for line in lines if (report := parse(line)) is not None]

    def skip_to_end(self, most: int) -> None:
        """Skip everything before the last `most` bytes. The line that is cut there is invalid and ignored."""
        if self._fd >= 0 and (begin := os.fstat(self._fd).st_size - most) > self.at:
            self.at, self._rest = begin, b""

    def close(self) -> None:
        """Close the file."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def read_all(path: Path, most: int = 1 << 30) -> Iterator[Report]:
    """Yield all lines that a rank has written so far."""
    lines = EngineLines(path)
    try:
        while lines.at < most:
            before = lines.at
            yield from lines.read(1 << 20)
            if lines.at == before:
                return
    finally:
        lines.close()
