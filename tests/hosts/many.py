"""Many hosts on one machine: an `ssh` that starts the agent in namespaces, and a "python" whose launcher simulates a host's ranks.

Nothing is trained and no rank is a process, but agents, frames, records, logs and stops are real.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

SSH = """\
#!/bin/sh
while [ "$1" != -- ]; do shift; done
exec unshare --mount --uts --pid --fork --kill-child --mount-proc sh -c '
exec 9<"{folder}"
mount -t tmpfs tmpfs /tmp && mkdir -p "{folder}" && mount --no-canonicalize --bind /proc/self/fd/9 "{folder}" && hostname "$0" || exit 1
exec 9<&- sh -c "$1"' "$2" "$3"
"""
PYTHON = """\
#!/bin/sh
[ "$1" = -m ] || exec {real} "$@"
exec {real} {play} "$@"
"""


def make(folder: Path) -> tuple[Path, Path]:
    """Return the folder of this `ssh`, and this interpreter."""
    programs = folder / "programs"
    programs.mkdir()
    python = folder / "python"
    (programs / "ssh").write_text(SSH.format(folder=folder))
    python.write_text(PYTHON.format(real=sys.executable, play=__file__))
    for program in (programs / "ssh", python):
        program.chmod(0o755)
    return programs, python


def play(words: list[str]) -> None:
    """Simulate a host's ranks: write their records, then lines at a rate for some seconds, then wait for SIGTERM."""
    shim = next(place for place, word in enumerate(words) if word.endswith("/shim.py"))
    folder, tag = Path(words[shim + 1]), words[shim + 2]
    slots, rate, seconds = (int(word) for word in words[-3:])
    node = int(words[words.index("--node_rank") + 1])
    ranks = range(node * slots, (node + 1) * slots)
    ticks = int(Path("/proc/self/stat").read_bytes().rpartition(b")")[2].split()[19])
    own = {"pid": os.getpid(), "shim": os.getpid(), "ticks": ticks, "tag": tag, "started": time.time(), "ended": None, "exit_code": None}

    def record(**facts: object) -> None:
        for rank in ranks:
            (folder / f"ranks/rank_{rank}.json").write_text(json.dumps({"rank": rank, **own, **facts}))

    def end(*_: object) -> None:
        record(ended=time.time(), exit_code=143)
        os._exit(143)

    signal.signal(signal.SIGTERM, end)
    record()
    logs = [(folder / f"logs/rank_{rank}.log").open("a") for rank in ranks]
    began, written = time.monotonic(), 0
    while written < rate * seconds:
        due = min(int((time.monotonic() - began) * rate), rate * seconds)
        for log in logs:
            log.write("".join(f"{number} {'x' * 60}\n" for number in range(written, due)))
            log.flush()
        written = due
        time.sleep(0.1)
    while True:
        signal.pause()


if __name__ == "__main__":
    play(sys.argv[1:])
