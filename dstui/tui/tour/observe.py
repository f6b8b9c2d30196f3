"""Observe the app for the tour: where the user is, and what was achieved. Nothing here changes anything."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from dstui.tui.dialogs.dialog import Over
from dstui.tui.forms.steps.batch import MICRO

if TYPE_CHECKING:
    from dstui.jobs.store.folder import JobFolder
    from dstui.plan import Plan
    from dstui.tui.app import DstuiApp
    from dstui.tui.forms.steps import Step

MAIN = frozenset({"form", "review", "run"})
"""Places without a dialog or another screen on top."""


def place(app: DstuiApp) -> str:
    """Return where keys go now: form, review, run, or the kind of the dialog or screen on top."""
    top = app.screen
    return top.PANE if isinstance(top, Over) else app.step.pane


def step(app: DstuiApp) -> Step:
    """Return the visible step of the checklist, or the one below a dialog."""
    return app.step


def opened(app: DstuiApp, kind: str) -> bool:
    """Return whether a screen of this class is on top."""
    return type(app.screen).__name__ == kind


def has_job(app: DstuiApp) -> bool:
    """Return whether a job was shown in this session."""
    return bool(app.session.jobs)


def job_ended(app: DstuiApp) -> bool:
    """Return whether the job on the screen has ended."""
    job = app.run_screen.view.job if place(app) == "run" else None
    return job is not None and not job.alive


def shows_rank(app: DstuiApp, rank: int | None) -> bool:
    """Return whether the log on the screen is that of this rank alone; None means all ranks."""
    return place(app) == "run" and app.run_screen.view.job is not None and app.run_screen.view.job_log.filter.rank == rank


def micro(app: DstuiApp) -> int:
    """Return the micro-batch of the Plan; 0 if it has none."""
    return _micro(app.session.state.plan)


def launched_micro(app: DstuiApp) -> int:
    """Return the micro-batch of the job that was shown last; 0 if there is none."""
    return _micro_of(app.session.jobs[-1]) if app.session.jobs else 0


@lru_cache(maxsize=8)
def _micro_of(folder: JobFolder) -> int:
    from dstui.base.files import FileProblem
    from dstui.jobs.store.plan_diff import plan_of
    from dstui.plan import PlanError

    try:
        return _micro(plan_of(folder))
    except (FileProblem, PlanError):
        return 0


def _micro(plan: Plan) -> int:
    found: object = plan.get(MICRO, 0)
    return found if isinstance(found, int) else 0
