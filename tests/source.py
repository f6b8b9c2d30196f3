"""dstui's source, for the tests that read it: each file is parsed once for all of them, which therefore run in one process (`TOGETHER`)."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent / "dstui"
FILES = sorted(ROOT.rglob("*.py"))
TOGETHER = pytest.mark.xdist_group("source")


def name_of(path: Path) -> str:
    """dstui.jobs.store.folder"""
    return ".".join(("dstui", *path.relative_to(ROOT).with_suffix("").parts)).removesuffix(".__init__")


MODULES = {name_of(path): path for path in FILES}


@cache
def text_of(path: Path) -> str:
    """A file's text."""
    return path.read_text()


@cache
def nodes_of(path: Path) -> tuple[ast.AST, ...]:
    """All that a file's text is made of, its module first."""
    return tuple(ast.walk(ast.parse(text_of(path))))


def tree_of(path: Path) -> ast.Module:
    """The module."""
    module = nodes_of(path)[0]
    assert isinstance(module, ast.Module)
    return module
