"""What all tests share: folders of their own for state and settings, a launcher that starts without torch, and how they are spread over processes."""

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

from tests import own_home, warm_deepspeed
from tests.waiting import PATIENCE
from tests.whole_deepspeed import with_bare_launcher, without_bare_launcher

# A busy machine is no failure; and CI tries the same examples each time, so that red means the change.
settings.register_profile("dstui", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=bool(os.environ.get("CI")))
settings.register_profile("quick", settings.get_profile("dstui"), max_examples=50)
settings.register_profile("long", settings.get_profile("dstui"), max_examples=1000, derandomize=False)
settings.load_profile("quick")
# Hypothesis also draws what stands in dstui's source, which every process would read whole; and any line of it would change CI's examples.
providers._get_local_constants = lambda: providers._local_constants

# Hundreds of dstui's processes are started: as where it is installed, their modules are compiled once, also where the shell wants no .pyc files.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
# DeepSpeed decorates its Muon with torch.compile, for which every rank that trains would import a compiler that nobody calls.
os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")

# What the engineer of this machine has set for its users is not what is tested.
os.environ["DSTUI_SITE"] = ""
os.environ.pop("ACCESSIBLE", None)

# A shell ignores SIGINT for what it starts in the background, and every dstui of the tests would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

PROCESSES_PER_CORE, MOST = 3, 12
"""Test processes: many tests wait for a launcher or a deadline. More than `MOST` are waited for rather than wait."""
LAUNCH = ("outcome", "_jobs", "hanging_job", "hanging")
"""Fixtures that start the launcher: who uses one is marked so."""
TOGETHER = ("outcome", "deepspeed", "reference", "_jobs", "hanging_job")
"""Fixtures that cost many seconds and serve many tests: whatever uses the same one runs in one process (`--dist loadgroup`)."""
BY_FILE = ("farm",)
"""Fixtures that cost few, and whose tests would keep one process busy to the end: the tests of a file run in one process."""
FEW_FILES, SECONDS_TO_COMPILE = 20, 60.0
"""Fewer test files are compiled by each process for itself; of more it does its part, and waits no longer for the others."""
TO_COMPILE = pytest.StashKey[list[str]]()
FIRST = ("launcher", "deadline", "heavy")
"""Markers of what takes long: it is begun first, so that the end of the suite waits for no latecomer."""
_NUMBERS = count()
SIDE_BY_SIDE = 5
"""Scenarios of jobs that run at once."""
AT_ONCE = 20
"""As many cases of one test are given to a process at once: to hand over each of hundreds took longer than it runs."""


def pytest_configure(config: pytest.Config) -> None:
    """Give the session, its processes of tests included, a home of its own: what the user keeps in his decides nothing."""
    if not hasattr(config, "workerinput"):
        folder = tempfile.TemporaryDirectory(prefix="dstui-tests-home-", ignore_cleanup_errors=True)
        config.add_cleanup(folder.cleanup)
        own_home.enter(Path(folder.name))


@pytest.fixture(autouse=True, scope="session")
def _own_folders(tmp_path_factory: pytest.TempPathFactory) -> None:
    for kind in ("state", "config"):
        os.environ[f"XDG_{kind.upper()}_HOME"] = str(tmp_path_factory.mktemp(kind))


@pytest.fixture(autouse=True, scope="session")
def _bare_launcher(request: pytest.FixtureRequest) -> None:
    """Most jobs of the tests are about what dstui does around the launcher."""
    if not request.config.getoption("whole_deepspeed"):
        os.environ["PYTHONPATH"] = with_bare_launcher()


@pytest.fixture
def tmp_path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As pytest's own, which looks through the folders of all other tests for the next free number."""
    name = re.sub(r"\W", "_", request.node.name)[:30]
    return tmp_path_factory.mktemp(f"{name}_{next(_NUMBERS)}", numbered=False)


@pytest.fixture
def whole_deepspeed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A test that uses this has the launcher as every user has it: it imports torch and all of DeepSpeed."""
    without_bare_launcher(monkeypatch)


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown() -> None:
    """What a process has started and no index could take is known to it until its end: forgotten after each test and its fixtures."""
    if own := sys.modules.get("dstui.jobs.store.ownership"):
        own._of_this_process.clear()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--whole-deepspeed", action="store_true", help="every job with the launcher as users have it, which imports torch")
    parser.addoption("--twins", action="store_true", help="also the cases that are marked so")
    parser.addoption("--write-screens", action="store_true", help="write the baselines of tests/tui/test_screens.py instead of comparing")


def pytest_collection_finish() -> None:
    """Thousands of tests are no garbage: a third of the time of drawing screens went into looking through them again and again."""
    gc.freeze()
    gc.enable()


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int | None:
    """How many processes `-n auto` means; pytest-xdist's own variable is asked first."""
    if "PYTEST_XDIST_AUTO_NUM_WORKERS" in os.environ:
        return None
    if any("::" in arg for arg in config.args):
        return 0  # a test or two that somebody is working on: starting processes would take longer than running them
    return min(PROCESSES_PER_CORE * (os.cpu_count() or 1), MOST)


def pytest_xdist_setupnodes(config: pytest.Config) -> None:
    """What all processes would do for themselves is done once."""
    if not config.getoption("whole_deepspeed"):
        folder = tempfile.TemporaryDirectory(prefix="dstui-tests-")
        config.add_cleanup(folder.cleanup)
        warm_deepspeed.start(Path(folder.name) / "socket")
    config.stash[TO_COMPILE] = _to_compile(config)


def pytest_configure_node(node: Any) -> None:
    """The same list for all: who looked for itself would find that others have begun."""
    node.workerinput["to_compile"] = node.config.stash[TO_COMPILE]


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """In a fresh clone every process would rewrite the assertions of all files, 5 seconds each: each does its part, and waits for the others."""
    if session.config.getoption("dist") == "no" or hasattr(session.config, "workerinput"):
        gc.disable()  # until the collection has finished: it makes no garbage, and looking for some takes a tenth of it
    process = getattr(session.config, "workerinput", {})
    files = [Path(file) for file in process.get("to_compile", ())]
    if len(files) < FEW_FILES:
        return
    for path in files[int(process["workerid"][2:]) :: process["workercount"]]:
        with contextlib.suppress(Exception, pytest.skip.Exception):  # whatever it is, the collection says it
            pytest.Module.from_parent(session, path=path).obj  # noqa: B018 - imports it, as the collection would
    until = time.monotonic() + SECONDS_TO_COMPILE
    while not all(map(_compiled, files)) and time.monotonic() < until:
        time.sleep(0.05)


def _to_compile(config: pytest.Config) -> list[str]:
    """The test files whose assertions nobody has rewritten yet, and of which that can be kept."""
    if sys.dont_write_bytecode:
        return []
    apart = set(config.getini("norecursedirs"))
    files = (path for path in sorted(Path(__file__).parent.rglob("test_*.py")) if not apart & set(path.parts))
    return [str(path) for path in files if os.access(path.parent, os.W_OK) and not _compiled(path)]


def _compiled(test_file: Path) -> bool:
    """As pytest names what it keeps."""
    return any(test_file.parent.glob(f"__pycache__/{test_file.stem}.*-pytest-*.pyc"))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Over several processes, what shares an expensive fixture stays together, and what takes long comes first."""
    if not config.getoption("twins") and not any("::" in arg for arg in config.args):
        config.hook.pytest_deselected(items=[item for item in items if item.get_closest_marker("twin")])
        items[:] = [item for item in items if not item.get_closest_marker("twin")]
    cases, given = Counter(map(_function, items)), Counter[str]()
    for item in items:
        fixtures = getattr(item, "fixturenames", ())
        if any(name in fixtures for name in LAUNCH):
            item.add_marker("launcher")
        groups = [name for name in TOGETHER if name in fixtures] + [f"{name} {item.path.stem}" for name in BY_FILE if name in fixtures]
        if cases[_function(item)] >= AT_ONCE and not groups and not item.get_closest_marker("xdist_group"):
            groups = [f"{item.path.stem} {given[item.path.stem] // AT_ONCE}"]
            given[item.path.stem] += 1
        for group in groups:
            item.add_marker(pytest.mark.xdist_group(group))
    if hasattr(config, "workerinput"):
        items[:] = _in_order(items)


def _in_order(items: list[pytest.Item]) -> list[pytest.Item]:
    """What is marked comes first; then, evenly mixed, the tests of the screen, which wait after each key, and what only computes."""
    kinds: dict[int, list[pytest.Item]] = {}
    for item in items:
        marked = [number for number, name in enumerate(FIRST) if item.get_closest_marker(name)]
        kinds.setdefault(min(marked, default=len(FIRST) + iscoroutinefunction(getattr(item, "obj", None))), []).append(item)
    first = [item for kind in sorted(kinds) if kind < len(FIRST) for item in kinds[kind]]
    mixed = [(number / len(items), item) for kind, items in kinds.items() if kind >= len(FIRST) for number, item in enumerate(items)]
    return first + [item for _, item in sorted(mixed, key=itemgetter(0))]


def _function(item: pytest.Item) -> str:
    """The test of which this is a case, or the only one."""
    return item.nodeid.partition("[")[0]


@pytest.fixture(scope="session")
def _scenarios(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Future[Any]]]:
    """Every scenario that a selected test asks for, started side by side."""
    from tests.jobs.lab import Lab
    from tests.jobs.scenarios import SCENARIOS

    names = dict.fromkeys(mark.args[0] for item in request.session.items for mark in item.iter_markers("scenario"))
    with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        yield {name: pool.submit(SCENARIOS[name], Lab(tmp_path_factory.mktemp(name))) for name in names}


@pytest.fixture
def outcome(request: pytest.FixtureRequest, _scenarios: dict[str, Future[Any]]) -> Any:
    """What the test's own scenario has returned."""
    mark = request.node.get_closest_marker("scenario")
    return _scenarios[mark.args[0]].result(timeout=2 * PATIENCE)
