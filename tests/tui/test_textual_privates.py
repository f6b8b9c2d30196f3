"""Every private name of Textual that dstui uses, with the reason. If a release moves one, a test fails and names the place to look at.

The pin of Textual in pyproject.toml is the release line for which this table was last compared with Textual's source.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import re
import sys
from collections.abc import Iterator
from functools import cache

import pytest
from rich.segment import Segment
from textual.strip import Strip

import dstui.tui
from dstui.tui.kit.textual_mends import mend_textual

PRIVATE = {
    # (class or module of Textual, name): where dstui uses it, and why
    (
        "textual._xterm_parser",
        "XTermParser",
    ): "kit/driver.py: its input thread reads keys itself, since Textual's dies of a byte that is no UTF-8",
    ("textual.driver.Driver", "_app"): "kit/driver.py: asks the app to end and to redraw",
    ("textual.driver.Driver", "_debug"): "kit/driver.py: passed on to XTermParser, as LinuxDriver does",
    ("textual.driver.Driver", "_auto_restart"): "kit/driver.py: SIGCONT redraws only where Textual would",
    (
        "textual.drivers.linux_driver.LinuxDriver",
        "_file",
    ): "kit/driver.py: wrapped, so that a write to a terminal that is gone does not end a thread",
    ("textual.drivers.linux_driver.LinuxDriver", "_writer_thread"): "kit/driver.py: whether the terminal has been returned already",
    ("textual.drivers.linux_driver.LinuxDriver", "_must_signal_resume"): "kit/driver.py: whether SIGTSTP came by a key",
    (
        "textual.drivers.linux_driver.LinuxDriver",
        "_sigtstp_application",
    ): "kit/driver.py: called by the event loop instead of by a signal handler",
    (
        "textual.drivers.linux_driver.LinuxDriver",
        "_get_terminal_size",
    ): "kit/driver.py: overridden, so that app and driver agree on a terminal of 0 rows",
    ("textual.app.App", "_handle_exception"): "terminal_app.py: overridden, since Textual prints the values of all variables, secrets too",
    ("textual.app.App", "_return_code"): "terminal_app.py: set where a fault ends the session",
    ("textual.app.App", "_exception"): "terminal_app.py: set, so that a test's pilot raises the fault again",
    ("textual.app.App", "_exception_event"): "terminal_app.py: the same",
    (
        "textual._styles_cache",
        "StylesCache",
    ): "kit/textual_mends.py: its get_inner_outer is made a method of the class, since its cache would keep the painted lines of every closed dialog",
    ("textual.css.stylesheet.Stylesheet", "_variables"): "terminal_app.py: read, since the same colours need no second parsing",
    ("textual.message_pump.MessagePump", "_close_messages_no_wait"): "terminal_app.py: ends the app, as Textual's own handler does",
    ("textual.command.CommandPalette", "_gather_commands"): "commands.py: overridden, so that a closed palette looks for nothing more",
    (
        "textual.command.CommandPalette",
        "_action_command_list",
    ): "commands.py: overridden, since its list has no page before it was laid out",
    ("textual.widgets.OptionList", "_on_click"): "commands.py: overridden, since the option that was clicked may be gone",
}


def owner(name: str) -> object:
    """Return the class or module of this name."""
    module, _, kind = name.rpartition(".")
    return getattr(importlib.import_module(module), kind, None) or importlib.import_module(name)


@cache
def source(kind: object) -> str:
    return inspect.getsource(kind)  # type: ignore[arg-type]


def has(kind: object, name: str) -> bool:
    """Return whether a class or module defines the name, as an attribute or on `self`."""
    return name in vars(kind) or bool(re.search(rf"self\.{name}\b[^=\n]*=[^=]", source(kind)))


@pytest.mark.parametrize(("where", "name"), PRIVATE, ids=lambda value: value)
def test_textual_still_has_what_dstui_uses(where: str, name: str) -> None:
    from textual import __version__

    assert has(owner(where), name), f"Textual {__version__} has no {where}.{name}, which dstui needs in {PRIVATE[where, name]}."


def classes() -> Iterator[type]:
    """Yield every class of the TUI."""
    for found in pkgutil.walk_packages(dstui.tui.__path__, "dstui.tui."):
        module = importlib.import_module(found.name)
        yield from (kind for kind in vars(module).values() if inspect.isclass(kind) and kind.__module__ == found.name)


def privates_used(kind: type) -> Iterator[str]:
    """Yield the private names that a class uses of itself, of its base or of its app, and those that it defines."""
    for node in ast.walk(ast.parse(inspect.cleandoc("if True:\n" + source(kind)) if source(kind)[0] == " " else source(kind))):
        name = (
            node.attr if isinstance(node, ast.Attribute) else node.name if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) else ""
        )
        if name.startswith("_") and not name.startswith("__"):
            yield name


def test_every_used_private_of_textual_is_in_the_table() -> None:
    """Also find names of dstui that hide one of Textual by accident."""
    listed = {name for _, name in PRIVATE}
    unlisted = set()
    for kind in classes():
        bases = [base for base in kind.__mro__ if base.__module__.partition(".")[0] == "textual"]
        for name in (set(privates_used(kind)) if bases else set()) - listed:
            unlisted |= {f"{kind.__qualname__}.{name} ({base.__qualname__})" for base in bases if has(base, name)}
    assert sorted(unlisted) == []


def test_private_modules_of_textual_are_in_the_table() -> None:
    text = "".join(
        inspect.getsource(importlib.import_module(found.name)) for found in pkgutil.walk_packages(dstui.tui.__path__, "dstui.tui.")
    )
    assert set(re.findall(r"(?:from|import) (textual(?:\.\w+)*\._\w+)", text)) == {where for where, _ in PRIVATE if "._" in where}


def test_line_that_is_not_cut_does_not_hold_itself() -> None:
    mend_textual()
    strip = Strip([Segment("a line"), Segment(", whole")])
    before = sys.getrefcount(strip)
    uncut = [strip.divide(cuts) == [strip] for cuts in ([13], [13, 20])]
    after = sys.getrefcount(strip)
    assert uncut == [True, True] and after == before
    assert [part.text for part in strip.divide([4, 13])] == ["a li", "ne, whole"]
