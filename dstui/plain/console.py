"""Read lines from standard input and print lines to standard output. The plain interface uses nothing else."""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Sequence

from dstui.base.output import flush, tell
from dstui.base.text import sanitise

LONGEST = 1 << 16
"""The maximum length of an input line in bytes; the rest of a longer line counts as the next line."""
YES, NO = ("y", "yes"), ("n", "no")


class Ended(Exception):
    """Standard input has ended: there will be no further answers."""


class Back(Exception):
    """The user answered `b`: return to the previous question."""


class Leave(Exception):
    """The user answered `q`: leave dstui."""


class Console:
    """Prints and reads whole lines. It reads standard input as bytes, so that it can wait for a limited time."""

    def __init__(self) -> None:
        self._waiting = b""
        self.ended = False
        """True if standard input has ended."""
        self.can_go_back = False

    def say(self, *lines: str) -> None:
        """Print lines, without the characters that are unsafe on a terminal."""
        for line in lines:
            for part in line.split("\n"):
                tell(sanitise(part).rstrip())
        flush()

    def read(self, timeout: float | None = None) -> str | None:
        """Return the next line without its end, or None if none came within `timeout` seconds. Raises Ended at the end of input."""
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
        """Print a prompt on its own line and return the answer. Raises Leave for `q` and Back for `b`."""
        while True:
            self.say(prompt)
            answer = self.read() or ""
            if answer in ("q", "quit"):
                raise Leave
            if answer not in ("b", "back"):
                return answer
            if self.can_go_back:
                raise Back
            self.say("This is the first step.")

    def choose(self, question: str, options: Sequence[str], default: int | None = None) -> int:
        """Ask for one of the options by number and return its index. Enter selects the default if there is one."""
        self.say(question, *(f"  {number}. {option}" for number, option in enumerate(options, 1)))
        while True:
            answer = self.ask("Number:" if default is None else f"Number, or Enter for {default + 1}:")
            if not answer and default is not None:
                return default
            if (number := number_in(answer, len(options))) is not None:
                return number
            self.say(f"A number from 1 to {len(options)}, b to go back, or q to quit.")

    def agrees(self, question: str) -> bool:
        """Ask a question; return True only if the answer is yes."""
        while True:
            answer = self.ask(f"{question} y or n; Enter is no:").casefold()
            if answer in (*YES, *NO, ""):
                return answer in YES


def number_in(answer: str, count: int) -> int | None:
    """Return the index for a typed number from 1 to `count`, or None for anything else."""
    number = int(answer) if answer.isascii() and answer.isdecimal() and len(answer) < 5 else 0
    return number - 1 if 1 <= number <= count else None
