"""Cost of supervision: CPU time of the supervisor and the shims compared to the job's own, over a real run of half a minute.

    python tests/bench/bench_supervision.py

The claim: under 2 % of the run's wall time on one core. Reads utime and stime of the processes from /proc every tenth of a second.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SECONDS = 25
SCRIPT = "import time\nend = time.time() + {0}\ni = 0\nwhile time.time() < end:\n    i += 1\n    print(f'step {{i}} loss 1.0', flush=True)\n    time.sleep(0.02)\n"
TICK = os.sysconf("SC_CLK_TCK")


def cpu(pid: int) -> float:
    """Return the CPU seconds of a process; 0 if it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / TICK


def main() -> int:
    """Measure; return 1 if the claim does not hold."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "probe.py").write_text(SCRIPT.format(SECONDS))
        (folder / "plan.yaml").write_text(
            "version: 1\njob: {script: probe.py, args: [x], optimizer: script}\ncluster: {hosts: {localhost: 2}}\ndeepspeed: {train_micro_batch_size_per_gpu: 1}\n"
        )
        started = time.monotonic()
        job = subprocess.Popen(
            [sys.executable, "-m", "dstui", "--headless", str(folder / "plan.yaml"), "--run-dir", str(folder / "run")],
            stdout=subprocess.DEVNULL,
        )
        used: dict[int, float] = {}
        while job.poll() is None:
            for pid in watched(folder / "run"):
                used[pid] = max(used.get(pid, 0.0), cpu(pid))
            time.sleep(0.1)
        wall = time.monotonic() - started
        status = json.loads((folder / "run" / "status.json").read_text())
        supervisor = used.get(status["supervisor"]["pid"], 0.0)
        shims = sum(used.values()) - supervisor
    print(
        f"{wall:.1f} s: supervisor {supervisor / wall:.2%} of a core, shims {shims / wall:.2%}, together {(supervisor + shims) / wall:.2%}"
    )
    return 0 if supervisor + shims < 0.02 * wall else 1


def watched(run: Path) -> list[int]:
    """Return the pids of a job's supervisor and shims."""
    pids = []
    for file in [run / "status.json", *(run / "ranks").glob("*.json")]:
        try:
            found = json.loads(file.read_text())
        except (OSError, ValueError):
            continue
        pids.append(found["shim"] if "shim" in found else (found.get("supervisor") or {}).get("pid"))
    return [pid for pid in pids if pid]


if __name__ == "__main__":
    sys.exit(main())
