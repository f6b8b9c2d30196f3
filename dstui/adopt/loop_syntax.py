"""Parts of a syntax tree that the search for a training loop shares."""

from __future__ import annotations

import ast

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


class NoPlace(Exception):
    """There is no clear place for the lines. Holds the line that shows it (0: none) and the reason."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(message)
        self.line, self.message = line, message


def name_in(node: ast.AST | None) -> str:
    """Return a dotted name; "" for any other expression."""
    if isinstance(node, ast.Attribute):
        inner = name_in(node.value)
        return f"{inner}.{node.attr}" if inner else ""
    return node.id if isinstance(node, ast.Name) else ""


def is_call_of(node: ast.AST | None, method: str) -> bool:
    """Return whether a node calls a method of this name."""
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == method
