"""Words for a shell: any word is pasted as it is, and shown without anything that a terminal would obey."""

from __future__ import annotations

import re
import shlex

from dstui.base.text import UNSAFE

_VARIABLE = re.compile(r"\0(\w+)\0")


def variable(name: str) -> str:
    """Return a placeholder for a shell variable in a word. It uses NUL, which no word of a Plan can contain."""
    return f"\0{name}\0"


FILES = variable("here")
"""In a path: the folder of the generated files, which launch.sh finds out when it runs."""
REPORTED = re.compile(f"(?:(?!\n){UNSAFE.pattern})+")
"""What a terminal must not see; a line break within quotes may stay."""


def quote_word(word: str) -> str:
    """Quote a word for any shell and any terminal. Bytes that are unsafe to show become escapes of printf."""
    parts = _VARIABLE.split(word)  # texts, and between them names of variables
    texts = [_quoted(part) if part or part == word else "" for part in parts[::2]]
    return texts[0] + "".join(f'"${name}"{text}' for name, text in zip(parts[1::2], texts[1:], strict=True))


def _quoted(word: str) -> str:
    parts, at = list[str](), 0
    for match in REPORTED.finditer(word):
        octal = "".join(f"\\{byte:03o}" for byte in match[0].encode("utf-8", "surrogateescape"))
        parts += [shlex.quote(word[at : match.start()])] if match.start() > at else []
        parts.append(f"\"$(printf '{octal}')\"")
        at = match.end()
    return "".join(parts + ([shlex.quote(word[at:])] if at < len(word) or not word else []))
