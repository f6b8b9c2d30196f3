"""The present phase of a rank, from the record that its hook updates in place."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

from dstui.base.dataclass import dataclass
from dstui.base.regular_files import read_json
from dstui.base.text import sanitise
from dstui.jobs.engine.lines import Form, is_count
from dstui.jobs.store.record_forms import integer_between, is_number, is_pid, is_text, sound

FORM: Mapping[str, Form] = {
    "pid": is_pid,
    "phase": is_text,
    "model": is_count,
    "step": is_count,
    "since": is_number,
    "raised": is_text,
    "signal": integer_between(34, 64),
    "faults": is_count,
    "t": is_number,
}


@dataclass(frozen=True, slots=True)
class RankNow:
    """The phase of a rank, or its last phase if it has ended."""

    pid: int
    phase: str
    """start, initialize, forward, backward, step, train_batch, evaluation, save, load, or between steps."""
    since: float
    """The begin of the phase, seconds since the epoch by the rank's clock."""
    step: int | None = None
    """Optimizer steps that are complete."""
    raised: str = ""
    """The class of the exception that left the phase."""
    signal: int | None = None
    """The signal at which faulthandler writes the rank's stacks."""

    def __str__(self) -> str:
        steps = f" after step {self.step:,}" if self.step is not None else ""
        where = {"between steps": "outside of the engine", "start": "before deepspeed.initialize"}.get(self.phase, f"in {self.phase}")
        return f"{where}{steps}"

    def seconds(self, until: float | None = None) -> float:
        """Return how long the phase has lasted."""
        return max((until or time.time()) - self.since, 0.0)


def read_now(path: Path) -> RankNow | None:
    """Read the record; None if there is none or it is invalid."""
    found = read_json(path)
    if not sound(found, FORM) or any(found.get(key) is None for key in ("pid", "phase", "since")):
        return None
    texts = sanitise(found["phase"]), sanitise(found.get("raised") or "")
    return RankNow(found["pid"], texts[0], found["since"], found.get("step"), texts[1], found.get("signal"))
