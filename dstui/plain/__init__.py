"""The plain face: the steps of the wizard as numbered prompts, for screen readers, notebooks and terminals that draw no screens.

Lines in, lines out: no cursor moves, no colours, no keys but Enter. The steps, the fields and the session are those of the TUI; no
module of Textual is imported for them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dstui.documents.open import Opened
    from dstui.jobs.store.folder import JobFolder
    from dstui.machine.snapshot import Machine


def run_plain(opened: Opened | None, machine: Machine | None, *, script: str = "") -> int:
    """Ask for every step of a Plan (None: ask what to start from), for `machine` (None: look at this one); the exit status."""
    from dstui.plain.wizard import Wizard

    return Wizard().run(opened, machine, script)


def attach_plain(folder: JobFolder) -> int:
    """Report on a job that was started before until it ends, in lines; the exit status."""
    from dstui.plain.console import Console
    from dstui.plain.watching import watch

    watch(Console(), folder)
    return 0
