"""Notices about the engines of a job: ranks that train without DeepSpeed, or with another configuration."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from statistics import median
from typing import Any

from dstui.jobs.engine.lines import EngineMade, HookEnded, HookFault, LoneOptimizer, Report
from dstui.jobs.engine.resolved import read_planned, resolve
from dstui.jobs.store.events import Notice
from dstui.jobs.store.folder import JobFolder
from dstui.jobs.store.ranks import ranks_in_words

ALONE, OTHER, OVERRIDDEN, UNOBSERVED, STRAGGLER = "alone", "other-configuration", "overridden", "not-observed", "straggler"
"""Values of `Notice.code`."""
INSTEAD = "numbers are read from the log lines, and stacks need py-spy"
SLOWER, LEAST = 2.0, 0.05
"""A straggler's own part of a step takes this many times that of the others, and at least this many seconds."""
PATIENCE, IMPORTED = 3.0, 7.0
"""Seconds for the other ranks to step after one has stepped without an engine; and for all, to make an engine once deepspeed is imported.
"""


class EngineNotices:
    """Turns the reports of all ranks into notices, each once."""

    def __init__(self, folder: JobFolder) -> None:
        self._folder = folder
        self._planned: dict[str, Mapping[str, Any]] | None = None
        self._alone: dict[int, LoneOptimizer] = {}
        self._since: float | None = None
        self._made: set[int] = set()
        self._sentences: set[str] = set()
        self._stragglers: set[int] = set()
        self._programs: set[str] = set()
        """Programs of which it was said that a rank has replaced itself with them."""

    def take(self, rank: int, report: Report) -> list[Notice]:
        """Return the notices that follow directly from a rank's report."""
        if isinstance(report, LoneOptimizer):
            self._alone[rank] = report
            self._since = self._since or time.monotonic()
        elif isinstance(report, EngineMade):
            self._made.add(rank)
            return self._once(self.compare(report))
        elif isinstance(report, HookFault):
            text = f"rank {rank}: the hook that observes DeepSpeed has a defect ({report.where}: {report.error}); "
            return self._once(Notice(f"{text}the training is not affected", code=UNOBSERVED))
        elif isinstance(report, HookEnded) and report.program and report.program not in self._programs:
            self._programs.add(report.program)  # hundreds of ranks may do the same
            text = f"rank {rank} has replaced itself with {report.program} (os.exec): not observed from here on; {INSTEAD}"
            return self._once(Notice(text, code=UNOBSERVED))
        return []

    def due(self, living: Collection[int]) -> list[Notice]:
        """Return notices about ranks that step without an engine, once their number is known."""
        alone = {rank: report for rank, report in self._alone.items() if rank not in self._made}
        if not alone or self._since is None or self._made:
            return []
        imported = any(report.imported for report in alone.values())
        if (imported or len(alone) < len(living)) and time.monotonic() - self._since < (IMPORTED if imported else PATIENCE):
            return []
        return self._once(Notice(lone_sentence(list(alone.values())), code=ALONE))

    def unobserved(self, ranks: Collection[int]) -> list[Notice]:
        """Return a notice if the hook is missing in some ranks though the launch asked for it."""
        if not ranks:
            return []
        who = ranks_in_words(sorted(ranks))
        why = "the interpreter ignores sitecustomize (-I, -E, -S, a frozen program), or engine/ in the job folder cannot be written"
        text = f"{who}: not observed ({why}); {INSTEAD}"
        return self._once(Notice(text, code=UNOBSERVED))

    def straggler(self, own: Mapping[int, float]) -> list[Notice]:
        """Return a notice about the rank that all others wait for, by the seconds of a step that each spends by itself."""
        if len(own) < 2:
            return []
        slowest = max(own, key=lambda rank: own[rank])
        usual = median(seconds for rank, seconds in own.items() if rank != slowest)
        if slowest in self._stragglers or own[slowest] < LEAST or own[slowest] < SLOWER * usual:
            return []
        self._stragglers.add(slowest)
        text = f"rank {slowest} is the straggler: its own part of a step (data and forward) takes {own[slowest]:.3g} s, "
        return self._once(Notice(f"{text}that of the others {usual:.2g} s; they wait for it", code=STRAGGLER))

    def compare(self, made: EngineMade) -> Notice | None:
        """Return a notice about the differences between an engine's configuration and the Plan's."""
        if self._planned is None:
            self._planned = read_planned(self._folder)
        resolved = resolve(self._planned, made)
        return Notice(resolved.sentence, code=OTHER if resolved.another else OVERRIDDEN) if resolved.different else None

    def _once(self, notice: Notice | None) -> list[Notice]:
        if notice is None or notice.text in self._sentences:
            return []
        self._sentences.add(notice.text)
        return [notice]


def lone_sentence(alone: list[LoneOptimizer]) -> str:
    """Return the sentence about optimizers that step without DeepSpeed."""
    first, count = alone[0], len(alone)
    where = first.own or first.caller
    who = f"{count} ranks" if count > 1 else "1 rank"
    if first.ranks > 1:
        what = f"{who} train by torch.distributed alone" if count > 1 else f"{who} trains by torch.distributed alone"
        return f"this script never called deepspeed.initialize, but optimizers step ({where}): {what}, and nothing of ds_config.json counts"
    what = f"{who} train alone, each a model of its own" if count > 1 else f"{who} trains by torch alone"
    return f"this script never called deepspeed.initialize, but optimizers step ({where}): {what}"
