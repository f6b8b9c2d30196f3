"""Words for a shell: any word is pasted as it is, and shown without anything that a terminal would obey."""

from __future__ import annotations

import re
import shlex

from dstui.text import UNSAFE

FILES = "\0files"
"""In a path: the folder of the generated files, which launch.sh finds out when it runs. No path that a Plan can name has a NUL."""
REPORTED = re.compile(f"(?:(?!\n){UNSAFE.pattern})+")
"""What a terminal must not see; a line break within quotes may stay."""


def quoted(word: str) -> str:
    """A word as any shell takes it and any terminal shows it: what is unsafe to show is told to printf by its bytes."""
    return '"$here"'.join(_quoted(part) if part or part == word else "" for part in word.split(FILES))


def _quoted(word: str) -> str:
    parts, at = list[str](), 0
    for match in REPORTED.finditer(word):
        octal = "".join(f"\\{byte:03o}" for byte in match[0].encode("utf-8", "surrogateescape"))
        parts += [shlex.quote(word[at : match.start()])] if match.start() > at else []
        parts.append(f"\"$(printf '{octal}')\"")
        at = match.end()
    return "".join(parts + ([shlex.quote(word[at:])] if at < len(word) or not word else []))
