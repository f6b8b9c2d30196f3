"""Save a Plan by prompts, and keep unsaved edits as a draft if a session ends without an answer."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from dstui.base.files import FileProblem, is_file, is_there, typed_path, write_atomic
from dstui.plan import PlanError
from dstui.tui.session.drafts import document_of, left_behind

if TYPE_CHECKING:
    from pathlib import Path

    from dstui.plain.console import Console
    from dstui.tui.session.session import Session


def keep_draft(session: Session) -> None:
    """Write unsaved edits to a draft. If everything is saved, there is no draft."""
    with suppress(FileProblem, OSError):
        session.draft().keep()


def offer_draft(console: Console, session: Session) -> None:
    """Offer the unsaved edits of this document that an earlier session kept."""
    document = document_of(session.state.plan, session.path)
    draft = next((one for one in left_behind() if one.document == document and one.text != session.state.plan.text), None)
    if draft is None:
        return
    ways = ["continue with them", "discard them", "keep them for later"]
    chosen = console.choose("A session has ended with edits of this Plan that were not saved.", ways, 0)
    if chosen == 0:
        try:
            session.replace(draft.text)
        except PlanError as error:
            console.say(f"The draft is not a valid Plan: {error}. It is kept in {draft.file}")
            return
        keep_draft(session)
    if chosen < 2:
        draft.forget()


def save(console: Console, session: Session) -> bool:
    """Save the Plan and return whether it was saved. Ask for a name if it has none, and before replacing the changes of another program."""
    path, replaces = session.path, True
    if path is not None and (moved := session.moved_on_disk()):
        console.say(moved)
        path = path if is_file(path) and console.agrees("Replace it with this Plan?") else None
    if path is None:
        path, replaces = _ask_where(console, session), False
    if not replaces and is_there(path):
        replaces = console.agrees(f"{path} exists. Replace it?")
        if not replaces:
            return False
    try:
        write_atomic(path, session.state.plan.text, replace=replaces)
    except FileProblem as problem:
        console.say(str(problem))
        return False
    session.saved_as(path, session.state.plan.text)
    keep_draft(session)
    console.say(f"Saved {path}")
    return True


def _ask_where(console: Console, session: Session) -> Path:
    name = f"{session.state.plan.name or 'plan'}.yaml"
    return typed_path(console.ask(f"Save as, relative to this folder; Enter for {name}:") or name)


def leaves(console: Console, session: Session) -> bool:
    """Ask what to do with unsaved edits; return whether to leave."""
    from dstui.plain.console import Back, Leave

    if session.state.saved:
        return True
    try:
        chosen = console.choose("The Plan has edits that are not saved.", ["save and leave", "discard the edits and leave", "stay"], 0)
        if chosen == 0:
            return save(console, session)
    except (Back, Leave):
        return False
    if chosen == 1:
        session.draft().forget()
    return chosen == 1
