"""Speed of the TUI as ratios to the simplest Textual apps, measured alternately in one run.

    python -m pytest tests/bench/bench_tui.py -s

First frame: the steps and the form are painted. Settled: nothing more is written. Key to painted: from a key typed in a form to the
resulting preview of a hundred lines, compared to an Input with a Label that repeats it.
"""

from __future__ import annotations

import compileall
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import dstui
from tests.terminal import Terminal

RUNS = 9
FRAMES = 2 / 60
"""Seconds of two frames: an echo takes that long unless the screen has been idle, when Textual paints at once."""
HELLO = """\
from textual.app import App
from textual.widgets import Label
class Hello(App):
    def compose(self):
        yield Label("HELLO THERE")
Hello().run()
"""
ECHO = """\
from textual.app import App
from textual.widgets import Input, Label
class Echo(App):
    def compose(self):
        line = Input()
        line.cursor_blink = False
        yield line
        yield Label("-", id="echo")
    def on_input_changed(self, event):
        self.query_one("#echo").update("echo: " + event.value)
Echo().run()
"""
ESCAPE = re.compile(rb"\x1b\[[0-9;?]*[A-Za-z]")
SECTIONS = (
    "activation_checkpointing",
    "aio",
    "comms_logger",
    "flops_profiler",
    "hybrid_engine",
    "tensorboard",
    "elasticity",
    "data_efficiency",
)


@pytest.fixture(scope="module", autouse=True)
def compiled() -> None:
    """Compile all modules; otherwise compilation would be measured."""
    compileall.compile_dir(str(Path(dstui.__file__).parent), quiet=1)


def start(kind: str, plan: Path) -> tuple[float, float]:
    """Return the seconds to the first frame and to the last output."""
    argv = [sys.executable, "-c", HELLO] if kind == "hello" else [sys.executable, "-m", "dstui", str(plan)]
    terminal = Terminal(argv)
    try:
        wanted = ("HELLO THERE",) if kind == "hello" else ("1 Machine", "quit", "Ranks on the CPU")
        return terminal.wait(*wanted), terminal.settle(0.5)
    finally:
        terminal.close()


def test_first_frame_takes_at_most_twice_the_simplest_app(plan: Path) -> None:
    first: dict[str, list[float]] = {"hello": [], "dstui": []}
    settled: dict[str, list[float]] = {"hello": [], "dstui": []}
    for run in range(RUNS + 1):
        for kind, times in first.items():
            a, b = start(kind, plan)
            if run:  # the first one fills the page cache
                times.append(a)
                settled[kind].append(b)
    a, b = ratio(first), ratio(settled)
    print(f"\nfirst frame {a:.2f}x, settled {b:.2f}x of a hello-world's {statistics.median(first['hello']) * 1000:.0f} ms")
    assert a <= 2.0
    assert b <= 2.5


def ratio(times: dict[str, list[float]], top: str = "dstui", bottom: str = "hello") -> float:
    return statistics.median(times[top]) / statistics.median(times[bottom])


def echo_times(argv: list[str], prepare: Callable[[Terminal], None], before_value: str, count: int = 20) -> list[float]:
    """Return the seconds from each key to the moment when its result is written, after the text `before_value`."""
    terminal = Terminal(argv, env={"XDG_STATE_HOME": tempfile.mkdtemp()})  # unsaved edits of the last one are not offered
    try:
        prepare(terminal)
        times = []
        for n in range(count):
            digit = str(n % 9 + 1)
            terminal.settle(0.12)
            began, before, wanted = time.perf_counter(), len(terminal.raw), f"{before_value}1{digit}".encode()
            terminal.press(digit)
            while wanted not in ESCAPE.sub(b"", terminal.raw[before:]):
                assert terminal.pump(5.0), terminal.text
            times.append(time.perf_counter() - began)
            terminal.settle(0.12)
            terminal.press("\x7f")
        return times
    finally:
        terminal.close()


def test_preview_follows_a_key_within_two_frames(plan: Path) -> None:
    def open_field(terminal: Terminal) -> None:
        terminal.wait("1 · Machine", "quit")
        terminal.settle(0.5)
        terminal.press("6")
        terminal.wait("Micro-batch")
        for key in "j\r":
            terminal.settle(0.2)
            terminal.press(key)
        terminal.settle(0.3)

    def nothing(terminal: Terminal) -> None:
        terminal.settle(0.8)
        terminal.press("1")

    times: dict[str, list[float]] = {"echo": [], "dstui": []}
    for _ in range(3):
        times["echo"] += echo_times([sys.executable, "-c", ECHO], nothing, "echo: ")
        times["dstui"] += echo_times([sys.executable, "-m", "dstui", str(plan)], open_field, 'steps": ')
    bare, ours = statistics.median(times["echo"]), statistics.median(times["dstui"])
    print(f"\nkey to painted {ours * 1000:.0f} ms: {ours / FRAMES:.2f}x of two frames, {ours / bare:.2f}x of a Label that repeats an Input")
    assert ours <= 1.2 * max(FRAMES, bare)


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    """Write a Plan whose ds_config.json has a hundred lines: the quickstart's keys, and further sections with DeepSpeed's defaults."""
    from dstui.documents.plan_files import find_plan
    from dstui.plan.catalogue import KEYS

    sections: dict[str, list[str]] = {}
    for path, key in KEYS.items():
        section, _, name = path.partition(".")
        if name and "." not in name and section in SECTIONS and isinstance(key.default, (bool, int, float)) and not key.deprecated:
            sections.setdefault(section, []).append(f"    {name}: {str(key.default).lower()}\n")
    text = find_plan("quickstart").read_text() + "".join(f"  {name}:\n{''.join(lines)}" for name, lines in sections.items())
    path = tmp_path / "plan.yaml"
    path.write_text(text)
    return path
