"""Follow one command by the kind of its node in the syntax tree."""

from __future__ import annotations

import re
from collections.abc import Mapping

from dstui.adopt.shell import assignments, flow
from dstui.adopt.shell.expansion import line_of
from dstui.adopt.shell.reader import Follow, Reader, ShellCommand
from dstui.adopt.shell.shell_state import Node, ShellState, Streams

PATTERN = re.compile(r"(?<!\\)[*?]")
DEFINED_IN = "DefinedIn"
"""Key of a function's body: the text to which its positions belong."""


def follow_unknown(_reader: Reader, _node: Node, _state: ShellState, _streams: Streams) -> bool | None:
    """Ignore a command that is not supported: coproc, select, and new ones of shfmt."""
    return None


def _call(reader: Reader, node: Node, state: ShellState, streams: Streams) -> bool | None:
    expander = reader.expander(state)
    words = expander.words(node.get("Args", ()))
    if words:
        env = {one["Name"]["Value"]: expander.text(one.get("Value")) for one in node.get("Assigns", ())}
        patterns = [expander.text(word) for word in node.get("Args", ()) if _has_pattern(word)]
        return reader.command(ShellCommand(words, env, line_of(node), patterns), state, streams)
    for assignment in node.get("Assigns", ()):
        assignments.assign(reader, assignment, state)
    return True


def _has_pattern(word: Node) -> bool:
    """Return whether a word has * or ? outside of quotes. One that begins as an option matches no file."""
    parts = word.get("Parts", ())
    first = parts[0].get("Value", "") if parts else ""
    return not str(first).startswith("-") and any(part["Type"] == "Lit" and PATTERN.search(part.get("Value", "")) for part in parts)


def _pipe(reader: Reader, node: Node, state: ShellState, streams: Streams) -> bool | None:
    """Follow both sides for launches; the right one reads the output of the left one."""
    if streams.output is not None:
        passed: list[str] = []
        reader.statement(node["X"], state.copy(), Streams(output=passed))
        return reader.statement(node["Y"], state.copy(), Streams("".join(passed), streams.output))
    reader.statement(node["Y"], state.copy(), Streams(reader.follow_pipe_source(node["X"], state)))
    return None


def _binary(reader: Reader, node: Node, state: ShellState, streams: Streams) -> bool | None:
    return _pipe(reader, node, state, streams) if node["Op"] in ("|", "|&") else flow.follow_list(reader, node, state, streams)


def _block(reader: Reader, node: Node, state: ShellState, streams: Streams) -> bool | None:
    return reader.run(node.get("Stmts", ()), state, streams)


def _subshell(reader: Reader, node: Node, state: ShellState, streams: Streams) -> bool | None:
    return reader.run(node.get("Stmts", ()), state.copy(), streams)


def _time(reader: Reader, node: Node, state: ShellState, streams: Streams) -> bool | None:
    return reader.statement(node["Stmt"], state, streams) if node.get("Stmt") else True


def _define(reader: Reader, node: Node, state: ShellState, _streams: Streams) -> bool | None:
    node["Body"][DEFINED_IN] = reader.text
    state.functions[node["Name"]["Value"]] = node["Body"]
    return True


def _test(reader: Reader, node: Node, state: ShellState, _streams: Streams) -> bool | None:
    return reader.decided(lambda: reader.conditions(state).clause(node["X"]))


KINDS: Mapping[str, Follow] = {
    "CallExpr": _call,
    "DeclClause": assignments.declare,
    "BinaryCmd": _binary,
    "Block": _block,
    "Subshell": _subshell,
    "TimeClause": _time,
    "FuncDecl": _define,
    "IfClause": flow.follow_if,
    "CaseClause": flow.follow_case,
    "WhileClause": flow.follow_while,
    "ForClause": flow.follow_for,
    "TestClause": _test,
    "ArithmCmd": assignments.arithmetic,
    "LetClause": assignments.let,
}
"""Kind of a command's node -> the function that follows it."""
