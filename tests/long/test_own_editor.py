"""`V` in a real terminal: the editor gets terminal and keys, its result is read back, and the TUI continues."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.terminal import Terminal

PLAN = (
    "version: 1\nname: small\njob: {script: train.py}\ndeepspeed:\n  train_micro_batch_size_per_gpu: 4\n  zero_optimization: {stage: 2}\n"
)
EDITOR = """\
#!/bin/sh
echo "editing $1"
read answer
sed -i "s/stage: 2/stage: $answer/" "$2"
"""


def test_editor_has_the_keyboard_until_it_ends(tmp_path: Path) -> None:
    (tmp_path / "plan.yaml").write_text(PLAN)
    editor = tmp_path / "vi"
    editor.write_text(EDITOR)
    editor.chmod(0o755)
    env = {"VISUAL": str(editor), "XDG_STATE_HOME": str(tmp_path / "state"), "XDG_CONFIG_HOME": str(tmp_path / "config")}
    terminal = Terminal([sys.executable, "-m", "dstui", "plan.yaml"], env=env, cwd=str(tmp_path))
    try:
        terminal.wait("1 · Machine", "q quit")
        terminal.press("3")
        terminal.wait("3 · ZeRO stage")
        for stage in ("3", "1"):  # twice: the terminal is given back each time
            terminal.press("V")
            terminal.wait("editing +6")
            terminal.press(f"{stage}\r")
            terminal.wait(f"ZeRO-{stage}")
            terminal.press("z")
            terminal.wait("ZeRO-2")
        terminal.press("\x1bOQ")
        terminal.press("q")
        assert terminal.exit_code() == 0
    finally:
        terminal.close()
    assert (tmp_path / "plan.yaml").read_text() == PLAN
