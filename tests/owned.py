"""Register jobs that tests create by hand as the user's own."""

from __future__ import annotations

import json
import os
from pathlib import Path

from dstui.jobs.store.folder import JobFolder


def add_to_index(folder: JobFolder, tag: str = "a-tag") -> JobFolder:
    """Add a job to the index of runs of this process, and to that of a `dstui` whose state folder is next to the job. Return the job."""
    for state in (Path(os.environ["XDG_STATE_HOME"]), folder.path.parent / "state"):
        index = state / "dstui" / "runs.jsonl"
        index.parent.mkdir(parents=True, exist_ok=True)
        with index.open("a") as file:
            file.write(json.dumps({"folder": str(folder.path), "name": "made", "started": "", "tag": tag, "begun_in": "/"}) + "\n")
        index.chmod(0o600)
    return folder
