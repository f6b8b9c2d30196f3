"""Wait for an observable condition instead of sleeping."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

PATIENCE = 120.0
"""Seconds to wait for a condition that must become true; generous, since the machine may be busy."""

T = TypeVar("T")


def wait_for(observed: Callable[[], T], patience: float = PATIENCE, *, otherwise: Callable[[], object] = str) -> T:
    """Poll until `observed` returns a true value, and return it. `otherwise` returns what to show on a timeout."""
    deadline = time.monotonic() + patience
    while not (found := observed()):
        assert time.monotonic() < deadline, f"not within {patience:.0f} s: {otherwise() or repr(found)}"
        time.sleep(0.02)
    return found
