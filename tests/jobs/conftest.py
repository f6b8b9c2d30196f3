"""Real jobs on CPU ranks: scenarios that run side by side, once, for all the tests that look at what became of them."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from tests.jobs.lab import Lab
from tests.waiting import PATIENCE

SIDE_BY_SIDE = 5


@pytest.fixture(scope="session")
def _scenarios(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Future[Any]]]:
    """Every scenario that a selected test asks for, started side by side."""
    from tests.jobs.scenarios import SCENARIOS

    names = dict.fromkeys(mark.args[0] for item in request.session.items for mark in item.iter_markers("scenario"))
    with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        yield {name: pool.submit(SCENARIOS[name], Lab(tmp_path_factory.mktemp(name))) for name in names}


@pytest.fixture
def outcome(request: pytest.FixtureRequest, _scenarios: dict[str, Future[Any]]) -> Any:
    """What the test's own scenario has returned."""
    mark = request.node.get_closest_marker("scenario")
    return _scenarios[mark.args[0]].result(timeout=2 * PATIENCE)
