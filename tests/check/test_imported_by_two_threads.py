"""Threads of the TUI import modules in parallel without waiting for each other's import locks."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterable

from tests import source
from tests.source import MODULES, nodes_of, tree_of

pytestmark = source.TOGETHER

IMPORTED = """\
import importlib, sys, threading, time
from importlib.machinery import PathFinder, SourceFileLoader

class Slow(SourceFileLoader):
    # Who has begun with the package is still at it when the other has begun with a part of it.
    def create_module(self, spec):
        begun.set()
        time.sleep(0.3)

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "dstui.check.rules":
            spec = PathFinder.find_spec(name, path)
            spec.loader = Slow(name, spec.origin)
            return spec

def load(name):
    try:
        importlib.import_module(name)
    except BaseException as error:
        failed.append(repr(error))

begun, failed = threading.Event(), []
sys.meta_path.insert(0, Finder())
first = threading.Thread(target=load, args=(sys.argv[1],))
first.start()
begun.wait(10)
second = threading.Thread(target=load, args=(sys.argv[2],))
second.start()
first.join()
second.join()
sys.exit("; ".join(failed) or None)
"""


def test_rules_and_one_rule_can_be_imported_in_parallel() -> None:
    words = [sys.executable, "-c", IMPORTED, "dstui.check.rules.all_rules", "dstui.check.rules.batch"]
    ran = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")


BEFORE_ANY_THREAD = {"dstui.plan", "dstui.tui.forms.steps"}
"""Packages that are completely imported when the TUI's first thread starts."""


def names(found: Iterable[ast.AST]) -> set[str]:
    """Return the modules, or names from them, that statements import."""
    froms = [node for node in found if isinstance(node, ast.ImportFrom) and node.module]
    return {str(node.module) for node in froms} | {f"{node.module}.{alias.name}" for node in froms for alias in node.names}


def imported(nodes: Iterable[ast.AST]) -> set[str]:
    """Return what a module imports when it runs, including in functions."""
    types = [node for node in nodes if isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING"]
    typing = {id(part) for node in types for part in ast.walk(node)}
    return names(node for node in nodes if id(node) not in typing)


def test_parts_of_a_self_importing_package_are_not_imported_from_outside() -> None:
    whole = {name: tree_of(path) for name, path in MODULES.items() if path.name == "__init__.py" and name not in BEFORE_ANY_THREAD}
    parts = {
        part: package for package, tree in whole.items() for part in names(tree.body) & MODULES.keys() if part.startswith(f"{package}.")
    }
    assert parts, "there are such packages"
    wrong = [
        (name, part)
        for name, path in MODULES.items()
        for part in imported(nodes_of(path)) & parts.keys()
        if not f"{name}.".startswith(f"{parts[part]}.")
    ]
    assert wrong == []
