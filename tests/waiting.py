"""Waiting for what can be observed, never for time to pass."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

PATIENCE = 120.0
"""Seconds to wait for what must come; a machine that is busy takes its time."""

T = TypeVar("T")


def wait_for(observed: Callable[[], T], patience: float = PATIENCE, *, otherwise: Callable[[], object] = str) -> T:
    """Poll until `observed` returns something true, and return that. `otherwise`: what to show where it never does."""
    deadline = time.monotonic() + patience
    while not (found := observed()):
        assert time.monotonic() < deadline, f"not within {patience:.0f} s: {otherwise() or repr(found)}"
        time.sleep(0.02)
    return found
