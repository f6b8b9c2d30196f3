"""The Run screen of 64 hosts with 8 ranks each while all of them write: the delay of frames and the time of a key.

    python -m pytest tests/bench/bench_hosts.py -s

Alternates with the same job on one host, whose strip has no line per host.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from tests.bench.bench_flood import Watched, keys, percentiles
from tests.flood import end, running_job, start_flood
from tests.job_json import status_json, write_status_json

HOSTS, RANKS, RATE, SECONDS = 64, 512, 25_000, 12.0


def measured(path: Path, hosts: int) -> tuple[list[float], list[float]]:
    """Return the seconds from key to paint, and from frame to frame, of RANKS ranks on this many hosts."""
    folder = running_job(path, RANKS)
    status = status_json(folder)
    for rank, facts in status["ranks"].items():
        facts["host"] = f"worker-{int(rank) * hosts // RANKS}"
    write_status_json(folder, status)
    terminal = Watched([sys.executable, "-m", "dstui", "attach", str(folder.path)])
    try:
        terminal.wait("Log: all ranks", f"on {hosts} hosts" if hosts > 1 else f"{RANKS} ranks")
        terminal.pump_until(time.time() + 2.0)
        flood, began = start_flood(folder.path, RANKS, RATE, SECONDS), time.time()
        terminal.pump_until(began + SECONDS / 3)
        frames = terminal.frames(began + 1.0, time.time())
        taken = keys(terminal, began + SECONDS)
        flood.wait()
        end(folder)
        return taken, frames
    finally:
        terminal.close()


def test_key_is_as_fast_with_64_hosts_as_with_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = {hosts: measured(tmp_path / str(hosts), hosts) for hosts in (1, HOSTS)}
    with capsys.disabled():
        for hosts, (taken, frames) in found.items():
            print(f"\n{hosts} hosts: key to painted {percentiles(taken)} ({len(taken)} keys); frame to frame {percentiles(frames)}")
    one, many = (sorted(found[hosts][0])[len(found[hosts][0]) // 2] for hosts in (1, HOSTS))
    assert many <= 2 * max(one, 0.02)
