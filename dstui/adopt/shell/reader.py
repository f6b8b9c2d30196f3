"""The shell and its reader, as the functions see them that follow one kind of command."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Protocol

from dstui.adopt.shell.conditions import Conditions
from dstui.adopt.shell.expansion import Expander, line_of
from dstui.adopt.shell.shell_state import OPEN, Launch, Node, ShellContext, ShellState, Undecidable, Wrappers
from dstui.adopt.shell.unknowns import COUNTS_GPUS, Unknowns
from dstui.base.dataclass import dataclass

Status = bool | None
"""The success of a command: True, False, or None if only a run tells."""


@dataclass(frozen=True, slots=True)
class ShellCommand:
    """The words of a command, with the variables set only for it."""

    words: Sequence[str]
    env: Mapping[str, str]
    line: int
    patterns: Sequence[str] = ()
    """Those of the words that the shell would replace by the names of files."""


@dataclass(frozen=True, slots=True)
class Shell:
    """A shell that follows a command: its state, and the input and output of the command."""

    reader: Reader
    state: ShellState
    given: str | None = None
    """Standard input, if the text itself provides it."""
    output: list[str] | None = None
    """Collects the output, if the text uses it."""

    def with_streams(self, given: str | None = None, output: list[str] | None = None) -> Shell:
        """Return this shell for a command with other streams."""
        return Shell(self.reader, self.state, given, output)

    def without_output(self) -> Shell:
        """Return this shell for a condition: a program in it decides by its status, known only at run time."""
        return self.with_streams(self.given)

    def with_state(self, state: ShellState) -> Shell:
        """Return a shell with the same streams."""
        return Shell(self.reader, state, self.given, self.output)

    def fork(self) -> Shell:
        """Return a shell with a copy of the state."""
        return self.with_state(self.state.copy())

    def run(self, statements: Sequence[Node]) -> Status:
        """Follow statements one after another. Return the success of the last."""
        status: Status = True
        for statement in statements:
            if self.state.ended:
                break
            status = self.statement(statement)
        return status

    def statement(self, statement: Node) -> Status:
        """Follow one statement."""
        return self.reader.statement(self, statement)

    def output_of(self, node: Node) -> str:
        """Return the output of a command substitution. Raises Undecidable if an unknown program prints it."""
        if COUNTS_GPUS.search(self.reader.source_of(node)):
            raise Undecidable
        printed: list[str] = []
        self.fork().with_streams(output=printed).run(node.get("Stmts", ()))
        return "".join(printed)

    @property
    def expander(self) -> Expander:
        """An expander for the present state."""
        unknowns = self.reader.unknowns
        return Expander(
            self.state, self.output_of, unknowns.unset, lambda node: unknowns.name_of(self.reader.source_of(node), line_of(node))
        )

    @property
    def conditions(self) -> Conditions:
        """An evaluator of tests for the present state."""
        return Conditions(self.expander, self.reader.unknowns.as_tested, self.is_folder)

    def path(self, path: str) -> str:
        """Return a path without `..`; relative paths start from the current folder."""
        return posixpath.normpath(posixpath.join(self.state.folder, path))

    def is_folder(self, path: str) -> bool | None:
        """Return whether a folder exists; None if the path has a hole or the answer is unknown."""
        if self.path(path) in self.reader.made:
            return True
        return None if OPEN in path + self.state.folder else self.reader.context.is_folder(self.path(path))

    def text_of(self, name: str) -> str | None:
        """Return the text of a file that the text has written, or that is here."""
        path = self.path(name)
        if path in self.reader.files:
            return self.reader.files[path]
        return None if OPEN in path or path.startswith(("/proc/", "/sys/", "/dev/")) else self.reader.context.text_of(path)


class Reader(Protocol):
    """The part of `interpreter.ShellReader` that is used while one command is followed."""

    context: ShellContext
    unknowns: Unknowns
    launches: list[Launch]
    undecided: dict[str, int]
    condition: int
    made: set[str]
    files: dict[str, str]
    text: bytes

    def statement(self, shell: Shell, statement: Node) -> Status:
        """Follow one statement."""

    def command(self, shell: Shell, command: ShellCommand) -> Status:
        """Follow a command by its words."""

    def follow_text(self, shell: Shell, text: str, line: int, wrappers: Wrappers = ()) -> Status:
        """Follow a text that would be run (eval, bash -c)."""

    def count_step(self, line: int) -> None:
        """Count a step. Raises ShellLimit."""

    def source_of(self, node: Node) -> str:
        """Return the text of a node."""


Follow = Callable[[Shell, Node], Status]
"""Follows one kind of command."""


def decided(decide: Callable[[], Status]) -> Status:
    """Return the result of `decide`; None if only a run decides it."""
    with suppress(Undecidable):
        return decide()
    return None
