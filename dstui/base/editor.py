"""The user's own editor as a command: which one, and how it is given the line."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Mapping
from pathlib import Path

PLUS = ("vi", "vim", "nvim", "nano", "pico", "emacs", "emacsclient", "micro", "kak", "joe", "jed", "mg", "ne")
"""Editors that take a line as +LINE before the file;"""
COLON = {"hx": (), "helix": (), "subl": (), "code": ("--goto",), "codium": ("--goto",)}
"""and those that take it as FILE:LINE, with an option before it."""
USUAL = ("nano", "vim", "vi")
"""What is there where nothing is chosen."""


def editor_command(environment: Mapping[str, str], file: Path, line: int) -> list[str]:
    """Return the command: $VISUAL, else $EDITOR, else a usual one; empty where there is none. ValueError where a quote is open."""
    chosen = environment.get("VISUAL") or environment.get("EDITOR") or next(filter(shutil.which, USUAL), "")
    words = shlex.split(chosen)
    name = Path(words[0]).name if words else ""
    if name in PLUS:
        return [*words, f"+{line}", str(file)]
    if name in COLON:
        return [*words, *COLON[name], f"{file}:{line}"]
    return [*words, str(file)] if words else []
