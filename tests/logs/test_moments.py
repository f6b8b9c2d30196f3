"""Times as people type them."""

from __future__ import annotations

import time

import pytest

from dstui.logs.time_parsing import format_clock, parse_moment

NOON = time.mktime((2026, 3, 10, 12, 0, 0, 0, 0, -1))


@pytest.mark.parametrize(
    ("text", "before"),
    [("10m", 600), ("-10m", 600), ("90s", 90), ("1.5h", 5400), ("1d", 86400), ("11:59", 60), ("11:59:30", 30), ("12:00", 0)],
)
def test_time_of_day_or_age_before_the_end_is_accepted(text: str, before: float) -> None:
    assert parse_moment(text, NOON) == NOON - before


def test_future_time_is_that_of_the_day_before() -> None:
    assert parse_moment("12:01", NOON) == NOON + 60 - 86400


@pytest.mark.parametrize("text", ["", "noon", "25:00", "12:60", "12", "5 minutes"])
def test_invalid_time_is_none(text: str) -> None:
    assert parse_moment(text, NOON) is None


def test_unknown_or_invalid_time_is_blank() -> None:
    assert [format_clock(seen) for seen in (float("nan"), float("inf"), 1e300, NOON)] == ["", "", "", "12:00:00"]
