"""Detect a false success: a job that ended well, but whose ranks never read its DeepSpeed configuration.

Every successful job is checked, so this loads nothing of the engine unless it has something to report.
"""

from __future__ import annotations

from contextlib import suppress

from dstui.base.files import FileProblem
from dstui.diagnosis.diagnosis import Diagnosis, Evidence
from dstui.jobs.store.folder import JobFolder
from dstui.plan.finding import Fix

HANDS_OVER = ("PL001", "PL023")
"""The rules that report that nothing passes the configuration to the script."""


def unread_configuration(folder: JobFolder) -> Diagnosis | None:
    """Return a diagnosis for a successful job in which no rank has read its DeepSpeed configuration; None for other jobs."""
    ends = [(line, event) for line, event in folder.numbered_events() if event.get("event") == "exit"]
    if not ends or ends[-1][1].get("state") != "succeeded" or ends[-1][1].get("config_read") is not False:
        return None
    from dstui.check import check_plan
    from dstui.documents.open import script_facts_of
    from dstui.jobs.store.access_time import was_read
    from dstui.jobs.store.plan_diff import plan_of
    from dstui.plan import PlanError

    fixes: list[Fix] = []
    with suppress(FileProblem, PlanError):
        plan = plan_of(folder)
        if not any(plan.configurations.values()):
            return None
        fixes = [f.fix for f in check_plan(plan, script=script_facts_of(plan)) if f.code in HANDS_OVER and f.fix]
    from dstui.diagnosis.engine_notes import with_lone_optimizers
    from dstui.diagnosis.signatures import BY_ID  # loads all tables: only if there is something to report

    signature = BY_ID["CONFIG-UNREAD"]
    unread = next((path for path in folder.ds_configs if was_read(path) is False), folder.ds_config)
    shown = Evidence(str(folder.events_file), ends[-1][0], f"{unread.name} was never opened while the job ran")
    fixes += [Fix(way.text) for way in signature.all_remedies()]
    diagnosis = Diagnosis(
        signature.id, "failure", "high", signature.title, signature.cause, (shown,), confirm=signature.confirm, fixes=tuple(fixes)
    )
    return with_lone_optimizers(diagnosis, folder)
