"""The reader of shell text, as the functions see it that follow one kind of command."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from dstui.adopt.shell.conditions import Conditions
from dstui.adopt.shell.expansion import Expander
from dstui.adopt.shell.shell_state import Node, ShellState, Streams
from dstui.adopt.shell.unknowns import Unknowns
from dstui.base.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class ShellCommand:
    """The words of a command, with the variables set only for it."""

    words: Sequence[str]
    env: Mapping[str, str]
    line: int
    patterns: Sequence[str] = ()
    """Those of the words that the shell would replace by the names of files."""


class Reader(Protocol):
    """The part of `interpreter.ShellReader` that is used while one command is followed.

    The success of a command is True, False, or None if only a run tells.
    """

    unknowns: Unknowns
    undecided: dict[str, int]
    condition: int
    made: set[str]
    text: bytes

    def run(self, statements: Sequence[Node], state: ShellState, streams: Streams) -> bool | None:
        """Follow statements one after another."""

    def statement(self, statement: Node, state: ShellState, streams: Streams) -> bool | None:
        """Follow one statement."""

    def command(self, command: ShellCommand, state: ShellState, streams: Streams) -> bool | None:
        """Follow a command by its words."""

    def follow_text(self, text: str, state: ShellState, streams: Streams, line: int) -> bool | None:
        """Follow a text that would be run (eval, bash -c)."""

    def follow_pipe_source(self, statement: Node, state: ShellState) -> str | None:
        """Follow the left side of a pipe and return its output; None if programs or launches print it."""

    def count_step(self, line: int) -> None:
        """Count a step."""

    def decided(self, decide: Callable[[], bool | None]) -> bool | None:
        """Return the result of `decide`; None if only a run decides it."""

    def expander(self, state: ShellState) -> Expander:
        """Return an expander for this state."""

    def conditions(self, state: ShellState) -> Conditions:
        """Return an evaluator of tests for this state."""

    def is_folder(self, state: ShellState, path: str) -> bool | None:
        """Return whether a folder exists; None if unknown."""


Follow = Callable[[Reader, Node, ShellState, Streams], "bool | None"]
"""Follows one kind of command."""
