"""The rules of the house, checked by their own tools: style, types, layers."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from tests import source
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
def test_the_tool_finds_nothing(tool: str) -> None:
    done = subprocess.run([sys.executable, *TOOLS[tool]], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def imported(path: Path) -> set[str]:
    """Return the modules of dstui that one names in an import, wherever it stands: at the top, in a function, for types only."""
    found: set[str] = set()
    for node in source.nodes_of(path):
        if isinstance(node, ast.ImportFrom) and node.module:
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= (names & MODULES.keys()) or ({node.module} & MODULES.keys())
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names} & MODULES.keys()
    return found


def circles(edges: dict[str, set[str]]) -> list[list[str]]:
    """The strongly connected parts with more than one module (Tarjan)."""
    number: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(node: str) -> None:
        number[node] = low[node] = len(number)
        stack.append(node)
        for other in edges[node]:
            if other not in number:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], number[other])
        if low[node] == number[node]:
            part = stack[stack.index(node) :]
            del stack[stack.index(node) :]
            found.extend([sorted(part)] if len(part) > 1 else [])

    for node in edges:
        if node not in number:
            visit(node)
    return found


@source.TOGETHER
def test_a_circle_is_seen() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}) == [["a", "b", "c"]]


@source.TOGETHER
def test_no_module_is_part_of_an_import_circle() -> None:
    """Imports in functions and for types alone count too."""
    assert circles({name: imported(path) & MODULES.keys() - {name} for name, path in MODULES.items()}) == []
