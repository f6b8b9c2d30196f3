"""Modules that are started by name exist: no import would fail if one were moved."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from dstui.jobs.store.processes import PROGRAMS


@pytest.mark.parametrize("module", PROGRAMS)
def test_every_program_module_exists(module: str) -> None:
    assert find_spec(module) is not None
