"""The speed against rows that others published, those that were fitted and those that were not apart."""

from __future__ import annotations

from statistics import median

import pytest
from speed_rows import ROWS, groups, judged, orders, summary

JUDGED = dict(groups(map(judged, ROWS)))


@pytest.mark.parametrize("name", ["llm-foundry, fitted", "llm-foundry, held out", "torchtitan", "fms-fsdp"])
def test_published_throughput_is_told_within_a_tenth_and_in_the_right_order(name: str) -> None:
    rows = JUDGED[name]
    pairs, right = orders(rows)
    assert median(abs(j.error) for j in rows) < 0.05, summary(name, rows)
    assert sorted(abs(j.error) for j in rows)[int(0.9 * len(rows))] < 0.125, summary(name, rows)
    assert not pairs or right / pairs >= 0.95, summary(name, rows)


def test_each_row_has_an_address_and_about_half_are_held_out() -> None:
    assert all(row["source"].startswith("http") for row in ROWS)
    fitted, held_out = len(JUDGED["llm-foundry, fitted"]), len(JUDGED["llm-foundry, held out"])
    assert 0.4 < fitted / (fitted + held_out) < 0.6


def test_long_sequences_do_not_get_faster_than_they_are() -> None:
    long = [j for name in ("llm-foundry, fitted", "llm-foundry, held out") for j in JUDGED[name] if int(j.row["sequence"]) >= 16384]
    assert len(long) >= 10
    assert max(abs(j.error) for j in long) < 0.1
