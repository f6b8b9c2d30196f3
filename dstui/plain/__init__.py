"""The plain interface: the wizard's steps as numbered prompts, for screen readers, notebooks and terminals that cannot show screens.

It only reads and prints lines: it moves no cursor, uses no colours and needs no key but Enter. The steps, fields and session are those of
the TUI, without any import of Textual.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dstui.documents.open import Opened
    from dstui.jobs.store.folder import JobFolder
    from dstui.machine.snapshot import Machine


def run_plain(opened: Opened | None, machine: Machine | None, *, script: str) -> int:
    """Ask for every step of a Plan and return the exit status. `opened` None: ask for a start; `machine` None: examine this one."""
    from dstui.plain.wizard import Wizard

    return Wizard().run(opened, machine, script)


def attach_plain(folder: JobFolder) -> int:
    """Print a report, in lines, on a job that was started before, until it ends. Return the exit status."""
    from dstui.plain.console import Console
    from dstui.plain.watching import watch

    watch(Console(), folder)
    return 0
