"""64 hosts x 8 ranks, with agents and records but without training: start, follow, idle, stop, with measurements.

python -m pytest -n0 -q -s tests/long/test_many_hosts.py
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "hosts"))

import farm as farming
import many

from dstui.jobs.store.folder import JobFolder
from tests.job_json import status_json
from tests.waiting import wait_for

HOSTS, SLOTS, LINES, SECONDS = 64, 8, 196, 20
"""Lines of a rank per second: about 100,000 in all."""
IDLE = 20.0
TICKS = os.sysconf("SC_CLK_TCK")


def processes(holds: Callable[[bytes], bool]) -> dict[int, float]:
    """Return pid -> CPU seconds of the processes whose command line matches."""
    found = {}
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if holds((path / "cmdline").read_bytes()):
                fields = (path / "stat").read_bytes().rpartition(b")")[2].split()
                found[int(path.name)] = (int(fields[11]) + int(fields[12])) / TICKS
    return found


def test_job_of_64_hosts_with_8_ranks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if reason := farming.missing():
        pytest.skip(reason)
    programs, python = many.make(tmp_path)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    hosts = ", ".join(f"n{number:02}: {SLOTS}" for number in range(HOSTS))
    (tmp_path / "train.py").touch()
    (tmp_path / "plan.yaml").write_text(
        f"version: 1\njob: {{script: train.py, python: {python}, args: ['{SLOTS}', '{LINES}', '{SECONDS}']}}\n"
        f"cluster: {{hosts: {{{hosts}}}, launcher: ssh}}\ndeepspeed: {{train_micro_batch_size_per_gpu: 1}}\n"
    )
    folder, dstui = JobFolder(tmp_path / "job"), [sys.executable, "-m", "dstui"]
    began = time.monotonic()
    words = ["--headless", str(tmp_path / "plan.yaml"), "--run-dir", str(folder.path), "--detach", "--no-preflight"]
    started = subprocess.run([*dstui, *words], capture_output=True, text=True, check=False, timeout=300)
    assert started.returncode == 0, started.stderr
    try:
        wait_for(lambda: _started(folder) == HOSTS * SLOTS, 300, otherwise=folder.events_file.read_text)
        print(f"\n{HOSTS * SLOTS} ranks on {HOSTS} hosts known as started after {time.monotonic() - began:.1f} s")
        flows = time.monotonic()
        size = sum(len(f"{number} {'x' * 60}\n") for number in range(LINES * SECONDS))
        wait_for(lambda: all(_size(folder.log(rank)) == size for rank in range(HOSTS * SLOTS)), 300)
        total = HOSTS * SLOTS * LINES * SECONDS
        print(f"{total:,} lines whole {time.monotonic() - flows:.1f} s later, of which they were written in {SECONDS} s")
        for rank in range(HOSTS * SLOTS):
            assert [line.split()[0] for line in folder.log(rank).read_text().splitlines()] == [str(n) for n in range(LINES * SECONDS)]
        agents = lambda: processes(lambda words: b"sys.stdin.buffer.read" in words and b"python" in words.split(b"\0")[0])  # noqa: E731
        own = lambda: processes(lambda words: b"dstui.jobs.supervisor\0" in words and str(folder.path).encode() in words)  # noqa: E731
        before, supervisor = agents(), own()
        time.sleep(IDLE)
        spent = [seconds - before[pid] for pid, seconds in agents().items() if pid in before]
        own_spent = sum(own().values()) - sum(supervisor.values())
        share, most = 100 * sum(spent) / len(spent) / IDLE, 100 * max(spent) / IDLE
        print(
            f"{len(spent)} idle agents: {share:.2f} % of a core each, at most {most:.2f} %; the supervisor {100 * own_spent / IDLE:.1f} %"
        )
        assert len(spent) >= HOSTS
    finally:
        stops = time.monotonic()
        stopped = subprocess.run([*dstui, "stop", str(folder.path)], capture_output=True, text=True, check=False, timeout=120)
        print(f"stopped in {time.monotonic() - stops:.1f} s: {stopped.stdout.strip()}")
    assert stopped.returncode == 0, stopped.stderr
    assert not processes(lambda words: many.__file__.encode() in words)
    assert {host["state"] for host in status_json(folder)["hosts"].values()} == {"ended"}


def _started(folder: JobFolder) -> int:
    return sum(rank["state"] == "started" for rank in status_json(folder).get("ranks", {}).values())


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
