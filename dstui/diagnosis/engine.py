"""From paths to a diagnosis in four stages: read, recognise, reason, report. docs/diagnosis.md follows one log through them.

    read       log_reader    paths -> lines, each once, with bounded memory
    recognise  scan          lines -> Findings: signatures, exceptions, ends of processes, facts of the launchers
    reason     rules         Findings -> Verdict, by the first rule that matches
    report     answer        Verdict -> Diagnosis

No stage changes its input. The reader feeds the scanner line by line, so that no log is held in memory.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from dstui.diagnosis.answer import answer
from dstui.diagnosis.diagnosis import Diagnosis
from dstui.diagnosis.failure_context import FailureContext
from dstui.diagnosis.findings import Findings
from dstui.diagnosis.log_reader import read_logs
from dstui.diagnosis.rules import decide

if TYPE_CHECKING:
    from dstui.plan.plan import Plan


def diagnose_logs(paths: Iterable[Path | str], plan: Plan | None = None) -> Diagnosis:
    """Return the diagnosis of any logs. Raises FileProblem if one cannot be read."""
    return conclude(read_logs(paths), plan)


def conclude(found: Findings, plan: Plan | None = None) -> Diagnosis:
    """Return the diagnosis that follows from findings."""
    context = FailureContext(found)
    return answer(decide(context), context, plan)
