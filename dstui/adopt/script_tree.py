"""The syntax tree of a training script, with the look-ups that a search for its loop shares. Pure."""

from __future__ import annotations

import ast
from collections.abc import Iterator

MAX_VALUE = 1e9
"""No batch size, accumulation or bound is larger."""
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
LOOPS = (ast.For, ast.While)
Function = ast.FunctionDef | ast.AsyncFunctionDef
Loop = ast.For | ast.While
Number = int | float


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


def last_name_in(node: ast.AST | None) -> str:
    """Return the last part of a dotted name: `step` of optimizer.step."""
    return name_in(node).rpartition(".")[2]


def is_call_of(node: ast.AST | None, method: str) -> bool:
    """Return whether a node calls a method of this name."""
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == method


def parameters_of(function: Function) -> list[str]:
    """Return the parameters that can be given by position."""
    return [one.arg for one in (*function.args.posonlyargs, *function.args.args)]


class ScriptTree:
    """The syntax tree of a script, with the parent of each node."""

    def __init__(self, text: str) -> None:
        try:
            self.module = ast.parse(text)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            raise NoPlace(0, "it is not Python code that can be parsed here") from None
        self.nodes = list(ast.walk(self.module))
        self._parents = {id(child): node for node in self.nodes for child in ast.iter_child_nodes(node)}

    # Places

    def parent(self, node: ast.AST) -> ast.AST | None:
        """Return the node that holds a node; None for the module."""
        return self._parents.get(id(node))

    def around(self, node: ast.AST) -> Iterator[ast.AST]:
        """Yield the ancestors of a node, innermost first."""
        while (parent := self.parent(node)) is not None:
            yield parent
            node = parent

    def statement_of(self, node: ast.AST) -> ast.stmt | None:
        """Return the statement around an expression."""
        return next((one for one in self.around(node) if isinstance(one, ast.stmt)), None)

    def function_of(self, node: ast.AST) -> Function | None:
        """Return the function around a node."""
        return next((one for one in self.around(node) if isinstance(one, FUNCTIONS)), None)

    def loop_of(self, node: ast.AST) -> Loop | None:
        """Return the innermost loop around a node in its function."""
        inner = next((one for one in self.around(node) if isinstance(one, (*FUNCTIONS, *LOOPS))), None)
        return inner if isinstance(inner, LOOPS) else None

    def are_alternatives(self, first: ast.AST, second: ast.AST) -> bool:
        """Return whether two nodes are in different branches of one `if`."""
        others = [second, *self.around(second)]
        branch = first
        for one in self.around(first):
            if one in others[1:]:
                return isinstance(one, ast.If) and (branch in one.body) != any(part in one.body for part in others)
            branch = one
        return False

    # Calls and assignments

    def calls(self) -> Iterator[ast.Call]:
        """Yield all calls."""
        return (node for node in self.nodes if isinstance(node, ast.Call))

    def calls_of(self, function: Function) -> Iterator[tuple[ast.Call, list[str]]]:
        """Yield the calls of a function, of a method by its name, or of a class, with the parameters for their positional arguments."""
        owner, parameters = self.parent(function), parameters_of(function)
        method = isinstance(owner, ast.ClassDef)
        called = owner.name if isinstance(owner, ast.ClassDef) and function.name == "__init__" else function.name
        for one in self.calls():
            if name_in(one.func) == called or (method and is_call_of(one, called)):
                yield one, parameters[method:]

    def assignments(self, name: str) -> Iterator[ast.Assign]:
        """Yield the assignments to a name."""
        return (node for node in self.nodes if isinstance(node, ast.Assign) and name and name in map(name_in, node.targets))

    # Values

    def as_written(self, number: ast.expr) -> str:
        """Return a number as the script writes it, with its value if that is known."""
        words, value = ast.unparse(number)[:40], self.constant(number)
        return words if value is None or words == str(value) else f"{words} ({value})"

    def constant(self, number: ast.expr) -> Number | None:
        """Return the value of a number, of a product of numbers, or of a name for one; None if it is unknown.

        A name counts if it is assigned once, or is an option with a default.
        """
        value = self._value(number, frozenset())
        return value if value is not None and 0 < value < MAX_VALUE else None

    def _value(self, number: ast.expr, names: frozenset[str]) -> Number | None:
        """Return the value of an expression, for which these names were looked up already."""
        if isinstance(number, ast.Constant):
            value = number.value
            return value if isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < MAX_VALUE else None
        if isinstance(number, ast.BinOp) and isinstance(number.op, (ast.Mult, ast.FloorDiv)):
            left, right = self._value(number.left, names), self._value(number.right, names)
            if left is None or not right or abs(left) >= MAX_VALUE:
                return None
            return left * right if isinstance(number.op, ast.Mult) else left // right
        name = name_in(number)
        if not name or name in names or any(name_in(one.target) == name for one in self.nodes if isinstance(one, ast.AugAssign)):
            return None
        values = [one.value for one in self.assignments(name)]
        if not values and "." in name:
            values = list(self._defaults(name.rpartition(".")[2]))
        return self._value(values[0], names | {name}) if len(values) == 1 else None

    def _defaults(self, option: str) -> Iterator[ast.expr]:
        """Yield the defaults that argument parsers give an option."""
        for call in (one for one in self.calls() if is_call_of(one, "add_argument")):
            words = [one.value for one in call.args if isinstance(one, ast.Constant) and isinstance(one.value, str)]
            if option in (word.lstrip("-").replace("-", "_") for word in words):
                yield from (keyword.value for keyword in call.keywords if keyword.arg == "default")

    def entry(self, mapping: ast.expr | None, key: str) -> ast.expr | None:
        """Return the value of a key in the dictionary that a name is assigned; None if it is not written there."""
        written = (one.value for one in self.assignments(name_in(mapping)) if isinstance(one.value, ast.Dict))
        if (dictionary := next(written, None)) is None:
            return None
        keys = [one.value if isinstance(one, ast.Constant) else None for one in dictionary.keys]
        return dictionary.values[keys.index(key)] if key in keys else None
