"""Lines from standard input and to standard output: the only way in which the plain face speaks."""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Sequence

from dstui.base.output import flush, tell
from dstui.base.text import sanitise

LONGEST = 1 << 16
"""Bytes of a line that are read; what is longer is taken for a line of its own."""
YES, NO = ("y", "yes"), ("n", "no")


class Ended(Exception):
    """Standard input has ended: nobody answers any more."""


class Back(Exception):
    """The answer was `b`: go back to where this was asked from."""


class Leave(Exception):
    """The answer was `q`: leave dstui."""


class Console:
    """Prints whole lines and reads whole lines. Standard input is read as bytes, so that waiting for it can be bounded."""

    def __init__(self) -> None:
        self._waiting = b""
        self.ended = False
        """Standard input gives nothing more."""
        self.can_go_back = False

    def say(self, *lines: str) -> None:
        """Print lines; whatever is unsafe in them is taken out."""
        for line in lines:
            for part in line.split("\n"):
                tell(sanitise(part).rstrip())
        flush()

    def read(self, timeout: float | None = None) -> str | None:
        """Return the next line without its end; None where none came in time, Ended where none will come."""
        while b"\n" not in self._waiting and len(self._waiting) < LONGEST and not self.ended:
            if not select.select([sys.stdin], [], [], timeout)[0]:
                return None
            piece = os.read(sys.stdin.fileno(), 4096)
            self._waiting += piece
            self.ended = not piece
        if self.ended and not self._waiting:
            raise Ended
        line, _, self._waiting = self._waiting.partition(b"\n")
        return line.decode(errors="replace").strip()

    def ask(self, prompt: str) -> str:
        """Print a prompt as a line of its own, and return the answer. Leave and Back for q and b."""
        while True:
            self.say(prompt)
            answer = self.read() or ""
            if answer in ("q", "quit"):
                raise Leave
            if answer not in ("b", "back"):
                return answer
            if self.can_go_back:
                raise Back
            self.say("There is nothing before this.")

    def choose(self, question: str, options: Sequence[str], default: int | None = None) -> int:
        """Ask for one of these by its number, and return its index. Enter takes the default, where there is one."""
        self.say(question, *(f"  {number}. {option}" for number, option in enumerate(options, 1)))
        while True:
            answer = self.ask("Number:" if default is None else f"Number, or Enter for {default + 1}:")
            if not answer and default is not None:
                return default
            if (number := number_in(answer, len(options))) is not None:
                return number
            self.say(f"A number from 1 to {len(options)}, b to go back, or q to quit.")

    def agrees(self, question: str) -> bool:
        """Ask a question whose answer is no unless it is yes."""
        while True:
            answer = self.ask(f"{question} y or n; Enter is no:").casefold()
            if answer in (*YES, *NO, ""):
                return answer in YES


def number_in(answer: str, count: int) -> int | None:
    """Return the index that a typed number from 1 to `count` stands for; None for anything else."""
    number = int(answer) if answer.isascii() and answer.isdecimal() and len(answer) < 5 else 0
    return number - 1 if 1 <= number <= count else None
