"""A launcher that behaves as `deepspeed --no_ssh` on one host, without the seconds that importing torch takes.

Tests of what connects hosts use it; those that train use the real one.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

VALUES = ("--hostfile", "--master_addr", "--master_port", "--node_rank")


def main(words: list[str]) -> int:
    """Start this host's ranks; the first exit status that is not 0, once all have ended or the others have been told to end."""
    options: dict[str, str] = {}
    while words[0].startswith("--"):
        name = words.pop(0)
        options[name] = words.pop(0) if name in VALUES else ""
    hosts = [line.split() for line in Path(options["--hostfile"]).read_text().splitlines()]
    slots = [int(slots.partition("=")[2]) for _, slots in hosts]
    node = int(options["--node_rank"])
    first, own = sum(slots[:node]), slots[node]
    meeting = {"MASTER_ADDR": options["--master_addr"], "MASTER_PORT": options["--master_port"], "WORLD_SIZE": str(sum(slots))}
    ranks = [
        subprocess.Popen(
            [sys.executable, "-u", words[0], f"--local_rank={local}", *words[1:]],
            env={**os.environ, **meeting, "RANK": str(first + local), "LOCAL_RANK": str(local), "LOCAL_SIZE": str(own)},
        )
        for local in range(own)
    ]
    while ranks:
        codes = [code for rank in ranks if (code := rank.poll()) is not None]
        if any(codes):
            for rank in ranks:
                rank.terminate()
            return max(abs(code) for code in codes)
        ranks = [rank for rank in ranks if rank.poll() is None]
        time.sleep(0.05)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
