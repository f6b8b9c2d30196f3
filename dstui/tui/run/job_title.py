"""The first line while a job is looked at: what is said there is of the job, whatever Plan is open beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.cells import cell_len

from dstui.run.jobs.plan_diff import changes
from dstui.tui.forms.titlebar import configuration
from dstui.tui.kit.text_row import Row, Span, fit

if TYPE_CHECKING:
    from dstui.plan import Plan
    from dstui.tui.run.watched_job import WatchedJob


def job_title(job: WatchedJob, opened: Plan, width: int) -> Row:
    """`dstui  quickstart-20261123-184200   the Plan differs   ZeRO-2 · bf16 · AdamW`, as much of it as fits."""
    differs = job.plan is not None and changes(job.plan, opened)
    right = (Span(f"{configuration(job.plan)} "),) if job.plan is not None else ()
    room = width - sum(len(span.text) for span in right) - len(" dstui   ")
    note = "   the Plan differs" if differs else ""
    left = (
        Span(" dstui ", "accent"),
        Span(f" {fit(job.name, max(min(cell_len(job.name), room - len(note)), 0))}", "title"),
        Span(note, "warning"),
    )
    return Row(left, right)
