"""What the tests of the checks share: one warm child that asks the installed DeepSpeed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dstui.check.reference import ReferenceChecker


@pytest.fixture(scope="session")
def deepspeed() -> Iterator[ReferenceChecker]:
    """The installed DeepSpeed's parser."""
    with ReferenceChecker() as reference:
        yield reference
