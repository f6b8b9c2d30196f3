"""Whoever reads a file has a bound on what is made of it: files that are small on the disk and large for their reader end in a sentence.

A sample; tests/long/test_all_readers.py has all.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.amplified import AMPLIFIED, Amplified
from tests.hostile.forked import Forked

FORKED = Forked(memory=1500 << 20, cpu=20, deadline=60.0)


def answers(case: Amplified, folder: Path) -> None:
    """Every command ends in time with a status that means something, and no traceback."""
    case.write(folder)
    for words in case.commands:
        ran = FORKED.run(words, folder)
        assert ran.status in (0, 1, 2) and "Traceback" not in ran.said, (words, ran.status, ran.said[-2000:])
        assert ran.said.strip() or ran.status == 0, words
        assert "not enough memory" not in ran.said, words


@pytest.mark.parametrize("case", [pytest.param(case, id=case.name) for case in AMPLIFIED if case.quick])
def test_a_file_that_is_small_and_means_much_is_a_sentence(case: Amplified, tmp_path: Path) -> None:
    answers(case, tmp_path)
