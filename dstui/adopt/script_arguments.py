"""Read the argument parser of a training script, and return the required arguments that a launch lacks. Pure: nothing of it is run.

Only a parser of the standard library that is written out in full counts: each call in a statement of its own, with constants, in a function
that the script is sure to call. argparse itself then parses the words of the launch. `ScriptOption` of `pycode` is for suggestions instead:
it has the options of any parser anywhere, which a certain error must not rest on.
"""

from __future__ import annotations

import argparse
import ast
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

from dstui.base.dataclass import dataclass

PARSERS = ("ArgumentParser", "argparse.ArgumentParser")
HARMLESS = {"prog", "description", "usage", "epilog", "formatter_class", "add_help", "allow_abbrev", "conflict_handler", "argument_default"}
"""Keywords of ArgumentParser that change nothing about which arguments are required."""
DEEPSPEEDS = ("deepspeed.add_config_arguments", "add_config_arguments")
COUNTS = {"REMAINDER": "...", "OPTIONAL": "?", "ZERO_OR_MORE": "*", "ONE_OR_MORE": "+"}
"""Constants of argparse for `nargs`."""
ACTIONS = ("store", "store_true", "store_false", "store_const", "append", "append_const", "count", "extend", "version")
MISSING = "the following arguments are required"


@dataclass(frozen=True, slots=True)
class ScriptArgument:
    """An argument of a script's parser."""

    words: tuple[str, ...]
    """The option strings, or the name of a positional argument."""
    name: str
    """The attribute with its value: args.NAME."""
    line: int
    action: str = "store"
    count: int | str | None = None
    """`nargs`."""
    required: bool = False

    @property
    def positional(self) -> bool:
        """True if it has no option string."""
        return not self.words[0].startswith("-")

    def __str__(self) -> str:
        return self.words[-1] if self.positional else next((word for word in self.words if word.startswith("--")), self.words[0])


def arguments_of(text: str) -> tuple[ScriptArgument, ...]:
    """Return the arguments of the parser that a script is sure to call; () if it has none, or not all of it is plain."""
    if "ArgumentParser" not in text or "sys.argv" in text:
        return ()
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ()
    found = [arguments for body in _called(tree) for arguments in _parsers(body)]
    return found[0] if len(found) == 1 and text.count("ArgumentParser(") == 1 else ()


def missing(arguments: Sequence[ScriptArgument], words: Sequence[str]) -> list[ScriptArgument]:
    """Return the required arguments that the words of a launch lack."""
    parser = _Parser(add_help=False)
    try:
        for one in arguments:
            given: dict[str, Any] = {} if one.positional else {"required": one.required}
            if one.action in ("store_const", "append_const"):
                given["const"] = None
            elif one.action in ("store", "append", "extend"):
                given["nargs"] = one.count
            parser.add_argument(*one.words, action="store_true" if one.action == "version" else one.action, **given)
        parser.parse_known_args(list(words))
    except _Refused as refused:
        message = str(refused)
        named = message.partition(": ")[2].split(", ") if message.startswith(MISSING) else []
        return [one for one in arguments if one.required and "/".join(one.words) in named]
    except (ValueError, TypeError, argparse.ArgumentError):
        return []  # the script's own call would fail, with its own message
    return []


class _Refused(Exception):
    """Raised instead of argparse's exit, with its message."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise _Refused(message)


def _called(tree: ast.Module) -> Iterator[list[ast.stmt]]:
    """Yield the statements of the module and of its functions that run without a condition."""
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    waiting, seen = [tree.body], set[str]()
    for body in waiting:  # the list grows meanwhile
        plain = list(_plain(body))
        yield plain
        for statement in plain:
            for node in ast.walk(statement):
                if (
                    isinstance(node, ast.Call)
                    and isinstance(node.func, ast.Name)
                    and node.func.id in functions
                    and node.func.id not in seen
                ):
                    seen.add(node.func.id)
                    waiting.append(functions[node.func.id].body)


def _plain(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements that run one after the other, with those of `with` and of `if __name__ == "__main__"`."""
    for statement in body:
        if isinstance(statement, ast.With) or (isinstance(statement, ast.If) and "__name__" in ast.unparse(statement.test)):
            yield from _plain(statement.body)
        elif isinstance(statement, ast.Assign | ast.AnnAssign | ast.Expr | ast.Return):
            yield statement


def _parsers(body: Sequence[ast.stmt]) -> Iterator[tuple[ScriptArgument, ...]]:
    """Yield the arguments of each parser that is made, filled and asked in these statements."""
    made = [
        one.targets[0].id for one in body if isinstance(one, ast.Assign) and isinstance(one.targets[0], ast.Name) and _is_parser(one.value)
    ]
    for name in made:
        read = _Reading({name})
        if all(map(read.statement, body)) and read.asked:
            yield tuple(read.arguments)


def _is_parser(value: ast.expr) -> bool:
    """Return whether an expression makes a parser of the standard library whose keywords matter nothing."""
    plain = isinstance(value, ast.Call) and ast.unparse(value.func) in PARSERS
    return plain and isinstance(value, ast.Call) and not value.args and {keyword.arg for keyword in value.keywords} <= HARMLESS


class _Reading:
    """Follows the statements about one parser."""

    def __init__(self, names: set[str]) -> None:
        self.names = names
        """The parser and its groups."""
        self.arguments: list[ScriptArgument] = []
        self.asked = False

    def statement(self, statement: ast.stmt) -> bool:
        """Read a statement. Return False if the parser is not plain."""
        if isinstance(statement, ast.Assign) and any(map(self._is_ours, statement.targets)) and not self._keeps(statement.value):
            return False
        for node in ast.walk(statement):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and self._is_ours(node.func.value):
                if not self._call(node, node.func.attr, statement):
                    return False
            elif isinstance(node, ast.Call) and ast.unparse(node.func) in DEEPSPEEDS:
                self.arguments += [
                    ScriptArgument(("--deepspeed",), "deepspeed", node.lineno, "store_true"),
                    ScriptArgument(("--deepspeed_config",), "deepspeed_config", node.lineno),
                ]
        return True

    def _keeps(self, value: ast.expr) -> bool:
        """Return whether an assigned value is the parser itself, from its own call or through a function that it is given to."""
        return _is_parser(value) or (isinstance(value, ast.Call) and any(map(self._is_ours, value.args)))

    def _is_ours(self, value: ast.expr) -> bool:
        """Return whether an expression is the parser: by name, or returned by deepspeed.add_config_arguments."""
        if isinstance(value, ast.Call) and ast.unparse(value.func) in DEEPSPEEDS and value.args:
            value = value.args[0]
        return isinstance(value, ast.Name) and value.id in self.names

    def _call(self, call: ast.Call, method: str, statement: ast.stmt) -> bool:
        if method in ("add_argument_group", "add_mutually_exclusive_group"):
            if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
                self.names.add(statement.targets[0].id)
            return True
        if method in ("parse_args", "parse_known_args"):
            self.asked = True
            return not call.args and not call.keywords
        if method == "add_argument":
            argument = _argument(call)
            self.arguments += [argument] if argument else []
            return argument is not None
        return method in ("set_defaults", "print_help", "format_help", "error", "print_usage", "get_default")


def _argument(call: ast.Call) -> ScriptArgument | None:
    """Read a call of add_argument; None if not all of it is known."""
    words = [arg.value for arg in call.args if isinstance(arg, ast.Constant) and isinstance(arg.value, str)]
    given = {keyword.arg: keyword.value for keyword in call.keywords}
    if len(words) != len(call.args) or not words or None in given:
        return None
    action, count = _action(given.get("action")), _count(given.get("nargs"))
    if action is None or count is ...:
        return None
    positional = not words[0].startswith("-")
    dest = given.get("dest")
    name = dest.value if isinstance(dest, ast.Constant) and isinstance(dest.value, str) else ""
    long = next((word for word in words if word.startswith("--")), words[0])
    asked = given.get("required")
    required = count not in ("?", "*", "...", 0) if positional else isinstance(asked, ast.Constant) and asked.value is True
    return ScriptArgument(tuple(words), name or long.lstrip("-").replace("-", "_"), call.lineno, action, count, required)


def _action(value: ast.expr | None) -> str | None:
    if value is None:
        return "store"
    if isinstance(value, ast.Constant) and value.value in ACTIONS:
        return str(value.value)
    return "store_true" if ast.unparse(value).endswith("BooleanOptionalAction") else None


def _count(value: ast.expr | None) -> Any:
    """Return `nargs`; ... (Ellipsis) if it is not constant."""
    if value is None:
        return None
    if isinstance(value, ast.Constant) and isinstance(value.value, int | str):
        return value.value
    return COUNTS.get(value.attr, ...) if isinstance(value, ast.Attribute) else ...
