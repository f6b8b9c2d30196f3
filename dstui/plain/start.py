"""The list of possible starts: unsaved edits, the script in this folder with its configuration, a recipe, a file, a shipped Plan."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from dstui.base.files import FileProblem
from dstui.documents.layers import load_layered
from dstui.documents.open import Opened, open_document, plan_of_both
from dstui.documents.plan_files import BLANK_PLAN, SHIPPED
from dstui.plan import PlanError
from dstui.tui.session.folder_scan import scan_folder

if TYPE_CHECKING:
    from dstui.machine.snapshot import Machine
    from dstui.plain.console import Console
    from dstui.tui.session.drafts import Draft

Way = tuple[str, Callable[[], Opened]]
"""The text of an option, and the function that opens it."""


def ask_start(console: Console, machine: Machine, script: str) -> Opened:
    """Ask until a start could be opened. `script`: the script that the user named, if any."""
    ways = list(_ways(machine, script))
    while True:
        chosen = console.choose("What do you want to start from?", [label for label, _ in ways], 0)
        try:
            return ways[chosen][1]()
        except (FileProblem, PlanError) as problem:
            console.say(str(problem))


def _ways(machine: Machine, script: str) -> Iterator[Way]:
    from dstui.adopt.recipes import recipes

    found = scan_folder(script)
    for draft in found.drafts:
        yield f"the unsaved edits of {time.strftime('%Y-%m-%d %H:%M', time.localtime(draft.at))}", partial(_of_draft, draft)
    if found.scripts:
        first = found.scripts[0]
        for name in found.configurations:
            yield f"{first.name} with {name}", partial(plan_of_both, name, first.name)
        for recipe in recipes(first, machine):
            yield f"{first.name} with {recipe.name}: {recipe.says}", partial(_of_text, recipe.text)
    for name in found.documents:
        yield f"the file {name}", partial(open_document, name)
    yield "a blank Plan", partial(_of_text, BLANK_PLAN)
    for name, purpose in SHIPPED.items():
        yield f"the shipped Plan {name}: {purpose}", partial(open_document, name)


def _of_text(text: str) -> Opened:
    return Opened(load_layered(text, "plan.yaml", str(Path.cwd())), None)


def _of_draft(draft: Draft) -> Opened:
    """Open the Plan of a draft. From then on, this session keeps the draft."""
    plan = load_layered(draft.text, draft.source, draft.base)
    draft.forget()
    return Opened(plan, None)
