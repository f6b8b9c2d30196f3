"""Extract the corpus' texts from git clones: `python fetch.py CLONES TEXTS` writes TEXTS/SHA.txt for every text of index.csv that it finds.

CLONES/OWNER+NAME is a clone (bare or not) of https://github.com/OWNER/NAME that has the commit. Quotations from issue threads are not
fetched.
"""

from __future__ import annotations

import csv
import hashlib
import json
import re
import subprocess
import sys
from pathlib import Path

ADDRESS = re.compile(r"https://github\.com/([^/]+/[^/]+)/blob/([0-9a-f]{40})/(.+?)(?:#(block|cell)-(\d+)|#L(\d+)-L(\d+))?$")
BLOCK = re.compile(r"^[ \t]*```[^\n]*\n(.*?)^[ \t]*```", re.DOTALL | re.MULTILINE)


def blob(clone: Path, commit: str, path: str) -> bytes | None:
    """Return a file at a commit; None if the clone does not have it."""
    for folder in (clone, clone / "repo", clone / ".git"):
        shown = subprocess.run(["git", "-C", str(folder), "show", f"{commit}:{path}"], capture_output=True, check=False)
        if shown.returncode == 0:
            return shown.stdout
    return None


def cell(notebook: str, number: int) -> str:
    """Return the output of a notebook's cell, and the exception that ended it."""
    parts = []
    for output in json.loads(notebook)["cells"][number].get("outputs") or []:
        if output.get("output_type") == "stream":
            parts.append("".join(output.get("text", "")))
        elif output.get("output_type") == "error":
            parts.append("\n".join(output.get("traceback", [])))
    return "\n".join(parts)


def text_of(address: str, clones: Path) -> bytes | None:
    """Return the text of a URL; None if it is not available."""
    found = ADDRESS.match(address)
    if found is None:
        return None
    repository, commit, path, part, number, first, last = found.groups()
    data = blob(clones / repository.replace("/", "+"), commit, path)
    if data is None:
        return None
    if last:
        return b"\n".join(data.split(b"\n")[int(first) - 1 : int(last)]) + b"\n"
    if part == "block":
        return list(BLOCK.finditer(data.decode(errors="replace")))[int(number)][1].encode()
    return cell(data.decode(errors="replace"), int(number)).encode() if part else data


def main(clones: Path, texts: Path) -> int:
    """Write the available texts; print how many there are, and how many are missing or differ from those that were labelled."""
    texts.mkdir(exist_ok=True)
    missing = 0
    with (Path(__file__).parent / "index.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        path = texts / f"{row['sha256'][:16]}.txt"
        data = path.read_bytes() if path.exists() else text_of(row["address"], clones)
        if data is None or hashlib.sha256(data).hexdigest() != row["sha256"]:
            missing += 1
        elif not path.exists():
            path.write_bytes(data)
    print(f"{len(rows) - missing} of {len(rows)} texts are in {texts}, {missing} are not")
    return 0


if __name__ == "__main__":
    sys.exit(main(*map(Path, sys.argv[1:3])) if len(sys.argv) == 3 else __doc__)
