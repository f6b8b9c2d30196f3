"""Find why a launch needs the user's consent: another user's job folder, an unknown interpreter, or lines of a site or team file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dstui.plan import Plan


def reasons(plan: Plan) -> list[str]:
    """Return why launching this Plan needs a question, in sentences; empty if it needs none."""
    from dstui.documents.trusted_lines import unagreed
    from dstui.documents.trusted_python import answer, describe_interpreter, is_own_interpreter

    found = []
    if foreign := foreign_folder(plan):
        found.append(f"This Plan is from a job folder that is not yours: {foreign}.")
    if not is_own_interpreter(plan) and answer(plan) is not True:
        found.append(f"You have not agreed to its interpreter yet. {describe_interpreter(plan)}".rstrip())
    return [*found, *(f"It would run {lines}\nThese commands are not in your Plan." for lines in unagreed(plan))]


def remember_consent(plan: Plan) -> None:
    """Remember a yes to these questions: to the interpreter, and to the lines of other files. A job folder is asked about again."""
    from dstui.documents.trusted_lines import agree
    from dstui.documents.trusted_python import is_own_interpreter, remember

    if not is_own_interpreter(plan):
        remember(plan, True)
    agree(plan)


def foreign_folder(plan: Plan) -> str:
    """Return why the job folder that a Plan was read from is not the user's own; "" if it is, or the Plan is from elsewhere."""
    from dstui.jobs.store.folder import JobFolder
    from dstui.jobs.store.index import is_job
    from dstui.jobs.store.ownership import NotOwn, own_tag

    folder = JobFolder(Path(plan.source).parent)
    if not is_job(folder):
        return ""
    try:
        own_tag(folder, folder.read_status())
    except NotOwn as why:
        return f"{folder.name} {why}"
    return ""
