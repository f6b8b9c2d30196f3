"""Six runs of the quickstart with different settings, from launch to a Markdown table with the best one, by keys in a terminal.

    python -m pytest -n0 -s tests/long/test_six_runs.py

For each run: `/` and the name of a setting, Enter, Enter, its value, Enter; `8`, `l`. Then `J`, Space on each run, `=`, `y`.
"""

from __future__ import annotations

import base64
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from dstui.documents.plan_files import find_plan
from tests.command import dstui
from tests.terminal import Terminal

ENTER, RUBOUT = "\r", "\x7f"
LR, MICRO, CLIP = "optimizer.params.lr", "train_micro_batch_size_per_gpu", "gradient_clipping"
RUNS: tuple[dict[str, str], ...] = (
    {},
    {LR: "3e-3"},
    {LR: "1e-4"},
    {LR: "1e-3", MICRO: "16"},
    {MICRO: "4"},
    {MICRO: "8", CLIP: "0.1"},
)
"""Changes before each run; all else stays."""
COPIED = re.compile(rb"\x1b\]52;c;([A-Za-z0-9+/=]+)\x07")


def press(terminal: Terminal, *keys: str) -> None:
    """Press keys one after another, waiting for the screen to settle."""
    for key in keys:
        terminal.press(key)
        terminal.settle(0.15, timeout=1.0)


def set_value(terminal: Terminal, name: str, value: str) -> None:
    """Find a setting by its name, and type its value."""
    press(terminal, "/", *name)
    terminal.wait("Find a setting", name)
    press(terminal, ENTER, ENTER, *RUBOUT * 8, *value, ENTER)


def run(terminal: Terminal, number: int, changed: dict[str, str]) -> None:
    """Change settings, launch, and wait for the end."""
    press(terminal, "6")
    for name, value in changed.items():
        set_value(terminal, name, value)
    press(terminal, "8")
    terminal.wait("no errors")
    terminal.settle(1.0, timeout=5.0)
    press(terminal, "l")
    terminal.wait("9 Run running")
    terminal.wait("9 Run succeeded", timeout=300.0)
    print(f"run {number}: {changed}", flush=True)
    press(terminal, "[")


def rows_of(table: str) -> dict[str, Sequence[str]]:
    """Return the rows of a Markdown table by their first cells."""
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]
    return {row[0].replace("\\", ""): row[1:] for row in cells}


def test_six_runs_give_a_table_that_names_the_best(tmp_path: Path) -> None:
    (tmp_path / "plan.yaml").write_text(find_plan("quickstart").read_text())
    homes = {f"XDG_{name}_HOME": str(tmp_path / name.lower()) for name in ("STATE", "CONFIG", "CACHE")}
    terminal = Terminal([sys.executable, "-m", "dstui", "plan.yaml"], 120, 40, homes, str(tmp_path))
    try:
        terminal.wait("1 Machine", "quit")
        terminal.settle(1.0, timeout=10.0)
        for number, changed in enumerate(RUNS, 1):
            run(terminal, number, changed)
        press(terminal, "J")
        terminal.wait("Runs 6", "100/100")
        terminal.settle(1.0, timeout=10.0)
        press(terminal, *" " * len(RUNS))
        terminal.wait("6 marked")
        press(terminal, "=")
        terminal.wait("How they ended", "loss, best")
        press(terminal, "y")
        table = base64.b64decode(COPIED.findall(bytes(terminal.raw))[-1]).decode()
    finally:
        terminal.close()
    print(table)
    rows = rows_of(table)
    assert len(rows[""]) == len(RUNS)
    assert [cell.strip("*") for cell in rows[LR]] == ["1e-3", "1e-3", "1e-3", "1e-4", "3e-3", "1e-3"], "the newest is first"
    assert [cell.strip("*") for cell in rows[MICRO]] == ["8", "4", "16", "8", "8", "8"]
    losses = [float(cell.strip("*")) for cell in rows["loss"]]
    assert [n for n, cell in enumerate(rows["loss"]) if cell.startswith("**")] == [losses.index(min(losses))]
    names = [folder.name for folder in sorted((tmp_path / "dstui_runs").iterdir(), reverse=True)]
    printed = dstui("runs", "--compare", *names, "--markdown", cwd=tmp_path, env=homes)
    assert (printed.returncode, rows_of(printed.stdout)["loss"]) == (0, rows["loss"])
