"""Remove the line numbers of a text that was copied from a page or an editor."""

from __future__ import annotations

import re
import textwrap
from itertools import pairwise

NUMBERED = re.compile(r"[ \t]*(\d{1,5})(?:[ \t]*[|:│])?([ \t].*|)")


def without_line_numbers(text: str) -> str:
    """Remove a column of line numbers if every line has the next one. The indentation after it stays."""
    lines = text.split("\n")
    matches = [NUMBERED.fullmatch(line) for line in lines]
    found = [match for match in matches if match]
    consecutive = all(int(after[1]) == int(before[1]) + 1 for before, after in pairwise(found))
    others = any(line.strip() for line, match in zip(lines, matches, strict=True) if not match)
    if len(found) < 2 or not consecutive or others or not any(match[2].strip() for match in found):
        return text
    return textwrap.dedent("\n".join(match[2] if match else line for match, line in zip(matches, lines, strict=True)))
