"""Shared by the tests of the checks: one child process that has imported DeepSpeed and parses configurations."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dstui.check.reference import ReferenceChecker


@pytest.fixture(scope="session")
def deepspeed() -> Iterator[ReferenceChecker]:
    """Return the installed DeepSpeed's parser."""
    with ReferenceChecker() as reference:
        yield reference
