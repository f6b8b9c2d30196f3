"""What the diagnosis says of logs that people published: half of them learnt from, the other half only scored.

The project holds addresses, labels and hashes; the texts are other people's. DSTUI_CORPUS names a folder with them (corpus/README.md
tells how to make it); `pytest -s` prints the tables, DSTUI_MISSES=1 the wrong answers too.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from corpus_score import Score, cases, diagnosed

TEXTS = os.environ.get("DSTUI_CORPUS", "")
HALVES = {"learning": True, "scored": False}


def test_every_text_is_labelled_once_and_none_is_of_a_log_that_scores_the_diagnosis_elsewhere() -> None:
    found = cases()
    assert len({case.address for case in found}) == len(found) >= 300
    kinds = [case.kind for case in found]
    assert (kinds.count("failure") >= 200, kinds.count("cut") >= 30, kinds.count("good") >= 30) == (True, True, True)
    assert 0.4 < sum(case.learning for case in found) / len(found) < 0.6


@pytest.mark.skipif(not TEXTS, reason="DSTUI_CORPUS names no folder with the texts of the corpus")
@pytest.mark.parametrize("half", HALVES)
def test_no_success_is_told_of_a_failure_and_no_failure_of_a_good_run(half: str) -> None:
    wanted = [case for case in cases() if case.learning is HALVES[half]]
    score = Score(list(diagnosed(Path(TEXTS), wanted)))
    print(f"\n{half} half, {len(score.results)} of {len(wanted)} texts at hand\n{score.table()}")
    if os.environ.get("DSTUI_MISSES"):
        print(score.misses())
    assert score.results, "none of the texts is in the folder"
    assert (score.misses(), score.table()) and not score.false_successes()
    assert not score.false_failures()
