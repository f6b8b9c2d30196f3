"""Every field of the snapshot and of a job's records documents its content: unit, clock, format."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent / "dstui"
EXPLAINED_BY_ITS_NAME = {"state", "exit_code", "pid", "host", "workdir", "command", "ranks", "version", "rank"}


@pytest.mark.parametrize("module", ["machine/snapshot.py", "jobs/store/records.py"])
def test_every_public_field_is_documented(module: str) -> None:
    text = (ROOT / module).read_text()
    lines, silent = text.splitlines(), []
    for found in ast.parse(text).body:
        if isinstance(found, ast.ClassDef):
            for node, after in zip(found.body, [*found.body[1:], None], strict=True):
                if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id not in EXPLAINED_BY_ITS_NAME:
                    documented = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
                    if not documented and "  # " not in lines[node.lineno - 1]:
                        silent.append(f"{found.name}.{node.target.id}")
    assert silent == []
