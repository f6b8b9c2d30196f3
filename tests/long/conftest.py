"""What takes minutes has the launcher as users have it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.whole_deepspeed import without_bare_launcher


@pytest.fixture(autouse=True, scope="package")
def _whole_deepspeed_for_all() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as monkeypatch:
        without_bare_launcher(monkeypatch)
        yield
