"""Long tests use the launcher as users have it, and their own test hosts."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "hosts"))
import farm as farming

from tests.launcher_path import without_bare_launcher


@pytest.fixture(autouse=True, scope="package")
def _full_deepspeed_for_all() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as monkeypatch:
        without_bare_launcher(monkeypatch)
        yield


@pytest.fixture(scope="module")
def farm() -> Iterator[farming.Farm]:
    """Start hosts h1, h2 and login."""
    if reason := farming.missing():
        pytest.skip(reason)
    with farming.Farm(2) as hosts:
        yield hosts
