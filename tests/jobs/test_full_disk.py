"""A disk that fills up while the job runs: the job still ends normally, and everyone can see how."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.launcher

PROGRAM = """
import json, os, sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from tests.jobs.lab import Lab, ready
from tests.jobs.scenarios import all_events
from dstui.jobs.watch.follow import Follower
from dstui.jobs.control.take_over import take_over
from dstui.jobs.control.stop import stop
from tests.waiting import wait_for
from tests.job_json import refreshed_json, status_json
from dstui.diagnosis import diagnose_job
lab = Lab(Path(sys.argv[1]))
folder = lab.start(f"all:wait {sys.argv[1]}-go", "1:exit 7", "0:hang")
ready(folder)
with open(f"{sys.argv[1]}/everything", "wb", buffering=0) as file:
    try:
        while True:
            file.write(b"x" * 4096)
    except OSError:
        pass
wait_for(lambda: status_json(folder).get("disk_full"))
Path(f"{sys.argv[1]}-go").touch()  # on another disk
events = all_events(Follower(folder))
last = events[-1]
first = next((number for number, event in enumerate(events) if "the disk is full" in getattr(event, "text", "")), None)
ended = next(number for number, event in enumerate(events) if getattr(event, "state", "") == "ended")
written = status_json(folder)
report = stop(folder)
found = diagnose_job(folder)
print(json.dumps({
    "job": [last.exit_code, last.state, refreshed_json(folder)["exit_code"], report.state, report.exit_code, report.left],
    "told before any end": first is not None and first < ended,
    "status.json": [written["state"], written["exit_code"], written.get("disk_full")],
    "diagnosis": [found.cause, found.evidence[0].text],
}))
"""


def test_job_ends_normally_when_its_folder_cannot_be_written(tmp_path: Path) -> None:
    probe = subprocess.run(["unshare", "-rm", "true"], capture_output=True, check=False) if shutil.which("unshare") else None
    if probe is None or probe.returncode:
        pytest.skip("no mount namespaces for this user")
    script = 'mount -t tmpfs -o size=512k none "$1" && exec "$2" -c "$3" "$1" "$4"'
    words = ["unshare", "-rm", "sh", "-c", script, "sh", str(tmp_path), sys.executable, PROGRAM, str(Path(__file__).parents[2])]
    answer = subprocess.run(words, capture_output=True, text=True, check=False, timeout=120)
    assert answer.returncode == 0, answer.stderr
    assert json.loads(answer.stdout) == {
        "job": [7, "failed", 7, "failed", 7, []],
        "told before any end": True,
        "status.json": ["failed", 7, f"{tmp_path}/job"],
        "diagnosis": ["CKPT-DISK", f"the supervisor saw that the disk of {tmp_path}/job was full while the job ran"],
    }
