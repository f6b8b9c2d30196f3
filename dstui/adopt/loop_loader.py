"""Find the DataLoader of a plain training loop. Pure."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TypeGuard

from dstui.adopt.script_tree import FUNCTIONS, ScriptTree, last_name_in, name_in, parameters_of


def find_loader(tree: ScriptTree, backward: ast.Call) -> ast.Call | None:
    """Return the DataLoader of the loop around a backward(). If the loop does not show it, the only one, or the only one that shuffles."""
    for loop in (one for one in tree.around(backward) if isinstance(one, ast.For)):
        if (found := _loader_behind(tree, loop.iter)) is not None:
            return found
    every = [one for one in tree.nodes if _makes_loader(one)]
    if len(every) == 1:
        return every[0]
    shuffled = [one for one in every if any(keyword.arg == "shuffle" for keyword in one.keywords)]
    return shuffled[0] if len(shuffled) == 1 else None


def _makes_loader(node: ast.AST) -> TypeGuard[ast.Call]:
    return isinstance(node, ast.Call) and last_name_in(node.func) == "DataLoader"


def _loader_behind(tree: ScriptTree, value: ast.expr) -> ast.Call | None:
    """Return the DataLoader behind the value that a loop iterates over, through assignments, arguments and functions of the script."""
    functions = {one.name: one for one in tree.nodes if isinstance(one, FUNCTIONS)}
    values, seen = [value], set[tuple[str, int]]()
    for each in values:  # the list grows meanwhile
        for part in ast.walk(each):
            if _makes_loader(part):
                return part
            if isinstance(part, ast.Call) and (function := functions.get(name_in(part.func))) is not None:
                made = [one for one in ast.walk(function) if _makes_loader(one)]
                values += made if len(made) == 1 else []
            name, place = name_in(part), id(tree.function_of(part))
            if name and (name, place) not in seen:
                seen.add((name, place))
                values += _values_of(tree, name, part)
    return None


def _values_of(tree: ScriptTree, name: str, at: ast.AST) -> Iterator[ast.expr]:
    """Yield the values that a name may have: from assignments, and from the calls that pass it as an argument."""
    function = tree.function_of(at)
    if function is None or name not in parameters_of(function):
        yield from (one.value for one in tree.assignments(name))
        return
    for call, parameters in tree.calls_of(function):
        yield from (value for value, parameter in zip(call.args, parameters, strict=False) if parameter == name)
        yield from (keyword.value for keyword in call.keywords if keyword.arg == name)
