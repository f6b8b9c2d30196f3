"""Follow one command by the kind of its node in the syntax tree."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress

from dstui.adopt.shell import assignments, flow
from dstui.adopt.shell.expansion import line_of
from dstui.adopt.shell.reader import Follow, Shell, ShellCommand, Status, decided
from dstui.adopt.shell.shell_state import Node, Undecidable

PATTERN = re.compile(r"(?<!\\)[*?]")
DEFINED_IN = "DefinedIn"
"""Key of a function's body: the text to which its positions belong."""


def follow_unknown(_shell: Shell, _node: Node) -> Status:
    """Ignore a command that is not supported: coproc, select, and new ones of shfmt."""
    return None


def _call(shell: Shell, node: Node) -> Status:
    expander = shell.expander
    words = expander.words(node.get("Args", ()))
    if words:
        env = {one["Name"]["Value"]: expander.text(one.get("Value")) for one in node.get("Assigns", ())}
        patterns = [expander.text(word) for word in node.get("Args", ()) if _has_pattern(word)]
        return shell.reader.command(shell, ShellCommand(words, env, line_of(node), patterns))
    for assignment in node.get("Assigns", ()):
        assignments.assign(shell, assignment)
    return True


def _has_pattern(word: Node) -> bool:
    """Return whether a word has * or ? outside of quotes. One that begins as an option matches no file."""
    parts = word.get("Parts", ())
    first = parts[0].get("Value", "") if parts else ""
    return not str(first).startswith("-") and any(part["Type"] == "Lit" and PATTERN.search(part.get("Value", "")) for part in parts)


def _pipe(shell: Shell, node: Node) -> Status:
    """Follow both sides for launches; the right one reads the output of the left one."""
    if shell.output is not None:
        passed: list[str] = []
        shell.fork().with_streams(output=passed).statement(node["X"])
        return shell.fork().with_streams("".join(passed), shell.output).statement(node["Y"])
    passed_on = _pipe_source(shell, node["X"])
    shell.fork().with_streams(passed_on).statement(node["Y"])
    return None


def _pipe_source(shell: Shell, statement: Node) -> str | None:
    """Follow the left side of a pipe and return its output; None if programs or launches print it."""
    launches = shell.reader.launches
    before, printed = len(launches), list[str]()
    with suppress(Undecidable):
        shell.fork().with_streams(output=printed).statement(statement)
        return "".join(printed) if len(launches) == before else None
    del launches[before:]
    shell.fork().with_streams().statement(statement)
    return None


def _binary(shell: Shell, node: Node) -> Status:
    return _pipe(shell, node) if node["Op"] in ("|", "|&") else flow.follow_list(shell, node)


def _block(shell: Shell, node: Node) -> Status:
    return shell.run(node.get("Stmts", ()))


def _subshell(shell: Shell, node: Node) -> Status:
    return shell.fork().run(node.get("Stmts", ()))


def _time(shell: Shell, node: Node) -> Status:
    return shell.statement(node["Stmt"]) if node.get("Stmt") else True


def _define(shell: Shell, node: Node) -> Status:
    node["Body"][DEFINED_IN] = shell.reader.text
    shell.state.functions[node["Name"]["Value"]] = node["Body"]
    return True


def _test(shell: Shell, node: Node) -> Status:
    return decided(lambda: shell.conditions.clause(node["X"]))


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
