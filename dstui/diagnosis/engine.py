"""From paths to a diagnosis in four stages: read, recognise, reason, report. docs/diagnosis.md follows one log through them.

    read       reading/log_reader   paths -> lines, each once, with bounded memory
    recognise  recognition/scan     lines -> Findings: signatures, exceptions, ends of processes, facts of the launchers
    reason     reasoning/           Findings -> Verdict, by the first rule that matches
    report     reporting/answer     Verdict -> Diagnosis

No stage changes its input. The reader feeds the scanner line by line, so that no log is held in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from dstui.diagnosis.diagnosis import Diagnosis
from dstui.diagnosis.findings import Findings, Verdict
from dstui.diagnosis.reading.log_reader import read_logs
from dstui.diagnosis.reasoning.causes import cause
from dstui.diagnosis.reasoning.ends import asked, ended_by_signal, excerpt, host_lost, last_named, nothing_failed, quiet, stopped, well
from dstui.diagnosis.reasoning.failure_context import FailureContext
from dstui.diagnosis.reasoning.waits import hint, left_early, link_broke, link_lost, other_collective, symptom, timed_out
from dstui.diagnosis.reporting.answer import answer

if TYPE_CHECKING:
    from dstui.plan.plan import Plan

RULES: tuple[Callable[[FailureContext], Verdict | None], ...] = (
    asked,
    host_lost,
    well,
    timed_out,
    cause,
    stopped,
    other_collective,
    symptom,
    ended_by_signal,
    link_broke,
    left_early,
    hint,
    quiet,
    nothing_failed,
    excerpt,
    last_named,
    link_lost,
)
"""The first match wins."""


def diagnose_logs(paths: Iterable[Path | str], plan: Plan | None = None) -> Diagnosis:
    """Return the diagnosis of any logs. Raises FileProblem if one cannot be read."""
    return conclude(read_logs(paths), plan)


def conclude(found: Findings, plan: Plan | None = None) -> Diagnosis:
    """Return the diagnosis that follows from findings."""
    context = FailureContext(found)
    return answer(decide(context), context, plan)


def decide(context: FailureContext) -> Verdict:
    """Return the verdict on the findings: the result of the first rule that has one."""
    verdicts = (rule(context) for rule in RULES)
    return next((verdict for verdict in verdicts if verdict is not None), Verdict(None))
