"""The rules of the house, checked by their own tools: style, types, layers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
TOOLS = {
    "style": ["-m", "ruff", "check", "."],
    "format": ["-m", "ruff", "format", "--check", "."],
    "types": ["-m", "mypy"],
    "layers": ["-c", "import sys; from importlinter.cli import lint_imports_command; sys.exit(lint_imports_command())"],
}


@pytest.mark.heavy
@pytest.mark.parametrize("tool", TOOLS)
def test_the_tool_finds_nothing(tool: str) -> None:
    done = subprocess.run([sys.executable, *TOOLS[tool]], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
