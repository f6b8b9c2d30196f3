"""Repair text copied from web pages: Markdown's backslashes, commas at line ends, lost newlines. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable

ESCAPE = re.compile(r"\\(?=[_*\[\]#.{}()+!-])")
"""A backslash that Markdown puts before a special character."""
COMMA = re.compile(r"^(?P<line>\s*[\w-]+\s*:\s+[^\s\[{'\"#][^#,\[{]*?),[ \t]*$", re.MULTILINE)
"""A single value followed by a comma, as in JSON."""
GLUED = re.compile(r"^(?P<indent>[ \t]*)(?P<first>[\w-]+[ \t]*:[ \t]*\{\})[ \t]*(?=[A-Za-z_][\w-]*[ \t]*:)", re.MULTILINE)
"""Two keys on one line, the first with an empty section."""
SPACE = re.compile("[\u00a0\u2002\u2003\u2009]")
"""Typographic spaces, which YAML does not treat as blanks."""

REPAIRS: tuple[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str], str], ...] = (
    (ESCAPE, "", "backslashes before _ and the like, which are Markdown, were removed"),
    (SPACE, " ", "special spaces of a web page were replaced"),
    (COMMA, r"\g<line>", "commas at the ends of lines were removed: they are not YAML"),
    (GLUED, lambda match: f"{match['indent']}{match['first']}\n{match['indent']}", "two keys on one line were split into two lines"),
)


def repaired(text: str) -> tuple[str, list[str]]:
    """Repair the text, and return a sentence for each kind of repair."""
    sentences = []
    for pattern, new, sentence in REPAIRS:
        text, count = pattern.subn(new, text)
        sentences += [sentence] if count else []
    return text, sentences
