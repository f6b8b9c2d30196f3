"""`dstui runs`: the jobs that were started, also after the terminal is gone."""

from __future__ import annotations

import argparse
import json
from datetime import datetime
from pathlib import Path
from typing import Any

from dstui.run.folder import from_iso
from dstui.run.index import runs
from dstui.run.summary import duration_text

GLYPHS = {"starting": "·", "running": "●", "succeeded": "✔", "failed": "✖", "stopped": "■", "lost": "?"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.add_argument("--json", action="store_true", help="every run's status, with its folder")


def run(args: argparse.Namespace) -> int:
    """List them, the latest last; always 0."""
    known = runs()
    if args.json:
        print(json.dumps({"version": 1, "runs": known}, indent=1))
        return 0
    if not known:
        print("There is no run yet: dstui --headless PLAN starts one.")
    for status in known:
        print(_line(status))
    return 0


def _line(status: dict[str, Any]) -> str:
    began = from_iso(status.get("started"))
    ended = from_iso(status.get("ended")) or datetime.now().timestamp()
    when = f"{datetime.fromtimestamp(began):%Y-%m-%d %H:%M}" if began else "?"
    state = str(status.get("state"))
    code = status.get("exit_code")
    ranks = len(status.get("ranks", {}))
    words = (
        f"{GLYPHS.get(state, ' ')} {state:<9}",
        f"{'' if code is None else code:>3}",
        when,
        f"{duration_text(ended - began) if began else '?':>12}",
        f"{ranks:>4} rank{'' if ranks == 1 else 's'}",
        _short(Path(status["folder"])),
    )
    return "  ".join(words)


def _short(path: Path) -> str:
    """The folder, relative where it is below the current one."""
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)
