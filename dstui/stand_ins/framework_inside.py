"""Run the command of a framework that does not use the PATH to start its ranks (swift, trl), so that the stand-ins see the launch.

    INTERPRETER framework_inside.py STAND_INS PROGRAM ARGUMENTS…
    INTERPRETER framework_inside.py STAND_INS -m MODULE ARGUMENTS…

Runs under the framework's own interpreter, by file path, so it imports nothing of dstui. Sources: swift/cli/main.py of ms-swift 4.6, which
runs `sys.executable -m torch.distributed.run`, and trl/cli/accelerate_launcher.py of trl 1.16, which calls accelerate's functions.
"""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

INTERPRETER = "DSTUI_INTERPRETER"
"""The variable with the interpreter that the stand-in of python replaces."""


class Words:
    """Replaces the parser of `accelerate launch`: keeps the words."""

    @staticmethod
    def parse_args(words: list[str]) -> list[str]:
        """Return the words unchanged."""
        return words


def through(stand_ins: str) -> None:
    """Make `trl` start the stand-in of accelerate instead of calling accelerate's function."""
    try:
        import accelerate.commands.launch as launcher
    except ImportError:
        return

    def launch(words: list[str]) -> NoReturn:
        sys.exit(subprocess.call([f"{stand_ins}/accelerate", "launch", *words]))

    launcher.launch_command_parser, launcher.launch_command = Words, launch


def main(stand_ins: str, program: str, *words: str) -> None:
    """Run the framework's program, or its module after -m."""
    os.environ[INTERPRETER], sys.executable = sys.executable, f"{stand_ins}/python"
    is_module = program == "-m"
    name, *arguments = words if is_module else (program, *words)
    sys.path[0] = str(Path.cwd() if is_module else Path(program).parent)
    sys.argv = [name, *arguments]
    if "trl" in Path(name).name:
        through(stand_ins)
    if is_module:
        runpy.run_module(name, run_name="__main__", alter_sys=True)
    else:
        runpy.run_path(program, run_name="__main__")


if __name__ == "__main__":
    main(*sys.argv[1:])
