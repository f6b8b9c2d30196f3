"""Parse a log search: a text, or a regular expression between two slashes."""

from __future__ import annotations

from typing import NamedTuple

from dstui.plan.patterns import compile_pattern


class Query(NamedTuple):
    """A text to search for, and whether it is a regular expression."""

    pattern: str
    regex: bool = False


def parse_query(text: str) -> Query:
    """Parse a search: `/expr/` is a regular expression, anything else is plain text."""
    if len(text) > 2 and text[0] == text[-1] == "/":
        return Query(text[1:-1], regex=True)
    return Query(text)


def query_problem(text: str) -> str:
    """Return why a search is invalid; "" if it is valid."""
    pattern, regex = parse_query(text)
    try:
        if regex:
            compile_pattern(pattern)
    except ValueError as error:
        return f"{text}: {error}"
    return ""
