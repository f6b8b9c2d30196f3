"""Make the command that opens a file in the user's own editor, at a line."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Mapping
from pathlib import Path

PLUS_LINE = ("vi", "vim", "nvim", "nano", "pico", "emacs", "emacsclient", "micro", "kak", "joe", "jed", "mg", "ne")
"""Editors that are given a line as `+LINE FILE`."""
COLON_LINE = {"hx": (), "helix": (), "subl": (), "code": ("--goto",), "codium": ("--goto",)}
"""Editors that are given it as `FILE:LINE` -> the options before that."""
USUAL = ("nano", "vim", "vi")
"""Editors to try in this order if the user has chosen none."""


def editor_command(environment: Mapping[str, str], file: Path, line: int) -> list[str]:
    """Return the command: $VISUAL, else $EDITOR, else a usual one; [] if there is none. Raises ValueError for an open quote."""
    chosen = environment.get("VISUAL") or environment.get("EDITOR") or next(filter(shutil.which, USUAL), "")
    words = shlex.split(chosen)
    name = Path(words[0]).name if words else ""
    if name in PLUS_LINE:
        return [*words, f"+{line}", str(file)]
    if name in COLON_LINE:
        return [*words, *COLON_LINE[name], f"{file}:{line}"]
    return [*words, str(file)] if words else []
