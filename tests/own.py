"""Jobs made by hand that dstui takes for the user's own, as if it had started them."""

from __future__ import annotations

import json
import os
from pathlib import Path

from dstui.jobs.store.folder import JobFolder


def owned(folder: JobFolder, tag: str = "a-tag") -> JobFolder:
    """Note a job in the index of runs: in this process' one, and in that of a `dstui` whose state folder lies beside the job."""
    for state in (Path(os.environ["XDG_STATE_HOME"]), folder.path.parent / "state"):
        index = state / "dstui" / "runs.jsonl"
        index.parent.mkdir(parents=True, exist_ok=True)
        with index.open("a") as file:
            file.write(json.dumps({"folder": str(folder.path), "name": "made", "started": "", "tag": tag, "begun_in": "/"}) + "\n")
        index.chmod(0o600)
    return folder
