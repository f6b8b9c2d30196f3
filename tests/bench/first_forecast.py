"""Import published launches unchanged, forecast them on a recorded machine, and print a table.

    python tests/bench/first_forecast.py launches.jsonl machine.json [COUNT]

Each line of the first file is a launch: id, repo, path, kind (script or block), cwd, text, and the files beside it (name -> text or null).
A launch without a forecast must report what is missing; the exit status is 1 if one does not.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

DSTUI = (sys.executable, "-m", "dstui")
GIB = 2**30


def lay_out(launch: dict[str, Any], root: Path) -> tuple[Path, str]:
    """Write a launch and its files; return its working folder and the argument to import (- is standard input)."""
    for name, text in launch["files"].items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text or "")
    folder = root / launch["cwd"]
    folder.mkdir(parents=True, exist_ok=True)
    if launch["kind"] != "script":
        return folder, "-"
    script = root / launch["path"]
    script.parent.mkdir(parents=True, exist_ok=True)
    script.write_text(launch["text"])
    return folder, os.path.relpath(script, folder)


def forecast(launch: dict[str, Any], machine: Path) -> tuple[str, str]:
    """Return a launch's result (fits, tight, too big, none or refused) with the numbers or the reason."""
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        folder, source = lay_out(launch, root)
        env = {**os.environ, "HF_HOME": str(root / "no-cache")}

        def dstui(*words: str, given: str | None = None) -> subprocess.CompletedProcess[str]:
            return subprocess.run([*DSTUI, *words], cwd=folder, env=env, input=given, capture_output=True, text=True, check=False)

        made = dstui("import", source, "-o", "first.plan.yaml", given=launch["text"] if source == "-" else None)
        if made.returncode:
            return "refused", made.stderr.strip().splitlines()[-1]
        done = dstui("forecast", "first.plan.yaml", "--machine", str(machine), "--json")
        if not done.stdout.startswith("{"):
            return "none", done.stderr.strip().replace(str(folder), ".")
        found = json.loads(done.stdout)
        if found["gpu_bytes"] is None:
            told = dstui("forecast", "first.plan.yaml", "--machine", str(machine)).stdout
            return "none", " ".join(told.split())
        seconds = found["step_seconds"]
        return found["verdict"], f"{found['gpu_bytes'] / GIB:6.1f} GiB a GPU, {seconds:.2f} s a step" if seconds else "no speed"


def main(launches: str, machine: str, count: str = "40") -> int:
    """Print the table; return 1 if a launch has neither a forecast nor a reason."""
    every = [json.loads(line) for line in Path(launches).read_text().splitlines()]
    chosen = [launch for launch in every if launch.get("expect", "import") == "import"]
    chosen = chosen[:: max(len(chosen) // int(count), 1)][: int(count)]  # spread over the repositories
    counts, silent = Counter[str](), 0
    for launch in chosen:
        verdict, about = forecast(launch, Path(machine).resolve())
        counts[verdict] += 1
        silent += not about
        print(f"{launch['id']:40} {verdict:8} {about[:150]}", flush=True)
    print(f"{len(chosen)} launches: {dict(counts)}; {silent} without a reason")
    return int(silent > 0)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
