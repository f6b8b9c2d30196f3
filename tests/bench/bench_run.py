"""Cost of `dstui run`: the same launch with and without it, in pairs. Prints seconds and ratios; run it on an idle machine.

    python tests/bench/bench_run.py

The claim: at most 2x for a script whose launch takes only as long as the launcher needs to start; ranks that train for minutes pay the same
seconds once. A command that is no launch (`python -c pass` by its stand-in) costs a shell.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROUNDS = 5
PROGRAMS = Path(sys.executable).parent
SCRIPTS = {
    "deepspeed": "deepspeed --num_gpus 2 train.py",
    "torchrun": "torchrun --nproc_per_node 2 --master_port 29651 train.py",
    "ten times python": "for n in 1 2 3 4 5 6 7 8 9 10; do python -c pass; done",
}
CLAIM = 2.0


def once(folder: Path, text: str, *before: str) -> float:
    """Return the seconds of one run."""
    env = {**os.environ, "DS_ACCELERATOR": "cpu", "PATH": f"{PROGRAMS}{os.pathsep}{os.environ['PATH']}"}
    start = time.perf_counter()
    subprocess.run([*before, "bash", "-c", text], cwd=folder, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
    return time.perf_counter() - start


def main() -> int:
    """Alternate, so that interference affects both equally; return 1 if the claim does not hold."""
    worst = 0.0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "train.py").write_text("print('loss 1.0', flush=True)\n")
        for title, text in SCRIPTS.items():
            pairs = [(once(folder, text), once(folder, text, sys.executable, "-m", "dstui", "run", "--")) for _ in range(ROUNDS + 1)][1:]
            plain, ours = (statistics.median(values) for values in zip(*pairs, strict=True))
            ratio = statistics.median(other / one for one, other in pairs)
            worst = max(worst, ratio)
            print(f"{ratio:5.2f}x  {plain:6.2f} s, under dstui run {ours:6.2f} s  {title}")
    return int(worst > CLAIM)


if __name__ == "__main__":
    sys.exit(main())
