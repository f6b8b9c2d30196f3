"""What becomes of unsaved edits when the session is killed or the terminal is gone: a real pty, real signals."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.terminal import Terminal
from tests.waiting import wait_for

PLAN = "version: 1\nname: mine\njob: {script: t.py}\ndeepspeed:\n  train_micro_batch_size_per_gpu: 3  # mine\n"


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[list[Terminal]]:
    """Every terminal that a test has opened; closed at its end."""
    (tmp_path / "plan.yaml").write_text(PLAN)
    terminals: list[Terminal] = []
    yield terminals
    for terminal in terminals:
        terminal.close()


def dstui(opened: list[Terminal], folder: Path, *args: str) -> Terminal:
    """dstui in a terminal, with a state folder of its own."""
    env = {"XDG_STATE_HOME": str(folder / "state")}
    opened.append(Terminal([sys.executable, "-m", "dstui", *args, "--no-oracle"], env=env, cwd=str(folder)))
    return opened[-1]


def edited(terminal: Terminal) -> None:
    """Type another micro-batch; the field is still open then."""
    terminal.wait("1 · Machine", "q quit", "Host and software")
    terminal.press("6")
    terminal.wait('"train_micro_batch_size_per_gpu": 3')
    terminal.press("\r")
    terminal.wait("Enter Esc done")
    terminal.press("7")
    terminal.wait('"train_micro_batch_size_per_gpu": 37')


def draft(folder: Path) -> str:
    """The text of the only draft, as soon as it holds the edit."""

    def text() -> str:
        texts = (str(json.loads(file.read_text())["text"]) for file in folder.glob("state/dstui/drafts/*.json"))
        return next((text for text in texts if ": 37" in text), "")

    return wait_for(text)


def test_edits_survive_a_kill_and_are_taken_up_by_the_next_session(opened: list[Terminal], tmp_path: Path) -> None:
    first = dstui(opened, tmp_path, "plan.yaml")
    edited(first)
    draft(tmp_path)
    first.kill(signal.SIGKILL)
    assert first.exit_code() == 137
    assert (tmp_path / "plan.yaml").read_text() == PLAN
    second = dstui(opened, tmp_path, "plan.yaml")
    second.wait("Unsaved edits", "-  train_micro_batch_size_per_gpu: 3", "+  train_micro_batch_size_per_gpu: 37")
    second.press("t")
    second.wait_gone("Unsaved edits")
    second.wait("plan.yaml *")
    second.press("\x1bOQ")  # F2
    second.wait("Saved plan.yaml")
    assert (tmp_path / "plan.yaml").read_text() == PLAN.replace(": 3 ", ": 37 ")
    second.press("q")
    assert second.exit_code() == 0
    assert not list(tmp_path.glob("state/dstui/drafts/*"))


@pytest.mark.parametrize("terminal_goes", [False, True])
def test_edits_survive_a_connection_that_is_lost(opened: list[Terminal], tmp_path: Path, terminal_goes: bool) -> None:
    first = dstui(opened, tmp_path, "plan.yaml")
    edited(first)
    if terminal_goes:
        assert first.hang_up() == 129
    else:
        first.kill(signal.SIGHUP)
        assert first.exit_code() == 129
        assert b"The edits are kept" in first.raw
    assert ": 37" in draft(tmp_path)
    assert (tmp_path / "plan.yaml").read_text() == PLAN


def test_a_plan_without_a_file_is_kept_too_and_only_in_its_folder(opened: list[Terminal], tmp_path: Path) -> None:
    (tmp_path / "ds_config.json").write_text('{"train_micro_batch_size_per_gpu": 3}\n')
    first = dstui(opened, tmp_path, "ds_config.json")
    edited(first)
    draft(tmp_path)
    first.kill(signal.SIGKILL)
    second = dstui(opened, tmp_path, "ds_config.json")
    second.wait("Unsaved edits")
    second.press("d")
    second.wait_gone("Unsaved edits")
    second.press("q")
    assert second.exit_code() == 0
    assert not list(tmp_path.glob("state/dstui/drafts/*"))
