"""Layers beneath a Plan: which one wins, where each value comes from, and that none is written into the Plan."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from dstui.documents.open import open_document
from dstui.jobs.store.folder import JobFolder
from dstui.jobs.store.plan_diff import plan_of
from dstui.plan import Plan, PlanError
from dstui.plan.locks import origin_of, without_layers
from tests.command import dstui

SITE = """\
version: 1
contact: "#hpc"
defaults:
  cluster: {slurm: {partition: gpu}, env: {A: site, B: site}}
  deepspeed:
    gradient_clipping: 1.0
    optimizer: {type: AdamW, params: {lr: 1e-4, betas: [0.9, 0.95]}}
locked:
  deepspeed.bf16.enabled: true
  cluster.num_nodes: {max: 4, reason: we have four nodes}
  deepspeed.zero_optimization.zero_hpz_partition_size: {value: 8, when: {deepspeed.zero_optimization.stage: 3}, reason: two NVLink islands}
launchers: [local, slurm]
"""
TEAM = "job: {workdir: src, args: [--seed, '1']}\ncluster: {env: {B: team}}\ndeepspeed: {steps_per_print: 10}\n"
PLAN = """\
version: 1
extends: team/team.yaml   # what we share
job:
  script: train.py
cluster: {hosts: {localhost: 2}}
deepspeed:
  train_micro_batch_size_per_gpu: 1
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with a Plan, the file that it extends and an active site file."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    tmp_path.chmod(0o755)
    (tmp_path / "team" / "src").mkdir(parents=True)
    (tmp_path / "team" / "team.yaml").write_text(TEAM)
    (tmp_path / "team" / "src" / "train.py").write_text("import os\nos.environ['DSTUI_DS_CONFIG']\n")
    (tmp_path / "plan.yaml").write_text(PLAN)
    write_site(tmp_path, SITE)
    monkeypatch.setenv("DSTUI_SITE", str(tmp_path / "site.yaml"))
    return tmp_path


def write_site(folder: Path, text: str) -> None:
    path = folder / "site.yaml"
    path.write_text(text)
    path.chmod(0o644)


def opened(*sets: str) -> Plan:
    return open_document("plan.yaml", sets).plan


def origin(plan: Plan, path: str) -> tuple[str, str, int | None]:
    found = origin_of(plan, path)
    assert found is not None
    return found.layer, Path(found.source).name, found.line


def test_higher_layer_wins_and_each_value_has_its_origin(here: Path) -> None:
    (here / "config" / "dstui").mkdir(parents=True)
    (here / "config" / "dstui" / "settings.yaml").write_text("version: 1\ndefaults:\n  deepspeed: {steps_per_print: 20}\n")
    plan = opened("cluster.env.A=mine")
    assert plan.cluster.env == {"A": "mine", "B": "team"}
    assert plan.deepspeed["steps_per_print"] == 20
    assert plan.deepspeed["bf16"] == {"enabled": True}
    assert plan.job.workdir == str(here / "team" / "src"), "a path is relative to its file"
    assert origin(plan, "cluster.env.A") == ("--set", "", None)
    assert origin(plan, "cluster.env.B") == ("extends", "team.yaml", 2)
    assert origin(plan, "deepspeed.steps_per_print") == ("settings", "settings.yaml", 3)
    assert origin(plan, "deepspeed.gradient_clipping") == ("site", "site.yaml", 6)
    assert origin(plan, "deepspeed.bf16.enabled") == ("site", "site.yaml", 9)
    assert origin(plan, "job.script") == ("Plan", "plan.yaml", 4)
    assert origin_of(plan, "run.silence") is None


def test_no_layer_value_is_written_into_the_plan(here: Path) -> None:
    plan = opened()
    assert plan.text == PLAN
    assert plan.set("deepspeed.steps_per_print", 5).text == PLAN + "  steps_per_print: 5\n"


def test_null_and_unset_remove_a_layers_value(here: Path) -> None:
    plan = opened().unset("deepspeed.gradient_clipping")
    assert "gradient_clipping" not in plan.deepspeed
    assert plan.text == PLAN + "  gradient_clipping: null\n"
    assert opened().set("deepspeed.gradient_clipping", 2.0).unset("deepspeed.gradient_clipping").deepspeed["gradient_clipping"] == 1.0


def test_optimizer_of_another_type_gets_no_parameters_from_below(here: Path) -> None:
    assert opened().set("deepspeed.optimizer.params.lr", 1e-5).deepspeed["optimizer"]["params"]["betas"] == [0.9, 0.95]
    assert opened().set("deepspeed.optimizer", {"type": "Lion"}).deepspeed["optimizer"] == {"type": "Lion"}


def test_patch_reaches_values_of_a_layer(here: Path) -> None:
    plan = opened().patch(({"op": "replace", "path": "/deepspeed/optimizer/params/betas/1", "value": 0.99},))
    assert plan.deepspeed["optimizer"]["params"] == {"betas": [0.9, 0.99], "lr": 1e-4}
    assert "gradient_clipping" not in opened().patch(({"op": "remove", "path": "/deepspeed/gradient_clipping"},)).deepspeed


def test_kept_plan_of_a_run_is_one_text_with_the_same_values(here: Path) -> None:
    plan = opened("deepspeed.optimizer=null")
    flat = without_layers(plan)
    assert "extends" not in flat.data and "optimizer" not in flat.deepspeed
    assert {key: value for key, value in plan.data.items() if key != "extends"} == flat.data
    assert flat.text.startswith("version: 1\njob:\n  script: train.py\n")


@pytest.mark.parametrize(
    ("sets", "wrong"),
    [
        (["deepspeed.bf16.enabled=false"], "false, from --set, but this site allows only true"),
        (["job.integration=trainer", "deepspeed.bf16.enabled=auto"], "nobody can check it: write true here, and give the script the same"),
        (["cluster.num_nodes=5"], "5, from --set, but this site allows at most 4: we have four nodes"),
        (["cluster.hosts={a: 1, b: 1, c: 1, d: 1, e: 1}"], "this site allows at most 4: we have four nodes"),
        (["cluster.launcher=pdsh"], "pdsh, from --set, but this site allows one of local, slurm"),
        (
            ["deepspeed.zero_optimization.stage=3"],
            "it is not set, but this site allows only 8 where deepspeed.zero_optimization.stage is 3",
        ),
    ],
)
def test_value_forbidden_by_the_site_is_refused_with_its_reason(here: Path, sets: list[str], wrong: str) -> None:
    options = [word for one in sets for word in ("--set", one)]
    checked = dstui("check", "plan.yaml", "--json", *options)
    (found,) = (f for f in json.loads(checked.stdout)["files"][0]["diagnostics"] if f["code"] == "PL080")
    assert wrong in found["message"] and "; ask #hpc" in found["message"] and "site.yaml:" in found["why"]
    assert checked.returncode == 1
    launched = dstui("--headless", "plan.yaml", *options)
    assert (launched.returncode, launched.stdout) == (2, "") and wrong in launched.stderr and "; ask #hpc" in launched.stderr
    assert not (here / "dstui_runs").exists()
    assert "PL080" not in dstui("check", "plan.yaml", "--no-site", *options).stdout


def test_no_launch_bypasses_a_lock(here: Path) -> None:
    from dstui.jobs.control.start import LaunchError, start
    from dstui.machine.probe import probe
    from dstui.render.target import Target

    with pytest.raises(LaunchError, match=r"does not allow this Plan:\n  deepspeed.bf16.enabled: false"):
        start(Target(opened("deepspeed.bf16.enabled=false"), probe(), None))
    assert dstui("--headless", "plan.yaml", "--no-site").returncode == 2


def test_fix_of_a_lock_edits_the_plan(here: Path) -> None:
    (here / "plan.yaml").write_text(PLAN + "  zero_optimization: {stage: 3}\n")
    (found,) = (f for f in json.loads(dstui("check", "plan.yaml", "--json").stdout)["files"][0]["diagnostics"] if f["code"] == "PL080")
    assert opened().patch(found["fix"]["patch"]).get("deepspeed.zero_optimization.zero_hpz_partition_size") == 8


@pytest.mark.parametrize(
    ("files", "wrong"),
    [
        ({"team/team.yaml": "extends: ../plan.yaml\n"}, "team.yaml:1: extends: "),
        ({"team/team.yaml": "extends: missing.yaml\n"}, "missing.yaml: no such file or folder"),
        ({"team/team.yaml": "jobs: {}\n"}, "team.yaml:1: jobs: unknown key; did you mean 'job'?"),
        ({"team/team.yaml": "job:\n  args: 3\n"}, "team.yaml:2: job.args: "),
        ({"team/team.yaml": "job: [\n"}, "team.yaml:2: "),
        ({"team/team.yaml": "#" * (10 << 20)}, "larger than 1 MiB"),
        ({"plan.yaml": "version: 1\nextends: [a]\njob: {script: t.py}\n"}, "plan.yaml:2: extends: "),
    ],
)
def test_file_that_cannot_be_extended_is_named_with_its_line(here: Path, files: dict[str, str], wrong: str) -> None:
    for name, text in files.items():
        (here / name).write_text(text)
    with pytest.raises(PlanError) as caught:
        opened()
    assert wrong in re.sub(r"(yaml:\d+):\d+:", r"\1:", str(caught.value))
    ran = dstui("render", "plan.yaml")
    assert ran.returncode == 2 and str(caught.value) in ran.stderr


@pytest.mark.launcher
def test_run_keeps_the_resolved_plan(here: Path) -> None:
    """Runs real ranks, whose configuration has the values of all layers."""
    script = here / "team" / "src" / "train.py"
    script.write_text("import os\nprint('A', os.environ['A'], 'B', os.environ['B'], open(os.environ['DSTUI_DS_CONFIG']).read())\n")
    ran = dstui("--headless", "plan.yaml", "--run-dir", here / "job", env={**os.environ, "DSTUI_SITE": str(here / "site.yaml")})
    assert ran.returncode == 0, ran.stderr
    assert "A site B team" in ran.stdout and '"gradient_clipping": 1.0' in ran.stdout
    kept = plan_of(JobFolder(here / "job"))
    assert kept.deepspeed["gradient_clipping"] == 1.0 and kept.cluster.slurm.partition == "gpu" and not kept.beneath
    assert (here / "plan.yaml").read_text() == PLAN
