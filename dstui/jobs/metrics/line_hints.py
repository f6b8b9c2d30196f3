"""Plain texts that a line with a metric must contain, derived from the spellings of the metrics.

Searching for a few texts is ten times as fast as matching the expressions, and most lines of a log contain none of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

LOOKAROUND = re.compile(r"\(\?<?=([^()]*)\)")
GROUP = re.compile(r"\((?:\?:)?([^()]*)\)(\??)")
VARIABLE = re.compile(r"\[[^]]*\][?*+]?|\\[a-z][?*+]?|[^\0]\?")
"""Syntax for more than one text: a set of characters, a class, an optional character."""
PARENTHESES = str.maketrans({"\1": "(", "\2": ")"})


def hints_of(spellings: Iterable[str]) -> tuple[str, ...]:
    """Return a few texts such that every match of one of these regular expressions contains at least one.

    The expressions are those of `line_patterns.Pattern`: literal text, `(?:a|b)` (not nested), `?` behind a character or a group, sets and
    classes of characters, and look-arounds of literal text.
    """
    choices = sorted((_choices(spelling) for spelling in spellings), key=len)  # those with one choice first, since it may cover others too
    hints: set[str] = set()
    for choice in choices:
        if not any(all(any(hint in text for hint in hints) for text in texts) for texts in choice):
            hints |= max(choice, key=lambda texts: min(map(len, texts)))
    return tuple(sorted(hint for hint in hints if not any(other in hint for other in hints - {hint})))


def _choices(spelling: str) -> list[set[str]]:
    """Return, for each part that is in every match, the set of its possible texts."""
    text = spelling.replace(r"\(", "\1").replace(r"\)", "\2")
    text = LOOKAROUND.sub(lambda found: found[1] if found[0].startswith("(?<=") else "\0", text)
    runs = VARIABLE.sub("\0", GROUP.sub("\0", text)).split("\0")
    groups = [found[1].split("|") for found in GROUP.finditer(text) if not found[2]]
    plain = [set(group) for group in groups if not any(VARIABLE.search(each) for each in group)]
    return [{each.translate(PARENTHESES) for each in texts} for texts in [*({run} for run in runs if run), *plain]]
