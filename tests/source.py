"""dstui's source for tests that read it. Files are parsed once, so these tests run in one process (`TOGETHER`)."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent / "dstui"
FILES = sorted(ROOT.rglob("*.py"))
TOGETHER = pytest.mark.xdist_group("source")


def name_of(path: Path) -> str:
    """Return a module's name, such as dstui.jobs.store.folder."""
    return ".".join(("dstui", *path.relative_to(ROOT).with_suffix("").parts)).removesuffix(".__init__")


MODULES = {name_of(path): path for path in FILES}


@cache
def text_of(path: Path) -> str:
    """Return the text of a file."""
    return path.read_text()


@cache
def nodes_of(path: Path) -> tuple[ast.AST, ...]:
    """Return all nodes of a file's AST, its module first."""
    return tuple(ast.walk(ast.parse(text_of(path))))


def tree_of(path: Path) -> ast.Module:
    """Return the module node of a file."""
    module = nodes_of(path)[0]
    assert isinstance(module, ast.Module)
    return module
