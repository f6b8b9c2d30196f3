"""Style, types and layers, checked by ruff, mypy and import-linter."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.source import MODULES

ROOT = Path(__file__).parent.parent
TOOLS = {
    "style": ["-m", "ruff", "check", "."],
    "format": ["-m", "ruff", "format", "--check", "."],
    "types": ["-m", "mypy"],
    "layers": ["-c", "import sys; from importlinter.cli import lint_imports_command; sys.exit(lint_imports_command())"],
}


@pytest.mark.heavy
@pytest.mark.parametrize("tool", TOOLS)
def test_tool_reports_nothing(tool: str) -> None:
    done = subprocess.run([sys.executable, *TOOLS[tool]], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


QUESTIONS = {"How", "What", "Where", "Whether", "Who", "Whose", "Why"}
DOCSTRING = re.compile(r'^(?!\s*class )(.*):(?:  #.*)?\n\s+"""(\w+)', re.MULTILINE)
"""The end of a function's signature and the first word of its docstring, for files that are too many to parse."""
ATTRIBUTE = re.compile(r'^ *"""Whether ', re.MULTILINE)


def test_docstrings_do_not_begin_with_a_question_word() -> None:
    """Reject openings that ruff's D401 accepts, and attributes that are described by a question."""
    paths = [*MODULES.values(), *Path(__file__).parent.rglob("*.py")]
    wrong = [f"{path.name}: {end}" for path in paths for end, word in DOCSTRING.findall(path.read_text()) if word in QUESTIONS]
    wrong += [path.name for path in paths if ATTRIBUTE.search(path.read_text())]
    assert wrong == []
