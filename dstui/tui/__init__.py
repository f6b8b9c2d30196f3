"""The Textual face: edit the Plan, see what follows from it, launch it and watch every rank.

`run_tui` is all that the command line needs; nothing of Textual is imported before it is called.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dstui.machine.snapshot import Machine
    from dstui.plan import Plan


def run_tui(plan: Plan | None, path: Path | None, machine: Machine | None) -> int:
    """Edit `plan` (None: ask what to start from), saved to `path`, for `machine` (None: look at this one); the exit status."""
    import gc

    gc.disable()  # until the first frame is painted: collecting what is only being built costs a tenth of it
    from dstui.tui.app import DstuiApp

    app = DstuiApp(plan, path, machine)
    app.run()
    for line in app.receipt():
        print(line)
    return app.return_code or 0
