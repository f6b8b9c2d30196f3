"""Readers limit what they allocate: a file that is small on disk but expensive to read gives a message.

This is a sample of tests/long/test_all_readers.py.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.amplified import AMPLIFIED, Amplified
from tests.hostile.forked import Forked

FORKED = Forked(memory=1500 << 20, cpu=20, deadline=60.0)


def assert_answers(case: Amplified, folder: Path) -> None:
    """Assert that every command ends in time with a valid status and without a traceback."""
    case.write(folder)
    for words in case.commands:
        ran = FORKED.run(words, folder)
        assert ran.status in (0, 1, 2) and "Traceback" not in ran.output, (words, ran.status, ran.output[-2000:])
        assert ran.output.strip() or ran.status == 0, words
        assert "not enough memory" not in ran.output, words


@pytest.mark.parametrize("case", [pytest.param(case, id=case.name) for case in AMPLIFIED if case.quick])
def test_small_file_that_expands_gives_a_message(case: Amplified, tmp_path: Path) -> None:
    assert_answers(case, tmp_path)
