"""Shared by all tests: separate state and settings folders, a launcher that does not import torch, and the distribution over processes."""

from __future__ import annotations

import contextlib
import gc
import os
import re
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from inspect import iscoroutinefunction
from itertools import count
from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

from tests import session_home, warm_deepspeed
from tests.launcher_path import with_bare_launcher, without_bare_launcher
from tests.waiting import PATIENCE

# No deadlines, since the machine may be busy. CI tries the same examples each time, so a failure is caused by the change.
settings.register_profile("dstui", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=bool(os.environ.get("CI")))
settings.register_profile("quick", settings.get_profile("dstui"), max_examples=50)
settings.register_profile("long", settings.get_profile("dstui"), max_examples=1000, derandomize=False)
settings.load_profile("quick")
# Hypothesis also draws constants from dstui's source. Reading it is slow, and any edit of it would change the examples on CI.
providers._get_local_constants = lambda: providers._local_constants

# Tests start hundreds of dstui processes: let them cache compiled modules, even if the shell disables .pyc files.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False  # otherwise each test process would rewrite the assertions of every test file
# DeepSpeed decorates its Muon optimizer with torch.compile, so that every training rank would import a compiler it never uses.
os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")

# Ignore the site file of this machine.
os.environ["DSTUI_SITE"] = ""
os.environ.pop("ACCESSIBLE", None)

# A shell makes its background processes ignore SIGINT, and every dstui that the tests start would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

PROCESSES_PER_CORE, MAX_PROCESSES = 4, 12
"""Test processes per core and at most. Many tests wait for a launcher or a deadline; more than `MAX_PROCESSES` slow each other down."""
LAUNCHER_FIXTURES = ("outcome", "_jobs", "hanging_job", "hanging", "farm")
"""Fixtures that start the launcher or hosts: tests that use them get the `launcher` marker."""
SHARED_FIXTURES = ("outcome", "deepspeed", "reference", "_jobs", "hanging_job")
"""Fixtures that take many seconds and serve many tests: all tests that use one run in one process (`--dist loadgroup`)."""
MIN_FILES_TO_SHARE, SECONDS_TO_COMPILE = 20, 60.0
"""With fewer test files than this, each process compiles all of them itself; the second value limits the wait for the other processes."""
TO_COMPILE = pytest.StashKey[list[str]]()
SLOW_MARKERS = {"heavy": 0.1, "deadline": 0.8, "launcher": 0.9}
"""Markers of slow tests, and the first part of the suite over which they are spread: early enough that the suite does not end by waiting for
one of them, and far enough apart that others compute while they wait."""
GOLDEN = 0.618
"""The golden ratio: its multiples spread the tests of files with only one or two of them."""
_FOLDER_NUMBERS = count()
PARALLEL_SCENARIOS = 5
"""Number of job scenarios that run in parallel."""
CASES_PER_GROUP = 20
"""Cases of one test that are handed to a process at once: handing over hundreds of fast cases one by one takes longer than running them."""


def pytest_configure(config: pytest.Config) -> None:
    """Give the session and its worker processes a temporary home folder, so that no file of the user changes a result."""
    if not hasattr(config, "workerinput"):
        folder = tempfile.TemporaryDirectory(prefix="dstui-tests-home-", ignore_cleanup_errors=True)
        config.add_cleanup(folder.cleanup)
        session_home.use_home(Path(folder.name))


@pytest.fixture(autouse=True, scope="session")
def _xdg_folders(tmp_path_factory: pytest.TempPathFactory) -> None:
    for kind in ("state", "config"):
        os.environ[f"XDG_{kind.upper()}_HOME"] = str(tmp_path_factory.mktemp(kind))


@pytest.fixture(autouse=True, scope="session")
def _bare_launcher(request: pytest.FixtureRequest) -> None:
    """Start most jobs with a launcher that does not import torch: these tests are about what dstui does around it."""
    if not request.config.getoption("full_deepspeed"):
        os.environ["PYTHONPATH"] = with_bare_launcher()


@pytest.fixture
def tmp_path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a temporary folder. Pytest's own fixture searches the folders of all other tests for the next free number."""
    name = re.sub(r"\W", "_", request.node.name)[:30]
    return tmp_path_factory.mktemp(f"{name}_{next(_FOLDER_NUMBERS)}", numbered=False)


@pytest.fixture
def full_deepspeed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use the launcher as users have it, which imports torch and all of DeepSpeed."""
    without_bare_launcher(monkeypatch)


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown() -> None:
    """Forget the jobs that a test started without an index entry, which the process would otherwise remember until it ends."""
    if own := sys.modules.get("dstui.jobs.store.ownership"):
        own._of_this_process.clear()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--full-deepspeed", action="store_true", help="run every job with the launcher as users have it, which imports torch")
    parser.addoption("--twins", action="store_true", help="also run the cases marked twin")
    parser.addoption("--write-screens", action="store_true", help="write the baselines of tests/tui/test_screens.py instead of comparing")


def pytest_collection_finish() -> None:
    """Exclude the collected tests from garbage collection, which took a third of the time of drawing screens."""
    gc.freeze()
    gc.enable()


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int | None:
    """Return the number of processes for `-n auto`; pytest-xdist's own variable takes precedence."""
    if "PYTEST_XDIST_AUTO_NUM_WORKERS" in os.environ:
        return None
    if any("::" in arg for arg in config.args):
        return 0  # somebody works on a test or two: starting processes would take longer than running them
    return min(PROCESSES_PER_CORE * (os.cpu_count() or 1), MAX_PROCESSES)


def pytest_xdist_setupnodes(config: pytest.Config) -> None:
    """Do once what each worker process would otherwise repeat."""
    if not config.getoption("full_deepspeed"):
        folder = tempfile.TemporaryDirectory(prefix="dstui-tests-")
        config.add_cleanup(folder.cleanup)
        warm_deepspeed.start(Path(folder.name) / "socket")
    config.stash[TO_COMPILE] = _to_compile(config)


def pytest_configure_node(node: Any) -> None:
    """Give every worker the same list. A worker that searched for itself would see the results of the others."""
    node.workerinput["to_compile"] = node.config.stash[TO_COMPILE]


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """Share the rewriting of assertions in a fresh clone: each process compiles its part of the files and waits for the others."""
    if session.config.getoption("dist") == "no" or hasattr(session.config, "workerinput"):
        gc.disable()  # until the collection ends: it creates no garbage, and searching for it takes a tenth of the time
    process = getattr(session.config, "workerinput", {})
    files = [Path(file) for file in process.get("to_compile", ())]
    if len(files) < MIN_FILES_TO_SHARE:
        return
    for path in files[int(process["workerid"][2:]) :: process["workercount"]]:
        with contextlib.suppress(Exception, pytest.skip.Exception):  # the collection will report it
            pytest.Module.from_parent(session, path=path).obj  # noqa: B018 - imports it, as the collection would
    until = time.monotonic() + SECONDS_TO_COMPILE
    while not all(map(_compiled, files)) and time.monotonic() < until:
        time.sleep(0.05)


def _to_compile(config: pytest.Config) -> list[str]:
    """Return the test files whose assertions are not rewritten yet and whose folder is writable."""
    apart = set(config.getini("norecursedirs"))
    files = (path for path in sorted(Path(__file__).parent.rglob("test_*.py")) if not apart & set(path.parts))
    return [str(path) for path in files if os.access(path.parent, os.W_OK) and not _compiled(path)]


def _compiled(test_file: Path) -> bool:
    """Return whether pytest has cached the compiled file."""
    return any(test_file.parent.glob(f"__pycache__/{test_file.stem}.*-pytest-*.pyc"))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep tests that share an expensive fixture in one process, and spread slow tests over the beginning."""
    if not config.getoption("twins") and not any("::" in arg for arg in config.args):
        config.hook.pytest_deselected(items=[item for item in items if item.get_closest_marker("twin")])
        items[:] = [item for item in items if not item.get_closest_marker("twin")]
    cases, given = Counter(map(_function, items)), Counter[str]()
    for item in items:
        fixtures = getattr(item, "fixturenames", ())
        if any(name in fixtures for name in LAUNCHER_FIXTURES):
            item.add_marker("launcher")
        groups = [name for name in SHARED_FIXTURES if name in fixtures]
        if cases[_function(item)] >= CASES_PER_GROUP and not groups and not item.get_closest_marker("xdist_group"):
            groups = [f"{item.path.stem} {given[item.path.stem] // CASES_PER_GROUP}"]
            given[item.path.stem] += 1
        for group in groups:
            item.add_marker(pytest.mark.xdist_group(group))
    if hasattr(config, "workerinput"):
        items[:] = _in_order(items)


def _in_order(items: list[pytest.Item]) -> list[pytest.Item]:
    """Return a uniform mix of the tests of each file that wait, screen tests, which wait after each key, and tests that only compute."""
    kinds: dict[tuple[str, object], list[pytest.Item]] = {}
    for item in items:
        slow = next((name for name in SLOW_MARKERS if item.get_closest_marker(name)), "")
        kinds.setdefault((slow, item.path if slow else iscoroutinefunction(getattr(item, "obj", None))), []).append(item)
    mixed = [
        (SLOW_MARKERS.get(slow, 1.0) * (number + kind * GOLDEN % 1) / len(found), item)
        for kind, ((slow, _), found) in enumerate(kinds.items())
        for number, item in enumerate(found)
    ]
    return [item for _, item in sorted(mixed, key=itemgetter(0))]


def _function(item: pytest.Item) -> str:
    """Return the ID of the test function, without its parameters."""
    return item.nodeid.partition("[")[0]


@pytest.fixture(scope="session")
def _scenarios(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Future[Any]]]:
    """Start every scenario that a selected test needs, in parallel."""
    from tests.jobs.lab import Lab
    from tests.jobs.scenarios import SCENARIOS

    names = dict.fromkeys(mark.args[0] for item in request.session.items for mark in item.iter_markers("scenario"))
    with ThreadPoolExecutor(PARALLEL_SCENARIOS) as pool:
        yield {name: pool.submit(SCENARIOS[name], Lab(tmp_path_factory.mktemp(name))) for name in names}


@pytest.fixture
def outcome(request: pytest.FixtureRequest, _scenarios: dict[str, Future[Any]]) -> Any:
    """Return the result of the test's scenario."""
    mark = request.node.get_closest_marker("scenario")
    return _scenarios[mark.args[0]].result(timeout=2 * PATIENCE)
