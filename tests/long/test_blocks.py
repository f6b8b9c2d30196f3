"""No callback of the UI thread takes long in a whole session: Plan, launch, flood of lines, table of runs, comparison.

    python -m pytest -n0 -s tests/long/test_blocks.py

Measured by the thread's CPU time, which other programs do not change; the wall time of the longest is printed.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.terminal import Terminal
from tests.watchdog import read_blocks

WATCHDOG = Path(__file__).parents[1] / "watchdog.py"
LONGEST = 0.05
"""Seconds of CPU time."""
SCRIPT = """\
import os, time
rank, step, enough = os.environ["RANK"], 0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "enough")
while not os.path.exists(enough):
    step += 1
    lines = [f"line {step} {n} of rank {rank}, one of a flood that goes on" for n in range(1500)]
    print(f"step {step} loss {5 / step:.4f} lr 1e-4", *lines, sep="\\n", flush=True)
    time.sleep(0.1)
"""
PLAN = """\
version: 1
name: flood
job: {script: train.py, args: [--deepspeed_config, "{ds_config}"]}
cluster: {hosts: {localhost: 4}, env: {DS_ACCELERATOR: cpu}}
model: {source: meta-llama/Llama-2-7b-hf, sequence_length: 2048}
deepspeed:
  train_micro_batch_size_per_gpu: 1
  bf16: {enabled: true}
  zero_optimization: {stage: 2}
  optimizer: {type: AdamW, params: {lr: 1e-4}}
"""
ESC, F1, DOWN, ENTER, PALETTE = "\x1b", "\x1bOP", "\x1b[B", "\r", "\x10"
HOME, END = "\x1b[H", "\x1b[F"
EDITING = (*"12345678", "3", DOWN, ENTER, "6", "j", ENTER, "1", "2", "\x7f", ENTER, F1, ESC, PALETTE, *"theme", ESC, "r", ESC, "M", ESC)
WATCHING = (
    ((*"1auvvv", "T", "L", "L", "/"), "an expression", ""),
    ((*"rank 3", ENTER, "n", "N"), "/rank 3", ""),
    ((ESC,), "", "/rank 3"),
    (("&",), "host:h2", ""),
    ((*"loss", ENTER), "filter loss", ""),
    ((ESC,), "", "filter loss"),
    (("m",), " Metrics ", ""),
    ((ESC,), "", " Metrics "),
)
"""Keys, and the text that then is on the screen, or no longer: a key that follows Escape at once would be another key."""


def press(terminal: Terminal, keys: tuple[str, ...]) -> None:
    """Press keys one after another, waiting for the screen to settle."""
    for key in keys:
        terminal.press(key)
        terminal.settle(0.2, timeout=1.0)


def watch(terminal: Terminal) -> None:
    """Use the log while lines flood it, and change the size of the window."""
    for keys, shown, gone in WATCHING:
        press(terminal, keys)
        if gone:
            terminal.wait_gone(gone)
        terminal.wait(shown)
    terminal.resize(200, 60)
    terminal.settle(1.0, timeout=3.0)
    terminal.resize(120, 40)
    terminal.settle(1.0, timeout=3.0)


def launch(terminal: Terminal) -> None:
    """Launch the Plan from Review, and wait for its first steps."""
    press(terminal, ("8",))
    terminal.wait("Before the launch")
    terminal.settle(1.0)
    press(terminal, ("l",))
    terminal.wait("running", "loss")


def test_no_callback_of_the_ui_thread_takes_fifty_milliseconds(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "plan.yaml").write_text(PLAN)
    report, enough = tmp_path / "report", tmp_path / "enough"
    homes = {f"XDG_{name}_HOME": str(tmp_path / name) for name in ("STATE", "CONFIG", "CACHE")}
    terminal = Terminal([sys.executable, str(WATCHDOG), str(report), "plan.yaml"], 120, 40, homes, str(tmp_path))
    try:
        terminal.wait("1 Machine", "quit")
        terminal.settle(3.0, timeout=5.0)
        press(terminal, EDITING)
        for again in (False, True):
            enough.unlink(missing_ok=True)
            press(terminal, ("l",)) if again else launch(terminal)
            terminal.wait("running", "loss")
            watch(terminal)
            enough.touch()  # not before the last key, however slow the machine
            terminal.wait("succeeded", timeout=120.0)
        press(terminal, ("f", HOME, END, "a", "e"))
        press(terminal, ("J",))
        terminal.wait("Runs 2")
        press(terminal, (" ", " ", "="))
        terminal.wait("How they ended")
        press(terminal, ("m", ESC, ESC, ESC, "q"))
        terminal.wait("discard the edits")
        press(terminal, ("d",))
        terminal.exit_code()
    finally:
        terminal.close()
    blocks = read_blocks(report)
    print(f"\n{len(blocks)} callbacks of 30 ms or more")
    for block in sorted(blocks, key=lambda block: -block.cpu)[:8]:
        print(f"{block.at:6.1f} s: {block.seconds * 1000:.0f} ms, {block.cpu * 1000:.0f} ms of processor time: {block.where[:1]}")
    assert [block for block in blocks if block.cpu > LONGEST] == []
