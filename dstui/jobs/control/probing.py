"""Probe a Plan: its ranks start and end as soon as deepspeed.initialize has returned in each. Nothing is trained or saved."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dstui.base.dataclass import dataclass
from dstui.base.regular_files import read_end
from dstui.jobs.control.start import start
from dstui.jobs.control.stop import stop
from dstui.jobs.control.take_over import take_over
from dstui.jobs.engine.lines import LoneOptimizer, read_all
from dstui.jobs.engine.resolved import Resolved, lines, read_resolved
from dstui.jobs.store.folder import JobFolder
from dstui.jobs.watch.engine_notices import lone_sentence
from dstui.logs.decode import decode
from dstui.render.target import Target

DEADLINE = 600.0
"""Default seconds for the ranks to get that far."""
POLL = 0.1
LAST_LINES = 12
"""Lines of a failed rank's log that are shown."""


@dataclass(frozen=True, slots=True)
class Probed:
    """The result of a probe."""

    engines: tuple[Resolved, ...]
    expected: int
    """The number of engines in the Plan: one for each model."""
    ranks: int
    seconds: float
    problem: str = ""
    """The reason why fewer engines were made; "" if all were."""

    @property
    def ok(self) -> bool:
        """Return whether every engine was made, each as in the Plan."""
        return not self.problem and not any(engine.different for engine in self.engines)

    def lines(self) -> list[str]:
        """Return the result as text."""
        found = []
        for engine in self.engines:
            found += [*([f"{engine.made.name}:"] if engine.made.name else []), *lines(engine)]
        reached = f"{len(self.engines)} of {self.expected} engines" if self.expected > 1 else "deepspeed.initialize"
        end = f"{reached} reached by {self.ranks} rank{'s' * (self.ranks != 1)} in {self.seconds:.1f} s; nothing was trained or saved"
        return [*found, f"not as planned: {self.problem}" if self.problem else end]

    def as_json(self) -> dict[str, Any]:
        """Return the object that `dstui probe --json` documents."""
        return {
            "version": 1,
            "ok": self.ok,
            "problem": self.problem or None,
            "ranks": self.ranks,
            "seconds": round(self.seconds, 3),
            "engines": [engine.as_json() for engine in self.engines],
        }


def probe_plan(target: Target, deadline: float, asked: Callable[[], int | None] = lambda: None) -> Probed:
    """Start the ranks, wait until they have ended, and read their reports. Raises LaunchError if they cannot be started.

    `asked` returns the signal by which the user ends the probe, if there was one.
    """
    expected = max(len([name for name in target.plan.configurations if name]), 1)
    began = time.monotonic()
    place = Path(tempfile.mkdtemp(prefix="dstui-probe-"))
    try:
        folder = start(target, run_dir=place / (target.plan.name or "probe"), owner_pid=os.getpid(), probes=expected)
        late = _wait(folder, began + deadline, asked)
        engines = tuple(read_resolved(folder))
        ranks = len(status.ranks) if (status := folder.read_status()) else 0
        problem = "" if len(engines) >= expected and not late else _why(folder, deadline, late)
        return Probed(engines, expected, ranks, time.monotonic() - began, problem)
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _wait(folder: JobFolder, until: float, asked: Callable[[], int | None]) -> bool:
    """Wait for the end of the ranks. Return True if they had to be stopped."""
    while (status := take_over(folder)) is None or not status.final:
        if asked() or time.monotonic() > until:
            stop(folder, 128 + (asked() or signal.SIGTERM))
            return True
        time.sleep(POLL)
    return False


def _why(folder: JobFolder, deadline: float, late: bool) -> str:
    """Return why deepspeed.initialize was not reached, or not by all ranks."""
    status = folder.read_status()
    ranks = sorted(status.ranks) if status else []
    alone = [report for rank in ranks for report in read_all(folder.engine(rank), 1 << 16) if isinstance(report, LoneOptimizer)]
    if alone:
        return lone_sentence(alone)
    if late:
        return f"deepspeed.initialize had not returned in every rank after {deadline:g} s"
    if status and status.exit_code:
        failed = next((rank for rank in ranks if status.ranks[rank].exit_code), ranks[0] if ranks else 0)
        shown = "\n".join(f"  {decode(line)}" for line in _tail(folder.log(failed)))
        return f"rank {failed} ended with {status.exit_code} before that; the end of its log:\n{shown}"
    return "the script ended without calling deepspeed.initialize"


def _tail(path: Path) -> list[bytes]:
    try:
        return read_end(path, 16384).splitlines()[-LAST_LINES:]
    except OSError:
        return []
