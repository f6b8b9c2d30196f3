"""The modules that are started by their name are there: no import would tell that one was moved."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from dstui.jobs.store.processes import PROGRAMS


@pytest.mark.parametrize("module", PROGRAMS)
def test_a_module_that_a_process_is_started_by_is_there(module: str) -> None:
    assert find_spec(module) is not None
