"""`dstui doctor --fleet` on sixteen test hosts with the real sshd and four planted faults; then a baseline, and drift from it.

python -m pytest -n0 -q tests/long/test_fleet.py
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import farm as farming
import pytest

HOSTS = 16


def fleet(farm: farming.Farm, *words: str) -> subprocess.CompletedProcess[str]:
    return farm.run("login", sys.executable, "-m", "dstui", "doctor", "--fleet", f"h[1-{HOSTS}]", *words, timeout=180)


def test_four_faults_of_sixteen_hosts_are_found_and_drift_is_reported(tmp_path: Path) -> None:
    if reason := farming.missing():
        pytest.skip(reason)
    (tmp_path / "os-release").write_text('PRETTY_NAME="Old Linux 9"\n')
    baseline = tmp_path / "fleet.json"
    with farming.Farm(HOSTS) as farm:
        assert farm.run("h3", "mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", "/dev/shm").returncode == 0
        assert farm.run("h6", "ip", "link", "set", "eth0", "mtu", "9000").returncode == 0
        assert farm.run("h9", "mount", "--bind", str(tmp_path / "os-release"), "/etc/os-release").returncode == 0
        farm.cable("h14", plugged=False)
        done = fleet(farm, "--json", "--save", str(baseline))
        assert done.returncode == 1 and "without h14" in done.stderr, done.stderr
        hosts = json.loads(done.stdout)["hosts"]
        assert [host["host"] for host in hosts[:4] if host["verdict"] == "fail"] == ["h14"]
        assert {host["host"]: list(host["differs"]) for host in hosts if host["differs"]} == {
            "h3": ["/dev/shm"],
            "h6": ["network"],
            "h9": ["system"],
        }
        assert {host["host"] for host in hosts[:4]} == {"h3", "h6", "h9", "h14"}, "the odd ones are first"
        text = fleet(farm, "--against", str(baseline)).stdout
        assert "h14  is gone" not in text and "Nothing has changed since" in text, text

        assert farm.run("h9", "umount", "/etc/os-release").returncode == 0
        farm.cable("h14", plugged=True)
        drift = json.loads(fleet(farm, "--json", "--against", str(baseline)).stdout)["changed"]
        assert [(each["host"], each["fact"]) for each in drift] == [("h9", "system"), ("h14", None)], drift
