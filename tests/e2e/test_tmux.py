"""dstui inside tmux: function keys, ctrl+s, mouse, resize, and copying to tmux's buffer."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.waiting import wait_for

pytestmark = pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")

PLAN = "version: 1\nname: mine\njob: {script: t.py}\ndeepspeed:\n  train_micro_batch_size_per_gpu: 3  # mine\n"


class Tmux:
    """A tmux server with dstui in its only window."""

    def __init__(self, folder: Path) -> None:
        self.socket = str(folder / "tmux")
        dstui = shlex.join([sys.executable, "-m", "dstui", "plan.yaml"])
        self("new-session", "-d", "-x", "120", "-y", "40", "-c", str(folder), dstui)

    def __call__(self, *words: str) -> str:
        argv = ["tmux", "-S", self.socket, "-f", "/dev/null", *words]
        # readline, which pytest imports, sets COLUMNS and LINES without os.environ, and Textual uses them.
        return subprocess.run(argv, capture_output=True, text=True, check=False, env=dict(os.environ)).stdout

    def press(self, *keys: str) -> None:
        self("send-keys", *keys)

    def wait(self, *wanted: str) -> None:
        self._until(lambda shown: all(text in shown for text in wanted))

    def wait_gone(self, text: str) -> None:
        self._until(lambda shown: text not in shown)

    def _until(self, true: Callable[[str], bool]) -> None:
        wait_for(lambda: true(self("capture-pane", "-p")), otherwise=lambda: self("capture-pane", "-p"))


@pytest.fixture
def tmux(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Tmux]:
    """Start dstui on a Plan inside tmux."""
    for name in ("TMUX", "COLUMNS", "LINES"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "plan.yaml").write_text(PLAN)
    server = Tmux(tmp_path)
    server.wait("1 · Machine", "Host and software", "q quit")
    yield server
    server("kill-server")


def test_keys_save_and_help(tmux: Tmux, tmp_path: Path) -> None:
    tmux.press("F4")
    tmux.wait("2 · Job")
    tmux.press("6")
    tmux.wait("6 · Batch")
    tmux.press("Enter")
    tmux.wait("Enter Esc done")
    tmux.press("7")
    tmux.wait('"train_micro_batch_size_per_gpu": 37')
    tmux.press("F1")
    tmux.wait("type        int")
    tmux.press("Escape")
    tmux.wait_gone("type        int")
    tmux.press("C-s")
    tmux.wait("Saved plan.yaml")
    assert (tmp_path / "plan.yaml").read_text() == PLAN.replace(": 3 ", ": 37 ")


def test_mouse_size_and_clipboard(tmux: Tmux) -> None:
    assert tmux("display", "-p", "#{mouse_any_flag}#{mouse_sgr_flag}").strip() == "11"
    tmux.press("-l", "\x1b[<0;10;5M\x1b[<0;10;5m")
    tmux.wait("3 · ZeRO stage")
    tmux("set", "-s", "set-clipboard", "on")
    tmux.press("c")
    tmux.wait("Copied ds_config.json")
    assert tmux("show-buffer") == '{\n  "train_micro_batch_size_per_gpu": 3\n}\n'
    tmux("resize-window", "-x", "80", "-y", "24")
    tmux.wait("▸Form")
    tmux.press("q")
    tmux._until(lambda shown: not shown)  # the last window is gone, and the server with it
