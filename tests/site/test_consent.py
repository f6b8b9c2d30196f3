"""Commands from a site or team file that run in a job: refused and shown until the user agrees, once per content."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from dstui.documents.layers import load_layered
from dstui.documents.trusted_lines import agree, refusal, unagreed
from dstui.plan.holes import fill_holes
from tests.command import dstui
from tests.site.test_layers import write_site
from tests.tui.conftest import Open, letters, screen, until
from tests.tui.conftest import open_app as open_app  # noqa: PLC0414 - a fixture
from tests.waiting import wait_for

QUEUED = """\
version: 1
job: {script: train.py, args: ["{ds_config}"]}
cluster: {launcher: sbatch, num_nodes: 1, num_gpus: 1}
deepspeed: {train_micro_batch_size_per_gpu: 1}
"""
HERE = QUEUED.replace("cluster: {launcher: sbatch, num_nodes: 1, num_gpus: 1}", "cluster: {hosts: {localhost: 1}}\nrun: {observe: 'off'}")
SITE = "version: 1\ndefaults: {cluster: {slurm: {setup: [module load cuda/12.4, 'echo ${WHERE}']}}}\n"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with an active site file, and a user who has agreed to nothing."""
    monkeypatch.chdir(tmp_path)
    tmp_path.chmod(0o755)
    monkeypatch.setenv("DSTUI_SITE", str(tmp_path / "site.yaml"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("WHERE", "here; rm -rf x")
    monkeypatch.setattr("dstui.documents.trusted_lines._of_this_process", [])
    (tmp_path / "train.py").write_text("print('trained')\n")
    return tmp_path


def test_setup_of_the_site_is_not_submitted_without_consent(here: Path) -> None:
    write_site(here, SITE)
    (here / "plan.yaml").write_text(QUEUED)
    plan = load_layered(QUEUED, "plan.yaml", str(here))
    for version in (plan, fill_holes(plan, os.environ)):  # filling a hole does not make the lines the Plan's own
        assert "module load cuda/12.4" in refusal(version) and "site.yaml:2" in refusal(version)
    refused = dstui("--headless", "plan.yaml", "--no-preflight", cwd=here)
    assert refused.returncode == 1 and "    module load cuda/12.4\n    echo ${WHERE}" in refused.stderr, refused.stderr
    assert "--trust-site" in refused.stderr and not (here / "dstui_runs").exists()
    agree(plan)
    assert refusal(plan) == refusal(fill_holes(plan, os.environ)) == ""
    assert len(json.loads((here / "state/dstui/agreed_lines.json").read_text())) == 1
    write_site(here, SITE.replace("12.4", "12.5"))
    assert "12.5" in refusal(load_layered(QUEUED, "plan.yaml", str(here))), "other lines are asked about again"
    own = load_layered(QUEUED.replace("num_gpus: 1", "num_gpus: 1, slurm: {setup: [mine]}"), "plan.yaml", str(here))
    assert refusal(own) == "", "lines in the Plan are the user's own"
    assert refusal(load_layered(HERE, "plan.yaml", str(here))) == "", "no local job runs them"


@pytest.mark.launcher
def test_command_of_a_team_file_runs_after_one_consent(here: Path) -> None:
    os.environ["DSTUI_SITE"] = ""
    (here / "team.yaml").write_text("run: {on_end: touch ended}\n")
    (here / "plan.yaml").write_text("extends: team.yaml\n" + HERE)
    refused = dstui("--headless", "plan.yaml", cwd=here)
    assert refused.returncode == 1 and "team.yaml:1 (extends):" in refused.stderr and "touch ended" in refused.stderr
    agreed = dstui("--headless", "plan.yaml", "--trust-site", "--run-dir", "one", cwd=here)
    assert agreed.returncode == 0, agreed.stderr
    wait_for((here / "ended").exists)
    assert dstui("--headless", "plan.yaml", "--dry-run", "--trust-site", cwd=here).returncode == 0
    assert unagreed(load_layered((here / "plan.yaml").read_text(), "plan.yaml", str(here))) == [], "remembered for later commands"


def test_plain_mode_asks_before_launch_and_remembers_the_answer(here: Path) -> None:
    write_site(here, SITE)
    (here / "plan.yaml").write_text(QUEUED)
    words = [sys.executable, "-m", "dstui", "--plain", "plan.yaml"]
    text = "r\nlaunch\nn\nlaunch\ny\nlaunch\nq\n"
    ran = subprocess.run(words, cwd=here, input=text, env={**os.environ, "PATH": "/nowhere"}, capture_output=True, text=True, check=False)
    _, declined, agreed = ran.stdout.split("Start these programs?")
    assert "    module load cuda/12.4" in ran.stdout and "Nothing was started." in declined and "Not launched" not in declined, ran.stdout
    assert agreed.count("sbatch is not on the PATH of this machine") == 2, "the second launch does not ask"


async def test_tui_shows_the_lines_and_asks_before_starting(here: Path, open_app: Open) -> None:
    write_site(here, "version: 1\ndefaults: {run: {on_end: touch ended}}\n")
    async with open_app(HERE, size=(80, 24)) as pilot:
        await pilot.press("8")
        await until(pilot, lambda: "launches it" in screen(pilot))
        pilot.app.launching.launch()
        await until(pilot, lambda: letters(pilot) == "ny" and "touch ended" in screen(pilot))
        await pilot.press("n")
        await until(pilot, lambda: "Nothing was started" in screen(pilot))
    assert not (here / "dstui_runs").exists() and not (here / "state/dstui/agreed_lines.json").exists()
