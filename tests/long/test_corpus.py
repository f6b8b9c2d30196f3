"""Diagnosis of published logs: signatures may be derived from all rounds but one, which is only scored.

The project has URLs, labels and hashes; the texts belong to others. DSTUI_CORPUS names a folder with them (corpus/README.md explains how
to make it); `pytest -s` prints the tables, DSTUI_MISSES=1 also the wrong answers.
"""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest
from corpus_score import Score, cases, diagnose_made_texts, diagnosed

TEXTS = os.environ.get("DSTUI_CORPUS", "")
AT_LEAST = {
    1: {"failure": 200, "stop": 20, "cut": 30, "good": 30},
    2: {"failure": 60, "stop": 10, "cut": 15, "good": 15},
    3: {"failure": 70, "stop": 10, "cut": 12, "good": 12},
    4: {"failure": 80, "stop": 12, "cut": 10, "good": 15},
    5: {"failure": 70, "stop": 12, "cut": 12, "good": 12},
    6: {"failure": 90, "stop": 20, "cut": 20, "good": 20},
    7: {"failure": 80, "stop": 15, "cut": 12, "good": 12},
    8: {"failure": 30, "stop": 15, "cut": 70, "good": 50},
    9: {"failure": 75, "stop": 9, "cut": 6, "good": 13},
    10: {"failure": 125, "stop": 15, "cut": 40, "good": 45},
    11: {"failure": 60, "stop": 10, "cut": 25, "good": 18},
    12: {"failure": 8, "stop": 0, "cut": 4, "good": 3},
    13: {"failure": 21, "stop": 2, "cut": 24, "good": 21},
    14: {"failure": 85, "stop": 12, "cut": 45, "good": 24},
    15: {"failure": 70, "stop": 15, "cut": 60, "good": 50},
    16: {"failure": 60, "stop": 20, "cut": 50, "good": 30},
    17: {"failure": 48, "stop": 20, "cut": 36, "good": 55},
    18: {"failure": 130, "stop": 30, "cut": 55, "good": 30},
    19: {"failure": 90, "stop": 20, "cut": 20, "good": 5},
    20: {"failure": 48, "stop": 13, "cut": 18, "good": 45},
    21: {"failure": 45, "stop": 10, "cut": 15, "good": 45},
    22: {"failure": 25, "stop": 3, "cut": 18, "good": 18},
    23: {"failure": 45, "stop": 7, "cut": 24, "good": 55},
    24: {"failure": 30, "stop": 15, "cut": 28, "good": 26},
    25: {"failure": 44, "stop": 5, "cut": 22, "good": 30},
    26: {"failure": 110, "stop": 35, "cut": 30, "good": 35},
    27: {"failure": 110, "stop": 11, "cut": 18, "good": 45},
}
MAX_OF_A_REPOSITORY = {
    2: 3,
    3: 2,
    4: 2,
    5: 2,
    6: 2,
    7: 2,
    8: 2,
    9: 2,
    10: 2,
    11: 31,
    12: 6,
    13: 6,
    14: 54,
    15: 14,
    16: 13,
    17: 3,
    18: 11,
    19: 13,
    20: 3,
    21: 3,
    22: 4,
    23: 4,
    24: 20,
    25: 4,
    26: 4,
    27: 30,
}
NEWEST = 27
"""The round that is only scored; signatures may be derived from the others."""


def test_every_text_is_labelled_once() -> None:
    found = cases()
    assert {case.round for case in found} == set(AT_LEAST)
    assert len({case.address for case in found}) == len({case.sha256 for case in found}) == len(found)
    for number, wanted in AT_LEAST.items():
        kinds = Counter(case.kind for case in found if case.round == number)
        assert {kind: count for kind, count in wanted.items() if kinds[kind] < count} == {}


def test_rounds_share_no_repository_and_none_dominates_a_scored_round() -> None:
    of = {number: Counter(case.repository for case in cases() if case.round == number) for number in AT_LEAST}
    assert len(set().union(*of.values())) == sum(len(counted) for counted in of.values())
    assert all(max(of[number].values()) <= most for number, most in MAX_OF_A_REPOSITORY.items())


def test_enough_failures_of_the_third_round_show_their_first_rank() -> None:
    assert sum(case.round == 3 and case.kind == "failure" and case.rank != "" for case in cases()) >= 40


@pytest.mark.skipif(not TEXTS, reason="DSTUI_CORPUS names no folder with the texts of the corpus")
@pytest.mark.parametrize("number", AT_LEAST)
def test_good_runs_and_failures_are_not_confused(number: int) -> None:
    wanted = [case for case in cases() if case.round == number]
    score = Score(list(diagnosed(Path(TEXTS), wanted)))
    if not score.results:
        pytest.skip(f"none of the texts of round {number} is in {TEXTS}")
    print(
        f"\nround {number} ({'only scored' if number == NEWEST else 'for learning'}), {len(score.results)} of {len(wanted)} texts at hand\n{score.table()}"
    )
    if os.environ.get("DSTUI_MISSES"):
        print(score.misses())
    assert not score.false_successes(), score.misses()
    assert not score.false_failures(), score.misses()


def test_made_failures_are_diagnosed_correctly() -> None:
    score = Score(list(diagnose_made_texts()))
    print(f"\nmade, {len(score.results)} texts\n{score.table()}\n{score.misses() if os.environ.get('DSTUI_MISSES') else ''}")
    assert not score.false_successes(), score.misses()
    assert not score.false_failures(), score.misses()
