"""All files of tests/amplified.py, with all commands that read them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.amplified import AMPLIFIED, Amplified
from tests.test_readers import assert_answers


@pytest.mark.parametrize("case", [pytest.param(case, id=case.name) for case in AMPLIFIED])
def test_every_reader_is_limited(case: Amplified, tmp_path: Path) -> None:
    assert_answers(case, tmp_path)
