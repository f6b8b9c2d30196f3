"""Follow commands that set variables: assignments, declarations, arithmetic."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress

from dstui.adopt.shell.expansion import Expander, line_of
from dstui.adopt.shell.reader import Shell, Status, decided
from dstui.adopt.shell.shell_state import Node, ShellState, Undecidable, Value, hole

NAME = re.compile(r"[A-Za-z_]\w*")
MAX_ELEMENTS = 200
"""Elements of an array that are set one by one."""


def declare(shell: Shell, node: Node) -> Status:
    """Follow `export`, `declare`, `local`, `readonly`."""
    state, exports, options = shell.state, node["Variant"]["Value"] == "export", ""
    for argument in node.get("Args", ()):
        name = (argument.get("Name") or {}).get("Value")
        if name is None:
            options += _declare_words(shell.expander.words([argument["Value"]]), state, exports=exports or "x" in options)
            exports = exports or "x" in options
            continue
        if "A" in options:
            state.associative.add(name)
        if "n" in options:  # -n makes an alias of another variable
            state.variables[name] = hole("computed", name)
        elif not argument.get("Naked"):
            assign(shell, argument)
        if "i" in options and isinstance(text := state.variables.get(name), str):
            shell.reader.follow_text(shell.with_streams(), f"(({name}={text}))", line_of(node))
        if exports:
            state.exported.add(name)
    return True


def _declare_words(words: Sequence[str], state: ShellState, *, exports: bool) -> str:
    """Follow words of a declaration that the parser does not split: `'NAME=value'`, `$SETTINGS`. Return the options among them."""
    for word in words:
        name, equals, value = word.partition("=")
        if not NAME.fullmatch(name):
            continue
        state.variables |= {name: value} if equals else {}
        state.exported |= {name} if exports else set()
    return "".join(word for word in words if word.startswith("-"))


def assign(shell: Shell, node: Node) -> None:
    """Follow `NAME=value`, `NAME+=value`, `NAME=(…)`, `NAME[3]=value`."""
    name, state, expander, unknowns = node["Name"]["Value"], shell.state, shell.expander, shell.reader.unknowns
    old = state.variables.get(name)
    if node.get("Index"):
        return _assign_element(expander, node, name)
    unknowns.assigned = name if len((node.get("Value") or {}).get("Parts", ())) == 1 else ""
    value: Value = expander.text(node.get("Value"))
    if node.get("Array") is not None and name in state.associative:
        for element in node["Array"].get("Elems", ()):
            state.variables[expander.element(name, element.get("Index"))] = expander.text(element.get("Value"))
        return None
    if node.get("Array") is not None:
        value = expander.words([element["Value"] for element in node["Array"].get("Elems", ()) if element.get("Value")])
    unknowns.assigned = ""
    if value == hole("unset", name):  # X=$X: the caller may or may not set it
        unknowns.note(f"line {line_of(node)}: ${name} comes from the environment: read as unset")
        value = ""
    if node.get("Append") and old is not None:
        value = old + value if isinstance(old, str) and isinstance(value, str) else [*_items(old), *_items(value)]
    state.variables[name] = value
    return None


def _assign_element(expander: Expander, node: Node, name: str) -> None:
    """Follow `NAME[3]=value`."""
    state = expander.state
    if name in state.associative:
        state.variables[expander.element(name, node["Index"])] = expander.text(node.get("Value"))
        return
    items = list(_items(state.variables.get(name, [])))
    with suppress(Undecidable):
        at = expander.number(node["Index"])
        if 0 <= at < MAX_ELEMENTS:
            items += [""] * (at + 1 - len(items))
            items[at] = expander.text(node.get("Value"))
            state.variables[name] = items


def _items(value: Value) -> list[str]:
    return [value] if isinstance(value, str) else value


def let(shell: Shell, node: Node) -> Status:
    """Follow `let`: each word is an expression, perhaps in quotes."""
    status: Status = True
    for expression in node.get("Exprs", ()):
        parts = [part["Type"] for part in expression.get("Parts", ())]
        if parts and set(parts) <= {"DblQuoted", "SglQuoted"}:
            status = shell.reader.follow_text(shell, f"(({shell.expander.text(expression)}))", line_of(expression))
        else:
            status = arithmetic(shell, {"X": expression})
    return status


def arithmetic(shell: Shell, node: Node) -> Status:
    """Follow `((…))`."""
    return decided(lambda: bool(shell.expander.number(node["X"])))
