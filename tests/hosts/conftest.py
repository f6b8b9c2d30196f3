"""Two test hosts for the whole session, if they can be created."""

from __future__ import annotations

from collections.abc import Iterator

import farm as farming
import pytest


@pytest.fixture(scope="session")
def farm() -> Iterator[farming.Farm]:
    """Start hosts h1 and h2 with the real sshd, and login to start from."""
    if reason := farming.missing():
        pytest.skip(reason)
    with farming.Farm(2) as hosts:
        yield hosts
