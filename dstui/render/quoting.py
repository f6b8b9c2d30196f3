"""Quote words for a shell: any word can be pasted, and is displayed without anything that a terminal would obey."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable

from dstui.base.text import UNSAFE
from dstui.plan.holes import HOLE

OPEN = "\0"
"""Marks a shell variable in a word. No word of a Plan can contain it."""
_VARIABLE = re.compile(r"\0(\w+)\0")


def variable(name: str) -> str:
    """Return a placeholder for a shell variable in a word."""
    return f"{OPEN}{name}{OPEN}"


def shell_variables(text: str) -> str:
    """Return a text of a Plan with its open holes `${NAME}` as variables of the shell that runs the command. `$${` becomes `${`."""
    return HOLE.sub(lambda match: variable(match[1]) if match[1] else "${", text)


def as_in_plan(text: str) -> str:
    """Return a text with its variables as holes of a Plan."""
    return _VARIABLE.sub(r"${\1}", text)


def refuse_unset(words: Iterable[str]) -> str:
    """Return the lines of a script that stop it if a variable of these words is not set."""
    names = dict.fromkeys(name for word in words for name in _VARIABLE.findall(word))
    return "".join(f': "${{{name}:?a hole of the Plan is open: set this variable}}"\n' for name in names if name != HERE)


HERE = "here"
FILES = variable(HERE)
"""In a path: the folder of the generated files, which launch.sh determines when it runs."""
REPORTED = re.compile(f"(?:(?!\n){UNSAFE.pattern})+")
"""Characters that a terminal must not receive; a line break within quotes may stay."""


def quote_word(word: str) -> str:
    """Quote a word for any shell and any terminal. Bytes that are unsafe to show become escapes of printf."""
    parts = _VARIABLE.split(word)  # texts, with names of variables in between
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
