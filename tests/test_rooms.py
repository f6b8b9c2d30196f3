"""Structure that import-linter does not check: no import cycles, small classes, and late imports."""

from __future__ import annotations

import ast
import importlib
import inspect
import subprocess
import sys
import textwrap
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType

from dstui.jobs.store.folder import JobFolder
from tests import source
from tests.source import MODULES, ROOT

pytestmark = source.TOGETHER
KNOWN_CIRCLES = ("dstui.diagnosis.reasoning.failure_context",)
"""Modules whose type annotations refer to each other. Remove an entry when its cycle is gone; add none."""
MAX_METHODS = 36
"""Methods of a class and its bases in dstui, not counting Textual's."""


def imported(path: Path) -> set[str]:
    """Return the dstui modules that a module imports: at the top, in functions, or only for type checking."""
    found: set[str] = set()
    for node in source.nodes_of(path):
        if isinstance(node, ast.ImportFrom) and node.module:
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= (names & MODULES.keys()) or ({node.module} & MODULES.keys())
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names} & MODULES.keys()
    return found


def cycles(edges: dict[str, set[str]]) -> list[list[str]]:
    """Return the strongly connected components with more than one module (Tarjan's algorithm)."""
    number: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(node: str) -> None:
        number[node] = low[node] = len(number)
        stack.append(node)
        for other in edges[node]:
            if other not in number:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], number[other])
        if low[node] == number[node]:
            part = stack[stack.index(node) :]
            del stack[stack.index(node) :]
            found.extend([sorted(part)] if len(part) > 1 else [])

    for node in edges:
        if node not in number:
            visit(node)
    return found


def test_cycle_is_detected() -> None:
    assert cycles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}) == [["a", "b", "c"]]


def test_no_module_is_part_of_an_import_cycle() -> None:
    assert cycles({name: imported(path) - {name} for name, path in MODULES.items()}) == []


def public_classes() -> Iterator[tuple[str, str]]:
    """Yield (name, module) for every public class at the top level of a module, except message classes inside widgets."""
    for name, path in MODULES.items():
        if not name.startswith("dstui.examples"):
            for node in source.tree_of(path).body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    yield node.name, name


def test_no_package_function_is_shadowed_by_a_module() -> None:
    hidden = []
    for path in MODULES.values():
        if path.name == "__init__.py":
            own = {node.name for node in source.tree_of(path).body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
            hidden += [
                f"{path.parent.name}.{name}" for name in own if (path.parent / f"{name}.py").exists() or (path.parent / name).is_dir()
            ]
    assert hidden == [], "importing the module puts it in the function's place"


def methods_of(kind: type) -> set[str]:
    """Return the methods of a class and its bases in dstui, without special methods except __init__ and actions that only call a flow."""
    ours = [base for base in kind.__mro__ if base.__module__.partition(".")[0] == "dstui"]
    callables = (property, classmethod, staticmethod)
    found = {name: value for base in reversed(ours) for name, value in vars(base).items()}
    names = {name for name, value in found.items() if inspect.isfunction(value) or isinstance(value, callables)}
    names -= {name for name in names if name.startswith("action_") and calls_only(found[name])}
    return {name for name in names if name == "__init__" or not (name.startswith("__") and name.endswith("__"))}


def calls_only(action: FunctionType) -> bool:
    (function,) = ast.parse(textwrap.dedent(inspect.getsource(action))).body
    assert isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef))
    return len(function.body) - (ast.get_docstring(function) is not None) == 1


def test_classes_have_few_methods() -> None:
    counts = {
        f"{module}.{name}": len(methods_of(getattr(importlib.import_module(module), name)))
        for name, module in public_classes()
        if not module.startswith("dstui.reference")  # these import deepspeed
    }
    assert {name: count for name, count in counts.items() if count > MAX_METHODS} == {}


def test_first_frame_imports_only_what_it_shows() -> None:
    late = (
        "dstui.machine.snapshot",
        "dstui.check.rules",
        "dstui.forecast",
        "dstui.jobs",
        "dstui.logs",
        "dstui.tui.run_screen",
        "dstui.tui.commands",
        "dstui.tui.flows.editing",
        "numpy",
    )
    code = f"import sys, dstui.tui.app; print([name for name in {late} if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"


def test_successful_run_does_not_import_the_diagnosis_engine(tmp_path: Path) -> None:
    folder = JobFolder(tmp_path)
    folder.append_event(1.0, "exit", state="succeeded", exit_code=0, config_read=True)
    asks = "from dstui.diagnosis import unread_configuration as asked; from dstui.jobs.store.folder import JobFolder"
    program = f"import sys; {asks}; print(asked(JobFolder(sys.argv[1])), *sys.modules)"
    answer, *modules = subprocess.run([sys.executable, "-c", program, tmp_path], capture_output=True, text=True, check=True).stdout.split()
    assert answer == "None" and "dstui.diagnosis.job.notes" in modules
    assert [name for name in modules if name.startswith(("dstui.diagnosis.engine", "dstui.diagnosis.signatures"))] == []


def test_no_two_test_files_of_a_run_share_a_name() -> None:
    """pytest imports test files by name alone and refuses a second file with the same name."""
    quick = [path.name for path in (ROOT.parent / "tests").rglob("test_*.py") if path.parent.name not in ("long", "bench")]
    assert [name for name, count in Counter(quick).items() if count > 1] == []
