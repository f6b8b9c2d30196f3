"""Unsaved edits when the session is killed or the terminal is lost: a real pty and real signals."""

from __future__ import annotations

import json
import os
import signal
import stat
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.terminal import RESTORED, Terminal
from tests.waiting import PATIENCE, wait_for

PLAN = "version: 1\nname: mine\njob: {script: t.py}\ndeepspeed:\n  train_micro_batch_size_per_gpu: 3  # mine\n"


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[list[Terminal]]:
    """Yield the list of terminals that a test opens, and close them afterwards."""
    (tmp_path / "plan.yaml").write_text(PLAN)
    terminals: list[Terminal] = []
    yield terminals
    for terminal in terminals:
        terminal.close()


def dstui(opened: list[Terminal], folder: Path, *args: str, planted: str = "", **env: str) -> Terminal:
    """Start dstui in a terminal, with a separate state folder. `planted`: statements that break something in it."""
    start = ["-c", f"{planted}\nimport sys; from dstui.cli import main; sys.exit(main(sys.argv[1:]))"] if planted else ["-m", "dstui"]
    env = {"XDG_STATE_HOME": str(folder / "state"), **env}
    opened.append(Terminal([sys.executable, *start, *args, "--no-oracle"], env=env, cwd=str(folder)))
    return opened[-1]


def edited(terminal: Terminal) -> None:
    """Type another micro-batch and leave the field open."""
    terminal.wait("q quit", "Host and software")
    terminal.press("6")
    terminal.wait('"train_micro_batch_size_per_gpu": 3')
    terminal.press("\r")
    terminal.wait("Enter Esc done")
    terminal.press("7")
    terminal.wait('"train_micro_batch_size_per_gpu": 37')


def draft(folder: Path) -> str:
    """Return the text of the only draft once it has the edit."""

    def text() -> str:
        texts = (str(json.loads(file.read_text())["text"]) for file in folder.glob("state/dstui/drafts/*.json"))
        return next((text for text in texts if ": 37" in text), "")

    return wait_for(text)


def test_edits_survive_a_kill_and_are_offered_by_the_next_session(opened: list[Terminal], tmp_path: Path) -> None:
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
def test_edits_survive_a_lost_connection(opened: list[Terminal], tmp_path: Path, terminal_goes: bool) -> None:
    first = dstui(opened, tmp_path, "plan.yaml")
    edited(first)
    if terminal_goes:
        assert first.hang_up() == 129
    else:
        first.kill(signal.SIGHUP)
        assert first.exit_code() == 129
        assert b"The edits are kept" in first.raw and all(sequence in first.raw for sequence in RESTORED)
    assert ": 37" in draft(tmp_path)
    assert (tmp_path / "plan.yaml").read_text() == PLAN


@pytest.mark.parametrize("locale", ["C.UTF-8", "en_US.ISO-8859-1"])
def test_invalid_utf8_bytes_are_characters(opened: list[Terminal], tmp_path: Path, locale: str) -> None:
    """A Latin-1 terminal, a broken paste, or a line that drops bits."""
    terminal = dstui(opened, tmp_path, "plan.yaml", LC_ALL=locale)
    edited(terminal)
    for data in (b"\xff\xfe", bytes(range(0x80, 0x100)), b"\x1b[200~caf\xe9\xe2\x82\x1b[201~", b"\x1b[\xff;1H", b"\x1b\xc3"):
        os.write(terminal.fd, data)
        terminal.settle()
    terminal.press("\x1b")
    deadline = time.monotonic() + PATIENCE
    while "What will be written" not in terminal.text:  # an escape and a key in one read are another key
        assert time.monotonic() < deadline, terminal.text
        terminal.press("8")
        terminal.settle()
    assert ": 37" in draft(tmp_path)
    terminal.press("q")
    terminal.wait("edits that are not saved")
    terminal.press("d")
    assert terminal.exit_code() == 0
    assert not list(tmp_path.glob("state/dstui/*/*"))


BROKEN = {
    "an action": "from dstui.tui.app import DstuiApp as C; C.action_help = lambda self: 1 / 0",
    "the input thread": """
from dstui.tui.kit.driver import LastingDriver as C
given = C.process_message
C.process_message = lambda self, message: 1 / 0 if getattr(message, "key", "") == "f1" else given(self, message)
""",
    "how its error is drawn": """
from dstui.tui.app import DstuiApp as C
class E(ZeroDivisionError):
    def __rich__(self):
        raise self
def fail(self):
    raise E("division by zero")
C.action_help = fail
""",
    "out of the loop": """
from dstui.tui.app import DstuiApp as C
def fail(self):
    raise SystemExit("division by zero")
C.action_help = fail
""",
}


@pytest.mark.parametrize("broken", BROKEN)
def test_crash_keeps_the_draft_and_names_the_traceback_file(opened: list[Terminal], tmp_path: Path, broken: str) -> None:
    terminal = dstui(opened, tmp_path, "plan.yaml", planted=BROKEN[broken])
    edited(terminal)
    terminal.press("\x1b")
    terminal.wait("q quit")
    terminal.press("\x1bOP")  # F1
    assert terminal.exit_code() == 1
    told = bytes(terminal.raw).rpartition(b"\x1b[?1049l")[2].decode()
    assert all(sequence in terminal.raw for sequence in RESTORED)
    (report,) = tmp_path.glob("state/dstui/faults/*.txt")
    assert str(report) in told.replace("\r\n", "") and "The edits are kept" in told and "Traceback" not in told
    assert "division by zero" in told and "Traceback" in report.read_text() and stat.S_IMODE(report.stat().st_mode) == 0o600
    assert ": 37" in draft(tmp_path)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGQUIT])
def test_edits_survive_unusual_keyboard_input(opened: list[Terminal], tmp_path: Path, number: signal.Signals) -> None:
    terminal = dstui(opened, tmp_path, "plan.yaml")
    edited(terminal)
    terminal.kill(number)
    assert terminal.exit_code() == 128 + number
    assert b"\x1b[?1049l" in terminal.raw and b"The edits are kept" in terminal.raw
    assert ": 37" in draft(tmp_path)


def test_plan_without_a_file_is_kept_for_its_folder(opened: list[Terminal], tmp_path: Path) -> None:
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


SESSIONS = """
import os, signal
from textual.app import App
from dstui.tui.kit.driver import LastingDriver
class Short(App):
    def on_ready(self):
        self.exit()
def session():
    Short(driver_class=LastingDriver).run()
    return os.listdir("/proc/self/fd"), signal.getsignal(signal.SIGTERM)
print("left nothing" if session() == session() else "left something", flush=True)
"""


def test_session_leaves_no_open_pipe_and_no_handler_of_signals() -> None:
    terminal = Terminal([sys.executable, "-c", SESSIONS])
    try:
        terminal.wait("left nothing")
    finally:
        terminal.close()
