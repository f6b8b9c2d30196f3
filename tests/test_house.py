"""Style, types and layers, checked by ruff, mypy and import-linter."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.source import MODULES, nodes_of

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
DOCSTRING = re.compile(r'def (\w+)\([^"]*?\)(?: -> [^"]*?)?:\n\s+"""(\w+)')
"""A function's name and the first word of its docstring, for files that are too many to parse."""


def test_docstrings_of_functions_do_not_begin_with_a_question_word() -> None:
    """Reject openings that ruff's D401 accepts."""
    wrong = [
        f"{name}.{node.name}"
        for name, path in MODULES.items()
        for node in nodes_of(path)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        if (text := ast.get_docstring(node)) and text.split()[0] in QUESTIONS
    ]
    tests = Path(__file__).parent.rglob("*.py")
    wrong += [f"{path.name}:{name}" for path in tests for name, word in DOCSTRING.findall(path.read_text()) if word in QUESTIONS]
    assert wrong == []
