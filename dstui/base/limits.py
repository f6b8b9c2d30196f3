"""What nothing that is read may exceed, whatever its form and whoever wrote it; everything that reads knows these numbers from here.

A configuration that is larger than any of them was not written by somebody who trains a model, and working with it would take minutes and
gigabytes, or end the interpreter: libyaml's callers recurse in C.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

MAX_BYTES: Final = 1024 * 1024
"""Of a file: what is larger was given by mistake (a checkpoint, a log)."""
MAX_DEPTH: Final = 60
"""Levels of nesting."""
MAX_VALUES: Final = 50_000
"""Keys and values, after aliases are followed: a file of a kilobyte can stand for billions ("billion laughs")."""
MAX_PATH: Final = 1000
"""Characters of a dotted path to a key: every key in a section repeats what stands before it."""
MAX_DIGITS: Final = 60
"""Characters of a number."""
MAX_TEXT: Final = 100_000
"""Characters of an argument, a path or a variable: Linux takes no argument of more than 131,072 bytes."""
MAX_SLOTS: Final = 1024
"""Ranks of one host."""
MAX_RANKS: Final = 65_536
"""Ranks of a job: no run of DeepSpeed had a tenth of them."""
MOST_LISTED: Final = 50
"""Findings of one kind that are listed; who mends these sees the next."""

TOO_DEEP: Final = f"nested deeper than {MAX_DEPTH} levels"
TOO_MANY: Final = f"it stands for more than {MAX_VALUES:,} values: no configuration does"
TOO_LONG: Final = f"a key whose path is longer than {MAX_PATH:,} characters"

BRACKETS: Final = re.compile(r'"(?:[^"\\]+|\\.)*"?|[\[\]{}]', re.DOTALL)


class LimitError(ValueError):
    """A text exceeds a limit: a sentence, and where (line and column count from 1)."""

    def __init__(self, message: str, line: int | None = None, column: int | None = None) -> None:
        super().__init__(f"line {line}, column {column}: {message}" if line else message)
        self.message, self.line, self.column = message, line, column


def parse_integer(text: str) -> int:
    """Convert digits to an integer. Raises LimitError."""
    return int(of_few_digits(text))


def parse_float(text: str) -> float:
    """Convert a text to a float. Raises LimitError."""
    return float(of_few_digits(text))


def of_few_digits(text: str) -> str:
    """Return the text of a number, unless it is too long. Raises LimitError."""
    if len(text) > MAX_DIGITS:
        raise LimitError(f"a number of {len(text):,} digits: no setting has more than {MAX_DIGITS}")
    return text


def parse_json(text: str) -> Any:
    """Parse a JSON text. Raises ValueError where it is malformed; LimitError is one."""
    _refuse_deep(text)
    return json.loads(text, parse_int=parse_integer, parse_float=parse_float)


def _refuse_deep(text: str) -> None:
    """Refuse deep nesting before the parser recurses. A text with few brackets cannot be deep."""
    if text.count("[") + text.count("{") <= MAX_DEPTH:
        return
    depth = 0
    for match in BRACKETS.finditer(text):
        if match[0] in ("[", "{"):
            depth += 1
            if depth > MAX_DEPTH:
                at = match.start()
                raise LimitError(TOO_DEEP, text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at))
        elif match[0] in ("]", "}"):
            depth -= 1
