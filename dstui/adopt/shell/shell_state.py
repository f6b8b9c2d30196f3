"""The state of a reading of shell text between two commands, with values that may contain holes."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any, Literal

from dstui.base.dataclass import dataclass

Node = dict[str, Any]
"""A node of the syntax tree in the form of `shfmt --to-json` (mvdan.cc/sh/v3/syntax). A position is (offset in bytes, line)."""
Value = str | list[str]
"""A variable's value: a text, or an array of texts. Holes are marked by OPEN and CLOSE."""
Wrappers = tuple[tuple[str, ...], ...]
"""The words of each program in front of a launch, such as srun, mpirun or nsys, up to the next one."""
Kind = Literal["unset", "computed", "undecided"]
"""The reason for a hole: the variable is unset; a program computes it; an undecided branch sets it."""

OPEN, CLOSE = "\ue000", "\ue001"
"""Private-use characters around `KIND:NAME`. A text that contains them is refused."""
HOLE = re.compile(f"{OPEN}(\\w+):(\\w+){CLOSE}")
GPU_COUNT = "GPUS_HERE"
"""The hole for the machine's number of GPUs, the launchers' own default."""


def hole(kind: Kind, name: str) -> str:
    """Return the text of a hole."""
    return f"{OPEN}{kind}:{name}{CLOSE}"


def holes_in(text: str) -> list[tuple[str, str]]:
    """Return kind and name of each hole."""
    return HOLE.findall(text) if OPEN in text else []


def to_plan_text(text: str) -> str:
    """Return the text in the form of a Plan: holes as `${NAME}`, a literal `${` as `$${`."""
    return HOLE.sub(lambda match: f"${{{match[2]}}}", text.replace("${", "$${"))


def to_display_text(text: str) -> str:
    """Return the text for a message."""
    return HOLE.sub(lambda match: f"${match[2]}", text)


class Undecidable(Exception):
    """The outcome of a step is known only at run time."""


class ShellLimit(Exception):
    """The text exceeds a limit of steps, words or nesting."""

    def __init__(self, message: str, line: int = 0) -> None:
        super().__init__(message)
        self.message, self.line = message, line


@dataclass(frozen=True, slots=True)
class ShellContext:
    """Callbacks and facts about the place where the text would run."""

    folder: str
    """The absolute path of the current folder."""
    script: str = ""
    """The path of the script as typed ($0); empty for pasted text."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Known variables. A list of paths (PYTHONPATH) that is missing is empty."""
    parse: Callable[[str], Node | None] = lambda _text: None
    """Returns the syntax tree of a text that would be run (eval, bash -c); None if it has none."""
    is_folder: Callable[[str], bool | None] = lambda _path: None
    """Returns whether a folder exists; None if unknown."""
    text_of: Callable[[str], str | None] = lambda _path: None
    """Returns the text of a file; None if it cannot be read."""
    moment: Callable[[str], str] = lambda _format: ""
    """Returns the current time in a format of strftime."""

    @property
    def decided_by_a_run(self) -> str:
        """Describe what the text decides while it runs, and the command that reads it then."""
        return f"which the script decides while it runs: `dstui run --hold -- bash {self.script or 'SCRIPT'}` reads it"


@dataclass(slots=True)
class ShellState:
    """Variables, folder and functions between two commands."""

    folder: str
    variables: dict[str, Value] = field(default_factory=dict)
    exported: set[str] = field(default_factory=set)
    positional: list[str] = field(default_factory=list)
    arguments_given: bool = False
    """True if the positional parameters are known: those of a function, of `set --`, or of a script that the text starts. A missing one is
    empty."""
    shifted: int = 0
    """The number of unknown arguments that were shifted away."""
    functions: dict[str, Node] = field(default_factory=dict)
    associative: set[str] = field(default_factory=set)
    """Arrays with words as indices. Their elements are the variables `NAME[WORD]`."""
    previous: str = ""
    """The folder before the last `cd`."""
    stack: list[str] = field(default_factory=list)
    """Folders of `pushd`."""
    absent: str = ""
    """A folder that the text has changed to and that is not here, relative to `folder`: `cd ..` leads back."""
    ended: str = ""
    """exit, return, break or continue: the following statements are not reached."""
    left: dict[str, dict[str, Value]] = field(default_factory=dict)
    """Branches that are decided only in a run: how one may have ended its loop, function or script -> the variables at that point."""

    def copy(self) -> ShellState:
        """Return an independent copy."""
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
            self.absent,
            self.ended,
            dict(self.left),
        )

    @property
    def separators(self) -> str:
        """The characters (IFS) at which words are split."""
        found = self.variables.get("IFS", " \t\n")
        return found if isinstance(found, str) else " \t\n"


@dataclass(frozen=True, slots=True)
class Launch:
    """A command that starts training, as the shell would run it."""

    launcher: str
    """deepspeed, accelerate, torchrun, python, or the name of a framework's command."""
    words: tuple[str, ...]
    """The words of the command after the launcher's name."""
    env: Mapping[str, str]
    """Variables that the text exports, or sets for this command."""
    folder: str
    line: int
    wrappers: Wrappers = ()
    condition: int = 0
    """The line of an undecided branch around the launch; 0 if it is always reached."""
    written: Mapping[str, str] = field(default_factory=dict)
    """Files that the text wrote earlier: path -> content."""

    @property
    def texts(self) -> list[str]:
        """The texts that a Plan gets from it: a Plan has no PATH."""
        return [*self.words, *(value for name, value in self.env.items() if name != "PATH"), self.folder]
