"""The whole tour by keys in a terminal of 80x24, with real ranks; left and resumed at every kind of step."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from dstui.tui.tour.steps import TOUR
from tests.keyboard import SEQUENCES
from tests.terminal import Terminal

KEYS: dict[str, Sequence[str]] = {
    "doctor": (":", "doctor", "enter"),
    "plan": ("escape", "]"),
    "zero": ("3",),
    "why": ("f1",),
    "review": ("escape", "l"),
    "launch": ("l",),
    "ranks": ("1",),
    "log": ("a",),
    "plot": ("m",),
    "end": ("escape",),
    "batch": ("[", "[", "6"),
    "micro": ("enter", "backspace", "32", "enter"),
    "fail": ("l", "l"),
    "why-failed": ("d",),
    "fix": ("escape", "x"),
    "again": ("l",),
    "runs": ("J",),
    "compare": (" ", "down", " ", "="),
    "home": ("escape", "escape", "f2"),
    "goodbye": ("q",),
}
"""The keys that the panel names at each step, as a user types them."""
MINUTES = 900.0
"""Seconds for slow actions on a loaded machine, such as a training."""


def steps_from(name: str = "doctor") -> list[str]:
    names = [step.name for step in TOUR]
    return names[names.index(name) :]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Return a home folder that must stay empty."""
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


@pytest.fixture
def terminal(tmp_path: Path, home: Path) -> Iterator[list[Terminal]]:
    begun: list[Terminal] = []
    yield begun
    for each in begun:
        each.close()


def begin(begun: list[Terminal], tmp_path: Path, home: Path) -> Terminal:
    environment = {
        "HOME": str(home),
        "XDG_STATE_HOME": "",
        "XDG_CACHE_HOME": "",
        "XDG_CONFIG_HOME": "",
        "PYTHONPATH": os.environ.get("PYTHONPATH", ""),
    }
    begun.append(Terminal([sys.executable, "-m", "dstui", "tour"], 80, 24, env=environment, cwd=str(tmp_path)))
    return begun[-1]


def head(name: str) -> str:
    number = [step.name for step in TOUR].index(name)
    return f"Tour {number + 1}/{len(TOUR)} {TOUR[number].title}"


def take(shown: Terminal, name: str) -> None:
    """Do what the panel says, key by key, waiting for the screen to settle."""
    shown.wait(head(name), timeout=MINUTES)
    if name == "why-failed":
        shown.wait("Why it ended", timeout=MINUTES)
    if name == "runs":
        shown.wait("succeeded", timeout=MINUTES)
    for key in KEYS[name]:
        shown.settle(0.8 if key in ("l", "enter") else 0.4, timeout=3)
        shown.press(SEQUENCES.get(key, key))


def test_tour_leads_from_the_doctor_to_a_plan_to_take_home(terminal: list[Terminal], tmp_path: Path, home: Path) -> None:
    shown = begin(terminal, tmp_path, home)
    for name in steps_from():
        take(shown, name)
    assert shown.exit_code() == 0
    folder = tmp_path / "dstui-tour"
    assert "train_micro_batch_size_per_gpu: 16" in (folder / "plan.yaml").read_text()
    assert len(list((folder / "dstui_runs").iterdir())) == 3
    assert sorted(path.name for path in tmp_path.iterdir()) == ["dstui-tour", "home"]
    assert list(home.rglob("*")) == [], "nothing outside of the tour's folder"


LEFT_AT = ("doctor", "why", "launch", "ranks", "plot", "micro", "fail", "why-failed", "again", "compare")


def test_tour_can_be_left_and_resumed_at_any_point(terminal: list[Terminal], tmp_path: Path, home: Path) -> None:
    shown = begin(terminal, tmp_path, home)
    for name in steps_from():
        if name in LEFT_AT:
            shown.wait(head(name), timeout=MINUTES)
            shown.settle(0.5, timeout=3)
            shown.press("\x11")  # ctrl+q
            shown.settle(0.5, timeout=3)
            if "Not saved" in shown.text:
                shown.press("s")
            assert shown.exit_code() == 0
            shown = begin(terminal, tmp_path, home)
            shown.wait(head(name), timeout=MINUTES)
            back_to(shown, name)
        take(shown, name)
    assert shown.exit_code() == 0


def back_to(shown: Terminal, name: str) -> None:
    """Press the keys by which the panel returns to the step, such as "first 8, then l"."""
    shown.settle(0.5, timeout=3)
    line = shown.text.splitlines()[0]
    if " first " in line:
        for key in line.partition(" first ")[2].partition(", then ")[0].split():
            shown.press(SEQUENCES.get({"Esc": "escape"}.get(key, key), key))
            shown.settle(0.5, timeout=3)
