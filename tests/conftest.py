"""What all tests share: folders of their own for state and settings, so that nobody's index of runs or theme is touched."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings

# A busy machine is no failure; and CI tries the same examples each time, so that red means the change.
settings.register_profile("dstui", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=bool(os.environ.get("CI")))
settings.load_profile("dstui")


@pytest.fixture(autouse=True, scope="session")
def _own_folders(tmp_path_factory: pytest.TempPathFactory) -> None:
    for kind in ("state", "config"):
        os.environ[f"XDG_{kind.upper()}_HOME"] = str(tmp_path_factory.mktemp(kind))
