"""Rooms in which a newcomer finds the way: no class of everything, one name for one thing."""

from __future__ import annotations

import ast
import importlib
import inspect
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

from dstui.jobs.store.folder import JobFolder
from tests import source
from tests.source import MODULES, ROOT

pytestmark = source.TOGETHER
MOST_METHODS = 40
"""Of a class and its bases of ours, Textual's aside: more than that nobody holds in his head."""
TWO_LAYERS = {
    # one part of a configuration: as rules, as a step of the form, as a check of doctor
    *("batch", "cluster", "job", "machine", "offload", "precision", "script", "zero"),
    # a subcommand, and what it does
    *("bundle", "checkpoint", "forecast", "schema", "stacks", "stop"),
    # a look at hosts before a launch, and the dialog that shows it
    "preflight",
    # facts, and the checks about them
    *("accelerate", "host", "software"),
    # the Plan's model, and what is known of it; rates that are kept, and what measures them
    *("model", "rates"),
    # what a layer adds to the findings; launchers and the launch from the screen, and how launches fail
    *("findings", "launchers", "launching"),
}
"""Names of modules that two layers share, since they are one part seen from both."""


def public_classes() -> Iterator[tuple[str, str]]:
    """(name, module) of every public class at the top of a module; messages within widgets are theirs."""
    for name, path in MODULES.items():
        if not name.startswith("dstui.examples"):
            for node in source.tree_of(path).body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    yield node.name, name


def test_no_two_public_classes_share_a_name() -> None:
    homes = defaultdict(list)
    for name, module in public_classes():
        homes[name].append(module)
    assert {name: modules for name, modules in homes.items() if len(modules) > 1} == {}


def test_modules_share_a_name_only_where_they_are_one_part_focused_on_two_layers() -> None:
    homes = defaultdict(list)
    for module, path in MODULES.items():
        if not path.name.startswith("__"):
            homes[module.rpartition(".")[2]].append(module)
    shared = {name: modules for name, modules in homes.items() if len(modules) > 1}
    assert {name: modules for name, modules in shared.items() if name not in TWO_LAYERS} == {}
    assert TWO_LAYERS - shared.keys() == set(), "these are shared no longer: take them off the list"


def test_no_package_hides_a_function_of_its_own_behind_a_module() -> None:
    hidden = []
    for path in MODULES.values():
        if path.name == "__init__.py":
            own = {node.name for node in source.tree_of(path).body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
            hidden += [
                f"{path.parent.name}.{name}" for name in own if (path.parent / f"{name}.py").exists() or (path.parent / name).is_dir()
            ]
    assert hidden == [], "importing the module puts it in the function's place"


def methods_of(kind: type) -> set[str]:
    """What is written in a class and its bases of ours; of the special ones only __init__."""
    ours = [base for base in kind.__mro__ if base.__module__.partition(".")[0] == "dstui"]
    callables = (property, classmethod, staticmethod)
    names = {name for base in ours for name, value in vars(base).items() if inspect.isfunction(value) or isinstance(value, callables)}
    return {name for name in names if name == "__init__" or not (name.startswith("__") and name.endswith("__"))}


def test_no_class_has_more_methods_than_a_reader_can_hold() -> None:
    counts = {
        f"{module}.{name}": len(methods_of(getattr(importlib.import_module(module), name)))
        for name, module in public_classes()
        if not module.startswith("dstui.reference")  # which imports deepspeed
    }
    assert {name: count for name, count in counts.items() if count > MOST_METHODS} == {}


def test_the_first_frame_is_imported_without_what_it_does_not_show() -> None:
    late = (
        "dstui.machine.snapshot",
        "dstui.check.rules",
        "dstui.forecast",
        "dstui.jobs",
        "dstui.logs",
        "dstui.tui.run_screen",
        "dstui.tui.commands",
        "numpy",
    )
    code = f"import sys, dstui.tui.app; print([name for name in {late} if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"


def test_a_job_that_ended_well_is_seen_to_have_without_the_engine_of_the_diagnosis(tmp_path: Path) -> None:
    folder = JobFolder(tmp_path)
    folder.append_event(1.0, "exit", state="succeeded", exit_code=0, config_read=True)
    asks = "from dstui.diagnosis import unread_configuration as asked; from dstui.jobs.store.folder import JobFolder"
    program = f"import sys; {asks}; print(asked(JobFolder(sys.argv[1])), *sys.modules)"
    answer, *modules = subprocess.run([sys.executable, "-c", program, tmp_path], capture_output=True, text=True, check=True).stdout.split()
    assert answer == "None" and "dstui.diagnosis.unread_config" in modules
    assert [name for name in modules if name.startswith(("dstui.diagnosis.engine", "dstui.diagnosis.signatures"))] == []


def test_no_two_test_files_of_a_run_share_a_name() -> None:
    """pytest imports them by their name alone, and refuses the second one."""
    quick = [path.name for path in (ROOT.parent / "tests").rglob("test_*.py") if path.parent.name not in ("long", "bench")]
    assert [name for name, count in Counter(quick).items() if count > 1] == []
