"""Limits on everything that dstui reads, whatever its format and whoever wrote it.

All readers take their limits from here. A configuration beyond any of them was not written by somebody who trains a model. Processing it
would take minutes and gigabytes, or crash the interpreter: the callers of libyaml recurse in C.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

MAX_BYTES: Final = 1024 * 1024
"""Bytes of a file. A larger file was given by mistake (a checkpoint, a log)."""
MAX_DEPTH: Final = 60
"""Levels of nesting in a document."""
MAX_VALUES: Final = 50_000
"""Keys and values of a document after aliases are expanded: a kilobyte of YAML can expand to billions ("billion laughs")."""
MAX_PATH: Final = 1000
"""Characters of a dotted path to a key: each key of a section repeats the path of the section."""
MAX_DIGITS: Final = 60
"""Characters of a number."""
MAX_TEXT: Final = 100_000
"""Characters of an argument, a path or a variable. Linux accepts at most 131,072 bytes in one argument."""
MAX_SLOTS: Final = 1024
"""Ranks of one host."""
MAX_RANKS: Final = 65_536
"""Ranks of a job. No known run of DeepSpeed had a tenth of this number."""
MAX_LISTED: Final = 50
"""Findings of one kind that are listed. After these are fixed, the next check lists the rest."""

TOO_DEEP: Final = f"nested deeper than {MAX_DEPTH} levels"
TOO_MANY: Final = f"it expands to more than {MAX_VALUES:,} values, too many for a configuration"
TOO_LONG: Final = f"a key whose path is longer than {MAX_PATH:,} characters"

BRACKETS: Final = re.compile(r'"(?:[^"\\]+|\\.)*"?|[\[\]{}]', re.DOTALL)


class LimitError(ValueError):
    """A text exceeds a limit. Holds a sentence for the user and the position (line and column count from 1)."""

    def __init__(self, message: str, line: int | None = None, column: int | None = None) -> None:
        super().__init__(f"line {line}, column {column}: {message}" if line else message)
        self.message, self.line, self.column = message, line, column


def parse_integer(text: str) -> int:
    """Convert digits to an integer. Raises LimitError."""
    return int(check_digits(text))


def parse_float(text: str) -> float:
    """Convert a text to a float. Raises LimitError."""
    return float(check_digits(text))


def check_digits(text: str) -> str:
    """Return the text of a number. Raises LimitError if it has too many digits."""
    if len(text) > MAX_DIGITS:
        raise LimitError(f"a number of {len(text):,} digits: the limit is {MAX_DIGITS}")
    return text


def parse_json(text: str) -> Any:
    """Parse a JSON text. Raises ValueError if it is malformed (LimitError is a ValueError)."""
    _refuse_deep(text)
    return json.loads(text, parse_int=parse_integer, parse_float=parse_float)


def _refuse_deep(text: str) -> None:
    """Raise LimitError for deep nesting before the parser recurses. A text with few brackets cannot be deep."""
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
