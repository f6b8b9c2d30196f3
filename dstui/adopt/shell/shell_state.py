"""What a reading of shell text knows: values with holes in them, and the state between two commands."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Node = dict[str, Any]
"""A node of the syntax tree, as `shfmt --to-json` writes it (mvdan.cc/sh/v3/syntax); a position is (offset in bytes, line)."""
Value = str | list[str]
"""A variable's value: a text, or an array of texts. Holes stand in them between OPEN and CLOSE."""
Kind = Literal["unset", "computed", "undecided"]
"""Why a hole is open: nobody sets the variable; a program computes it; a branch that cannot be decided sets it."""

OPEN, CLOSE = "\ue000", "\ue001"
"""Private-use characters around `KIND:NAME`. A text that has them is refused."""
HOLE = re.compile(f"{OPEN}(\\w+):(\\w+){CLOSE}")
GPU_COUNT = "GPUS_HERE"
"""The hole for the number of GPUs of the machine: the launchers' own default."""


def hole(kind: Kind, name: str) -> str:
    """Return the text of a hole."""
    return f"{OPEN}{kind}:{name}{CLOSE}"


def holes_in(text: str) -> list[tuple[str, str]]:
    """Return kind and name of each hole."""
    return HOLE.findall(text) if OPEN in text else []


def as_plan_text(text: str) -> str:
    """Return the text as a Plan holds it: holes as `${NAME}`, a literal `${` as `$${`."""
    return HOLE.sub(lambda match: f"${{{match[2]}}}", text.replace("${", "$${"))


def as_shown(text: str) -> str:
    """Return the text for a sentence."""
    return HOLE.sub(lambda match: f"${match[2]}", text)


class Undecidable(Exception):
    """A step whose outcome is known only while the script runs."""


class ShellLimit(Exception):
    """The text asks for more than is read: steps, words, nesting."""

    def __init__(self, message: str, line: int = 0) -> None:
        super().__init__(message)
        self.message, self.line = message, line


@dataclass(frozen=True, slots=True)
class ShellContext:
    """What the reader may ask about the place where the text would run."""

    folder: str
    """The absolute path of the current folder."""
    script: str = ""
    """The path of the script as typed ($0); empty for pasted text."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables that are known; a list of paths (PYTHONPATH) that is not there is empty."""
    parse: Callable[[str], Node | None] = lambda _text: None
    """The syntax tree of a text that would be run (eval, bash -c); None where it has none."""
    is_folder: Callable[[str], bool | None] = lambda _path: None
    """Whether a folder is there; None where nobody can tell."""
    text_of: Callable[[str], str | None] = lambda _path: None
    """The text of a file; None where it cannot be read."""
    moment: Callable[[str], str] = lambda _format: ""
    """The current time in a format of strftime."""


@dataclass(slots=True)
class ShellState:
    """Variables, folder and functions between two commands."""

    folder: str
    variables: dict[str, Value] = field(default_factory=dict)
    exported: set[str] = field(default_factory=set)
    positional: list[str] = field(default_factory=list)
    arguments_given: bool = False
    """The positional parameters are known: of a function, of `set --`, of a script that the text starts. One that is not there is empty."""
    shifted: int = 0
    """How many of the arguments that nobody knows were shifted away."""
    functions: dict[str, Node] = field(default_factory=dict)
    associative: set[str] = field(default_factory=set)
    """Arrays with words for indices; their elements are the variables `NAME[WORD]`."""
    previous: str = ""
    """The folder before the last `cd`."""
    stack: list[str] = field(default_factory=list)
    """Folders of `pushd`."""
    ended: str = ""
    """exit, return, break or continue: what follows is not reached."""

    def copy(self) -> ShellState:
        """Return a state that changes by itself."""
        return ShellState(
            self.folder,
            {name: list(value) if isinstance(value, list) else value for name, value in self.variables.items()},
            set(self.exported),
            list(self.positional),
            self.arguments_given,
            self.shifted,
            dict(self.functions),
            set(self.associative),
            self.previous,
            list(self.stack),
            self.ended,
        )

    @property
    def separators(self) -> str:
        """The characters that words are split at: IFS."""
        found = self.variables.get("IFS", " \t\n")
        return found if isinstance(found, str) else " \t\n"


@dataclass(frozen=True, slots=True)
class Launch:
    """A command that starts training, as the shell would run it."""

    launcher: str
    """deepspeed, accelerate, torchrun, python, or the name of a framework's command."""
    words: tuple[str, ...]
    """The words after the launcher's name."""
    env: Mapping[str, str]
    """What the text exports, or sets for this command."""
    folder: str
    line: int
    wrappers: tuple[str, ...] = ()
    """srun, nsys and the like in front of it."""
    condition: int = 0
    """The line of a branch that decides at run time whether it is reached; 0 where it is."""
    written: Mapping[str, str] = field(default_factory=dict)
    """Files that the text has written before: path -> content."""


@dataclass(frozen=True, slots=True)
class Streams:
    """Where a command reads from and prints to."""

    given: str | None = None
    """Standard input, where the text itself gives it."""
    output: list[str] | None = None
    """Takes what is printed, where the text uses it."""
