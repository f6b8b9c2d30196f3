"""Run a launch script with bash and stand-ins for the launchers, and read the same text with dstui, to compare both.

Each stand-in writes its arguments, the exported variables of interest and its working folder as a line of JSON.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from dstui.adopt.shell.read import ShellText, Unparsed, read_shell
from dstui.adopt.shell.shell_state import Node, ShellContext, to_plan_text
from dstui.base.shell_parser import ShellSyntax, parse_shell

LAUNCHERS = ("deepspeed", "torchrun", "accelerate")
RECORD = """\
#!{python}
import json, os, sys
line = json.dumps([os.path.basename(sys.argv[0]), sys.argv[1:], {{n: v for n, v in os.environ.items() if n.startswith("X_")}}, os.getcwd()])
with open({log!r}, "a") as log:
    log.write(line + "\\n")
"""
needs_bash = pytest.mark.skipif(shutil.which("bash") is None, reason="bash is the reference for shell text; .ci/run's Debian has it")
Launched = tuple[str, tuple[str, ...], dict[str, str], str]


def parse(text: str) -> Node:
    try:
        return parse_shell(text)
    except ShellSyntax as problem:
        raise Unparsed(problem.message, problem.line) from None


def parse_inner(text: str) -> Node | None:
    try:
        return parse(text)
    except Unparsed:
        return None


def read(text: str, folder: str = "/project", script: str = "run.sh") -> ShellText:
    around = ShellContext(folder, script, parse=parse_inner, is_folder=os.path.isdir, moment=lambda form: "2026" if form else "")
    return read_shell(text, around, parse)


def launches_read(text: str, folder: Path) -> list[Launched]:
    """Return the launches that dstui reads, in the order of the text."""
    shell = read(text, str(folder))
    ordered = sorted(shell.launches, key=lambda launch: launch.line)
    return [
        (
            one.launcher,
            (*(("launch",) if one.launcher == "accelerate" else ()), *map(to_plan_text, one.words)),
            {name: to_plan_text(value) for name, value in one.env.items() if name.startswith("X_")},
            one.folder,
        )
        for one in ordered
    ]


def launches_run(text: str, folder: Path) -> list[Launched]:
    """Return the launches that bash runs, in order."""
    programs, log = folder / "stand-ins", folder / "log"
    programs.mkdir()
    for name in LAUNCHERS:
        (programs / name).write_text(RECORD.format(python=sys.executable, log=str(log)))
        (programs / name).chmod(0o755)
    (folder / "run.sh").write_text(text)
    env = {"PATH": f"{programs}:/usr/bin:/bin", "LC_ALL": "C.UTF-8"}
    subprocess.run(["bash", "run.sh"], cwd=folder, env=env, capture_output=True, timeout=30, check=False)
    found = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
    return [(name, tuple(words), env, where) for name, words, env, where in found]
