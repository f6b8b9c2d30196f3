"""The screen's threads import what they need while others do: none waits for a module that another holds."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import dstui

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


def test_the_rules_and_one_of_them_can_be_imported_at_the_same_time() -> None:
    words = [sys.executable, "-c", IMPORTED, "dstui.check.rules.all_rules", "dstui.check.rules.batch"]
    ran = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")


BEFORE_ANY_THREAD = {"dstui.plan", "dstui.tui.forms.steps"}
"""Packages that the screen has imported whole when its first thread begins."""


def names(found: Iterable[ast.AST]) -> set[str]:
    """The modules, or what is in them, that statements import."""
    froms = [node for node in found if isinstance(node, ast.ImportFrom) and node.module]
    return {str(node.module) for node in froms} | {f"{node.module}.{alias.name}" for node in froms for alias in node.names}


def imported(tree: ast.Module) -> set[str]:
    """What a module imports when it runs, also in its functions."""
    types = [node for node in ast.walk(tree) if isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING"]
    typing = {id(part) for node in types for part in ast.walk(node)}
    return names(node for node in ast.walk(tree) if id(node) not in typing)


def test_of_a_package_that_imports_its_own_parts_nobody_else_imports_one_of_those() -> None:
    root = Path(dstui.__file__).parent
    trees, whole = dict[str, ast.Module](), set[str]()
    for path in root.rglob("*.py"):
        name = ".".join(path.relative_to(root.parent).with_suffix("").parts).removesuffix(".__init__")
        trees[name] = ast.parse(path.read_text())
        if path.name == "__init__.py" and name not in BEFORE_ANY_THREAD:
            whole.add(name)
    parts = {part: package for package in whole for part in names(trees[package].body) & set(trees) if part.startswith(f"{package}.")}
    assert parts, "there are such packages"
    wrong = [
        (name, part) for name, tree in trees.items() for part in imported(tree) & set(parts) if not f"{name}.".startswith(f"{parts[part]}.")
    ]
    assert wrong == []
