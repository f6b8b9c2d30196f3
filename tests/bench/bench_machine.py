"""Time of a probe of the machine.

    python tests/bench/bench_machine.py

The claims: a snapshot of this machine takes less than 300 ms; NVML's calls for eight GPUs behind switches less than 60 ms (over the fake
driver library); the live stream of eight GPUs less than 2 % of a core. Prints milliseconds, and the ratio to an interpreter's start.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import psutil

sys.path.insert(0, str(Path(__file__).parents[1] / "machine"))
import fakenvml

from dstui.machine.child import HERE
from dstui.machine.live import Live
from dstui.machine.probe import probe

NVML = [sys.executable, str(HERE / "nvml.py")]
WATCHED = 5.0
"""Seconds for which the live stream is measured."""


def median(work: Callable[[], object], times: int = 7) -> float:
    """Return the median of several runs in milliseconds."""
    spent = []
    for _ in range(times):
        began = time.perf_counter()
        work()
        spent.append(1000 * (time.perf_counter() - began))
    return statistics.median(spent)


def run(command: list[str], environment: dict[str, str]) -> None:
    """Run a program and drop its output."""
    subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=True)


def stream_share(environment: dict[str, str]) -> float:
    """Return the share of one core that the stream takes, including its reader."""
    with Live(1.0, environment) as stream:
        child = psutil.Process(stream.pid)
        while not stream.poll():
            time.sleep(0.01)
        before, ours, began = sum(child.cpu_times()[:2]), time.process_time(), time.monotonic()
        while time.monotonic() - began < WATCHED:
            stream.poll()
            time.sleep(0.05)
        return (sum(child.cpu_times()[:2]) - before + time.process_time() - ours) / WATCHED


def main() -> int:
    """Measure; return 1 if a claim does not hold."""
    with tempfile.TemporaryDirectory() as folder:
        library = fakenvml.build(Path(folder))
        profile = library / "profile"
        profile.write_text(fakenvml.profile("dgx-h100"))
        gpus = {**os.environ, "LD_LIBRARY_PATH": str(library), "FAKENVML_PROFILE": str(profile)}
        empty = {**gpus, "FAKENVML_PROFILE": "/nonexistent"}
        python = median(lambda: run([sys.executable, "-c", "pass"], gpus))
        snapshot, calls = median(probe), median(lambda: run(NVML, gpus)) - median(lambda: run(NVML, empty))
        share = stream_share(gpus)
    print(f"snapshot of this machine  {snapshot:6.0f} ms   {snapshot / python:.1f} x an interpreter's start   (< 300 ms)")
    print(f"NVML calls of eight H100s {calls:6.0f} ms   (< 60 ms)")
    print(f"live stream of eight      {100 * share:6.2f} % of a core   (< 2 %)")
    return int(snapshot >= 300 or calls >= 60 or share >= 0.02)


if __name__ == "__main__":
    sys.exit(main())
