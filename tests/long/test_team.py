"""A site on the real SLURM with a colleague who is another Unix user: launch a template, refuse a violation, list the week's failures.

python -m pytest -n0 -q tests/long/test_team.py
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import farm as farming
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "hosts"))
import slurm as slurming

import dstui
from tests.terminal import Terminal

COLLEAGUE = 65534
BECOME = f"import os, sys; os.setgroups([]); os.setgid({COLLEAGUE}); os.setuid({COLLEAGUE}); os.execvp(sys.argv[1], sys.argv[1:])"
SITE = """\
version: 1
contact: "#gpu-help"
defaults:
  cluster: {launcher: sbatch, slurm: {partition: all, setup: [export FARM=yes]}, env: {DS_ACCELERATOR: cpu}}
locked:
  cluster.num_nodes: {max: 1, reason: one node each until the winter}
launchers: [sbatch]
templates: templates
causes: {USER-PY: ask in gpu-help first}
"""
TEMPLATE = """\
# a training on one node, as we do it
version: 1
name: sft
job: {script: train.py, args: ["{ds_config}"], optimizer: script}
cluster: {num_nodes: 1, num_gpus: 2}
deepspeed: {train_micro_batch_size_per_gpu: 4}
"""
SCRIPT = "import os\nprint('rank', os.environ['RANK'], os.environ['FARM'], flush=True)\nif os.environ['RANK'] == '1':\n    raise KeyError('labels')\n"


@dataclass
class Team:
    """A folder that all hosts and users see, dstui installed in it, and SLURM."""

    place: Path
    slurm: slurming.Slurm

    def words(self, *words: str, colleague: bool = False) -> list[str]:
        """Return a command line on the login host, of root or of the colleague in their folder."""
        home = self.place / "home" if colleague else self.place
        names = {
            "HOME": home,
            "DSTUI_SITE": self.place / "site.yaml",
            "SLURM_CONF": self.slurm.state / "slurm.conf",
            "TERM": "xterm-256color",
        }
        names |= {"PATH": f"{self.place / 'venv/bin'}:/usr/bin:/bin:/usr/sbin", "LANG": "C.UTF-8", "DS_ACCELERATOR": "cpu"}
        become = [str(self.place / "venv/bin/python"), "-c", BECOME] if colleague else []
        inside = ["env", "-i", "-C", str(home), *(f"{name}={value}" for name, value in names.items()), *become]
        return self.slurm.farm.command("login", [*inside, *words])

    def dstui(self, *words: str, colleague: bool = False) -> subprocess.CompletedProcess[str]:
        return subprocess.run(self.words("dstui", *words, colleague=colleague), capture_output=True, text=True, check=False, timeout=300)


@pytest.fixture(scope="module")
def team() -> Iterator[Team]:
    if reason := farming.missing() or slurming.missing():
        pytest.skip(reason)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    if not Path(f"/usr/bin/{version}").exists():
        pytest.skip(f"a Python that every user can run, /usr/bin/{version}, is not installed")
    place = Path(tempfile.mkdtemp(prefix="dstui-team-", dir="/srv"))
    try:
        place.chmod(0o755)
        install(place, version)
        with farming.Farm(2) as farm, slurming.Slurm(farm, place / "slurm") as slurm:
            (place / "slurm").chmod(0o755)
            yield Team(place, slurm)
    finally:
        shutil.rmtree(place, ignore_errors=True)


def install(place: Path, version: str) -> None:
    """Install dstui for every user: the packages of this environment, linked, under the system's Python."""
    subprocess.run([f"/usr/bin/{version}", "-m", "venv", "--without-pip", place / "venv"], check=True)
    packages = place / f"venv/lib/{version}/site-packages"
    subprocess.run(["cp", "-al", f"{sysconfig.get_path('purelib')}/.", packages], check=True)
    shutil.copytree(Path(dstui.__file__).parent, packages / "dstui", dirs_exist_ok=True)
    shutil.copytree(Path(dstui.__file__).parents[1] / "configs", packages / "dstui/configs", dirs_exist_ok=True)
    for name, code in {
        "dstui": "from dstui.cli import main\nimport sys\nsys.exit(main())",
        "deepspeed": "from deepspeed.launcher.runner import main\nmain()",
    }.items():
        (place / "venv/bin" / name).write_text(f"#!{place}/venv/bin/python\n{code}\n")
        (place / "venv/bin" / name).chmod(0o755)
    (place / "templates").mkdir()
    (place / "templates/sft.yaml").write_text(TEMPLATE)
    (place / "site.yaml").write_text(SITE)
    (place / "home").mkdir()
    (place / "home/train.py").write_text(SCRIPT)
    os.chown(place / "home", COLLEAGUE, COLLEAGUE)


def test_site_file_leads_to_the_failures_of_the_week(team: Team) -> None:
    assert "launcher: sbatch" in team.dstui("site", "init").stdout
    assert team.dstui("site", "check").returncode == 0
    nodes = team.dstui("doctor", "--fleet", "all", "--deep")
    assert nodes.returncode == 0 and "all-reduce over gloo: 2 ranks" in nodes.stdout, nodes.stdout + nodes.stderr
    terminal = Terminal(team.words("dstui", "--no-oracle", colleague=True), 80, 24)
    try:
        terminal.wait("Templates of this site", "sft             fits")
        terminal.press("t")
        terminal.wait("sft", "on to 2")
        terminal.press("8")
        terminal.wait("queues it with SLURM")
        terminal.settle(1.0, timeout=5)
        terminal.press("l")
        terminal.wait("export FARM=yes", "commands are not in your Plan")
        terminal.press("y")
        terminal.wait("failed (exit status 1)", "KeyError: 'labels'", timeout=240)
        terminal.press("q")
        assert terminal.exit_code() == 0
    finally:
        terminal.close()
    assert team.dstui("new", "sft", colleague=True).returncode == 0
    refused = team.dstui("--headless", "plan.yaml", "--set", "cluster.num_nodes=2", colleague=True)
    assert refused.returncode == 2 and "allows at most 1: one node each until the winter" in refused.stderr
    week = team.dstui("runs", "--in", str(team.place / "home/dstui_runs"), "--since", "7d", "--by", "cause")
    assert week.returncode == 0 and "USER-PY         1  nobody" in week.stdout, week.stdout + week.stderr
    folder = next((team.place / "home/dstui_runs").iterdir())
    assert "At this site: ask in gpu-help first" in team.dstui("diagnose", str(folder)).stdout
