"""Facts that a reading of shell text cannot know: the holes, their original text, and the assumptions."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping

from dstui.adopt.shell.shell_state import GPU_COUNT, ShellContext, Undecidable, hole, holes_in

PATH_LISTS = ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH", "LIBRARY_PATH", "CPATH", "C_INCLUDE_PATH", "MANPATH", "PKG_CONFIG_PATH")
"""Variables that a text extends; empty if the environment lacks them."""
COUNTS_GPUS = re.compile(r"nvidia-smi.*\|\s*wc\b|nvidia-smi\s+(?:-L|--list-gpus)|device_count\(\)", re.DOTALL)
RANDOM_NUMBER = "29571"
"""Replaces $RANDOM, which differs in each launch; usable as a port."""
OWN = {"?": "0", "$": "1", "SECONDS": "0", "-": "", "!": "", "LINENO": "", "BASHPID": "", "PPID": ""}
"""Variables that the shell sets itself."""


class Unknowns:
    """The holes of one reading, and its assumptions."""

    def __init__(self, context: ShellContext, *, arguments_are_open: bool) -> None:
        self.context, self.arguments_are_open = context, arguments_are_open
        self.assumptions: list[str] = []
        self.sources: dict[str, str] = {}
        """Hole -> what it stands for in the text, with its line."""
        self.unseen: list[str] = []
        """Commands that may start a launch which dstui cannot see, as sentences."""
        self.tested = 0
        """The number of unset variables that conditions have read."""
        self.moments = set[str]()
        """Outputs of `date`, which have the time of this reading instead of the launch."""
        self.batch: Mapping[str, str] = {}
        """The variables that SLURM sets for a batch script, as far as they are known; empty for other texts."""
        self.assigned = ""
        """The variable that is being assigned: it gives a name to the output of an unknown program."""

    def as_tested(self, text: str, line: int) -> str:
        """Return the text for a condition. An unset variable counts as empty, which is noted. Raises Undecidable."""
        for kind, name in holes_in(text):
            if kind == "unset" and name.startswith("SLURM_") and self.batch:
                text = text.replace(hole("unset", name), self._batch_variable(name))
                continue
            if kind != "unset" or (self.arguments_are_open and name.startswith("ARG_")):
                raise Undecidable
            self.tested += 1
            what = f"${name.removeprefix('ARG_')}" if name.startswith("ARG_") else f"${name}"
            self.note(f"line {line} tests {what}: read as unset" if line else f"a condition tests {what}: read as unset")
            text = text.replace(hole("unset", name), "")
        return text

    def _batch_variable(self, name: str) -> str:
        """Return a variable of SLURM that a condition of a batch script tests. Raises Undecidable if it is unknown."""
        if name not in self.batch:
            raise Undecidable
        self.note(f"a condition tests ${name}: {'set' if 'JOB' in name and 'NUM' not in name else self.batch[name]} in this batch job")
        return self.batch[name]

    def mark(self) -> tuple[int, int]:
        """Return how many unset variables conditions have asked for, and the number of notes."""
        return self.tested, len(self.assumptions)

    def note(self, sentence: str) -> None:
        """Record a sentence about an assumption, once."""
        if sentence not in self.assumptions:
            self.assumptions.append(sentence)

    def cut_off(self, launch: int, line: int, option: str) -> None:
        """Record that options stand on a line of their own after a launch, for the first such line."""
        start = f"the launch in line {launch} ends before line "
        if not any(one.startswith(start) for one in self.assumptions):
            self.note(f"{start}{line} ({option.partition('=')[0]} …): the line before has no \\ at its end")

    def unset(self, name: str, folder: str) -> str:
        """Return the hole of an unset variable, or the value that the shell itself gives it."""
        if name in ("HOME", "PWD", "OLDPWD"):
            return hole("computed", "HOME") if name == "HOME" else folder
        if name in ("0", "BASH_SOURCE"):
            return self.context.script or "bash"
        if name == "RANDOM":
            self.note("$RANDOM differs at each launch; the Plan has one number")
            return RANDOM_NUMBER
        if name in OWN:
            return OWN[name]
        if name in PATH_LISTS:
            return self.context.environment.get(name, "")
        if name == "#":
            if self.arguments_are_open:
                raise Undecidable
            return "0"
        if name.isdigit():
            self.sources.setdefault(f"ARG_{name}", f"${name}, the script's argument {name}")
            return hole("unset", f"ARG_{name}")
        self.sources.setdefault(name, f"${name}, which nothing in the text sets")
        return hole("unset", name)

    def name_of(self, source: str, line: int) -> str:
        """Name the output of an unknown program: after the variable that receives it, else after the program."""
        if COUNTS_GPUS.search(source):
            self.sources.setdefault(GPU_COUNT, f"{' '.join(source.split())}, line {line}")
            return GPU_COUNT
        words = re.findall(r"[A-Za-z_]\w*", source)
        base = self.assigned or (words[0].upper() if words else "VALUE")
        about = f"{' '.join(source.split())[:100]}, line {line}"
        for number in itertools.count(1):
            name = base if number == 1 else f"{base}_{number}"
            if self.sources.setdefault(name, about) == about:
                return name
        raise AssertionError
