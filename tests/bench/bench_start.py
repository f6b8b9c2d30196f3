"""Time of `dstui --version`, compared to an interpreter that does nothing. Prints ratios; run it on an idle machine.

    python tests/bench/bench_start.py

The claim: `dstui --version` within 3x of `python -c pass`, and `--headless --dry-run` without the machine's probing within 12x.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROUNDS = 15
MACHINE = Path(__file__).with_name("no_gpu.json")
SCRIPT = Path(sys.executable).with_name("dstui")
COMMANDS = {
    "python -c pass": [sys.executable, "-c", "pass"],
    "dstui --version": [str(SCRIPT), "--version"],
    "dstui --help": [str(SCRIPT), "--help"],
    "import importlib.metadata": [sys.executable, "-c", "import importlib.metadata as m; m.version('dstui')"],
    "dstui --headless --dry-run": [str(SCRIPT), "--headless", "quickstart", "--dry-run", "--machine", str(MACHINE)],
}
CLAIMS = {"dstui --version": 3, "dstui --headless --dry-run": 12}


def once(command: list[str]) -> float:
    """Return the seconds of one run."""
    start = time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True, env={**os.environ})
    return time.perf_counter() - start


def main() -> int:
    """Interleave all commands, so that interference affects them equally."""
    times: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for _ in range(ROUNDS + 1):
        for name, command in COMMANDS.items():
            times[name].append(once(command))
    floor = statistics.median(times["python -c pass"][1:])
    for name, values in times.items():
        print(f"{statistics.median(values[1:]) / floor:6.2f}x  {name}")
    return int(any(statistics.median(times[name][1:]) > most * floor for name, most in CLAIMS.items()))


if __name__ == "__main__":
    sys.exit(main())
