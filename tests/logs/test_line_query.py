"""The text filter of a log: the meaning of each word, and the lines that it shows."""

from __future__ import annotations

import re
from math import isnan

import pytest

from dstui.logs.levels import ALL, ERROR, WARNING
from dstui.logs.line_query import LineQuery, parse_line_query

NOON = 1_800_000_000.0


def shows(text: str, line: str) -> bool:
    """Return whether a filter shows a line; a block of bytes must not be skipped if one of its lines is shown."""
    texts = parse_line_query(text, NOON).texts
    shown = texts is None or texts.match(line)
    assert texts is None or texts.matching([b"before", line.encode(), b"after"]).count(1) == shown
    assert texts is None or not shown or texts.may_match(b"before\n" + line.encode() + b"\nafter\n")
    return shown


@pytest.mark.parametrize(
    ("text", "line", "shown"),
    [
        ("", "anything", True),
        ("loss|eval", "eval 3", True),
        ("loss|eval", "step 3", False),
        ("loss !step", "loss 1", True),
        ("loss !step", "step 1 loss 1", False),
        ("loss nan", "loss is nan", True),
        ("loss nan", "loss is 1", False),
        ("nccl", "NCCL WARN", True),  # smart case
        ("NCCL", "nccl warn", False),
        (r"\\S+Error", "ValueError", True),
        (r"\\bloss\\b", "closs", False),
        ("^loss", "loss 1", True),
        ("1$", "loss 1", True),
        (r"\\Aloss", "loss 1", True),
        ('"two words"', "of two words", True),
        ("!", "what is typed first!", True),
        ("a:b", "key a:b", True),
    ],
)
def test_words_are_regular_expressions_that_must_all_match(text: str, line: str, shown: bool) -> None:
    assert shows(text.replace("\\\\", "\\"), line) is shown


def test_ranks_hosts_levels_and_times() -> None:
    query = parse_line_query("r0-3,8 !r2 host:h2 level:warn since:10m", NOON)
    assert [rank for rank in range(10) if query.has_rank(rank, "h2.local")] == [0, 1, 3, 8]
    assert not query.has_rank(0, "h1.local") and query.chooses_ranks
    assert (query.least, query.since, query.texts) == (WARNING, NOON - 600, None)
    assert parse_line_query("level:ERROR", NOON).least == ERROR


def test_empty_filter_shows_everything() -> None:
    query = LineQuery()
    assert query.has_rank(7, "anywhere") and not query.chooses_ranks and query.least == ALL and isnan(query.since)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("(", "not a regular expression"),
        ('"open', "quote"),
        ("level:loud", "level:warn or level:error"),
        ("since:yesterday", "since:10m"),
        ("!level:warn", "cannot be negated"),
        ("(?=x)", "lookaround"),
    ],
)
def test_invalid_filter_gives_a_message(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=re.escape(why)):
        parse_line_query(text, NOON)
