"""Which DeepSpeed a job's launcher imports: only what it uses (tests/bare_launcher), or all of it with torch, as for users."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

BARE_LAUNCHER = str(Path(__file__).parent / "bare_launcher")


def with_bare_launcher() -> str:
    """Return a PYTHONPATH with the launcher that does not import torch."""
    return os.pathsep.join(filter(None, (BARE_LAUNCHER, os.environ.get("PYTHONPATH"))))


def without_bare_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    """Restore the PYTHONPATH from before the tests."""
    entries = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry not in (BARE_LAUNCHER, "")]
    if entries:
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join(entries))
    else:
        monkeypatch.delenv("PYTHONPATH", raising=False)
