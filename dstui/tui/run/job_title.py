"""The first line while a job is looked at: what is said there is of the job, whatever Plan is open beside it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from rich.cells import cell_len

from dstui.jobs.store.plan_diff import changes
from dstui.tui.forms.titlebar import TitleBar, configuration
from dstui.tui.kit.text_row import Row, Span, fit
from dstui.tui.session.state import State

if TYPE_CHECKING:
    from dstui.plan import Plan
    from dstui.tui.run.watched_job import WatchedJob


class JobTitle(TitleBar):
    """About the job, or about the Plan where none is looked at."""

    def __init__(self, job: Callable[[], WatchedJob | None]) -> None:
        super().__init__()
        self._job = job

    def show(self, state: State, path: Path | None) -> None:
        """Draw it."""
        job = self._job()
        if job is None:
            super().show(state, path)
        else:
            self.show_rows([job_title(job.name, job.plan, state.plan, self.size.width or 80)])


def job_title(name: str, plan: Plan | None, opened: Plan, width: int) -> Row:
    """`dstui  quickstart-20261123-184200   the Plan differs   ZeRO-2 · bf16 · AdamW`: the configuration is that of the job's own Plan."""
    differs = plan is not None and bool(changes(plan, opened))
    note = "   the Plan differs" if differs else ""
    right = (Span(f"{configuration(plan)} "),) if plan is not None else ()
    room = width - sum(cell_len(span.text) for span in right) - len(note) - len(" dstui   ")
    left = (Span(" dstui ", "accent"), Span(f" {fit(name, max(min(cell_len(name), room), 0))}", "title"), Span(note, "warning"))
    return Row(left, right)
