"""The terminal UI: edit the Plan, see its consequences, launch it and watch every rank.

`run_tui` and `attach_tui` are all that the command line needs. Nothing of Textual is imported before one of them is called.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dstui.documents.open import Opened
    from dstui.jobs.store.folder import JobFolder
    from dstui.machine.snapshot import Machine
    from dstui.tui.tour.folder import TourFolder

SWITCH = 0.0005
"""Seconds after which a busy thread yields. With Python's 5 ms, each system call of the screen's thread waits that long beside one."""


def run_tui(opened: Opened | None, machine: Machine | None, *, reference: bool, script: str) -> int:
    """Run the UI on what was opened (None: ask what to start from) for `machine` (None: probe this one). Return the exit status.

    `reference`: let the installed DeepSpeed judge every edit too. `script`: the script for which to ask what to start from.
    """
    return _run(opened, machine, None, reference=reference, script=script)


def attach_tui(folder: JobFolder, *, until_end: bool) -> int:
    """Show a job that was started before, with its Plan. Return the exit status.

    `until_end`: exit when the job has ended.
    """
    from dstui.base.files import FileProblem
    from dstui.documents.open import Opened
    from dstui.jobs.store.plan_diff import plan_of
    from dstui.plan import PlanError

    try:
        plan = plan_of(folder)
    except (FileProblem, PlanError):  # the job can be shown without its Plan
        plan = None
    return _run(Opened(plan, None) if plan is not None else None, None, folder, reference=True, until_end=until_end)


def tour_tui(folder: TourFolder) -> int:
    """Run the tour in its folder, from the step at which it was left. Return the exit status."""
    from dstui.documents.open import open_document
    from dstui.tui.tour.steps import starts_at_job

    job = folder.newest_job() if starts_at_job(folder.step) else None
    return _run(open_document(str(folder.plan)), None, job, reference=False, folder=folder)


def _run(  # noqa: PLR0913 - all but the first three are named
    opened: Opened | None,
    machine: Machine | None,
    job: JobFolder | None,
    *,
    reference: bool,
    script: str = "",
    until_end: bool = False,
    folder: TourFolder | None = None,
) -> int:
    import gc
    import os
    import sys

    sys.setswitchinterval(SWITCH)
    gc.disable()  # until the first frame is painted: collecting objects under construction takes a tenth of it
    from dstui.base.glyphs import wants_ascii
    from dstui.base.output import tell
    from dstui.tui.app import DstuiApp
    from dstui.tui.kit.drawing import draw_plainly
    from dstui.tui.terminal_app import run_reported

    if wants_ascii(os.environ):
        draw_plainly()
    plan, path = (opened.plan, opened.path) if opened is not None else (None, None)
    app = DstuiApp(plan, path, machine, job, reference=reference, opened=opened, script=script, until_end=until_end)
    if folder is not None:
        from dstui.tui.tour.guide import Guide

        Guide(app, folder).begin()
    status = run_reported(app)
    for line in app.receipt() if folder is None else ():  # jobs of a tour are only recorded in its folder
        tell(line)
    return status
