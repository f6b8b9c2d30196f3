"""`dstui explain`, `new`, `site`, `schema --site` and `check --format github` on the command line."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from dstui.documents.open import open_document
from dstui.explain import explain, explain_key, explanation_lines, value_line
from dstui.machine.snapshot import Machine
from dstui.plan import load
from dstui.plan.document import Document
from dstui.site.first_site import SiteFacts, first_site
from dstui.site.schema import site_schema
from dstui.site.site_file import read_site
from dstui.surroundings import gather
from tests.command import dstui
from tests.site.test_layers import SITE, write_site

SCRIPT = "import json, os, sys\nprint(json.dumps({'env': dict(os.environ), 'argv': sys.argv[1:]}))\n"
PLAN = """\
version: 1
name: told
job: {script: train.py, args: [--x, "a b", "{ds_config}"]}
cluster: {hosts: {localhost: 2}, env: {EXTRA: '"'}}
run: {observe: "off"}
deepspeed: {train_batch_size: 12, gradient_accumulation_steps: 3}
"""
TEMPLATE = """\
# fine-tuning, as we do it
version: 1
job: {script: train.py, args: ["${DATA}"]}
deepspeed: {train_micro_batch_size_per_gpu: 1}
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with an active site file and its template."""
    monkeypatch.chdir(tmp_path)
    tmp_path.chmod(0o755)
    monkeypatch.setenv("DSTUI_SITE", str(tmp_path / "site.yaml"))
    (tmp_path / "templates").mkdir()
    (tmp_path / "templates" / "sft.yaml").write_text(TEMPLATE)
    more = "templates: templates\nwelcome: Begin here.\ncauses: {NCCL-SYSTEM: ib0 flaps on rack 7}\n"
    write_site(tmp_path, SITE + more)
    return tmp_path


@pytest.mark.launcher
def test_explained_values_equal_those_of_two_real_ranks(tmp_path: Path) -> None:
    """tests/long/test_explain.py runs 30 Plans with real engines."""
    (tmp_path / "plan.yaml").write_text(PLAN)
    (tmp_path / "train.py").write_text(SCRIPT)
    found = json.loads(dstui("explain", "plan.yaml", "--json", cwd=tmp_path).stdout)
    ran = dstui("--headless", "plan.yaml", "--run-dir", "job", cwd=tmp_path)
    told = [json.loads(line[line.index("{") :]) for line in ran.stdout.splitlines() if '"argv"' in line]
    assert len(told) == found["world_size"] == 2
    for one in told:
        path = one["env"]["DSTUI_DS_CONFIG"]
        assert one["argv"][1:] == [word.replace("{ds_config}", path) for word in found["ranks"]["arguments"]]
        for name, value in found["ranks"]["environment"].items():
            assert one["env"][name] == value.replace("{ds_config}", path)
    assert found["batch"][""] == {"train": 12, "micro": 2, "steps": 3, "ranks": 2}
    assert all((tmp_path / "job" / file["name"]).exists() for file in found["files"])


@pytest.mark.parametrize(
    ("key", "told"),
    [
        ("gradient_clipping", "deepspeed.gradient_clipping = 1.0   [site ("),
        ("deepspeed.bf16", "deepspeed.bf16.enabled = true   [site ("),
        ("job.script", "job.script = train.py   [Plan (plan.yaml:3)]"),
        ("run.silence", "run.silence = 300   [dstui's default]"),
        ("zero_optimization.overlap_comm", "[DeepSpeed's default]"),
        ("deepspeed.train_micro_batch_size_per_gpu", "= auto -> 4 (filled by per_device_train_batch_size)"),
    ],
)
def test_key_is_explained_with_its_origin(here: Path, key: str, told: str) -> None:
    (here / "plan.yaml").write_text(
        "version: 1\n\njob: {script: train.py, integration: trainer, args: [--per_device_train_batch_size, '4']}\n"
        "cluster: {hosts: {localhost: 2}}\ndeepspeed: {train_micro_batch_size_per_gpu: auto}\n"
    )
    target, facts = gather(open_document("plan.yaml").plan, Machine.unprobed())
    lines = [value_line(value) for value in explain_key(target.plan, explain(target, facts.script, facts.configs), key)]
    assert any(told in line for line in lines), lines


def test_open_hole_is_explained_as_the_plan_has_it(here: Path) -> None:
    (here / "plan.yaml").write_text("version: 1\njob: {script: t.py, args: ['${DATA}']}\ncluster: {env: {A: '${B}'}}\ndeepspeed: {}\n")
    found = explain(gather(open_document("plan.yaml").plan, Machine.unprobed())[0])
    told = found.as_json()["ranks"]
    assert told["arguments"] == ["${DATA}"] and told["environment"]["A"] == "${B}"
    assert any("arguments: --local_rank=N ${DATA}" in line for line in explanation_lines(found))


def test_unknown_key_gives_a_message(here: Path) -> None:
    ran = dstui("explain", "quickstart", "job.zzz")
    assert ran.returncode == 2 and "neither this Plan nor DeepSpeed has such a key" in ran.stderr
    ran = dstui("explain", "quickstart", "deepspeed.zero_optimization.stag")
    assert ran.returncode == 2 and "did you mean zero_optimization.stage" in ran.stderr
    ran = dstui("explain", "quickstart", "stage")
    assert ran.returncode == 0 and "deepspeed.zero_optimization.stage = 2" in ran.stdout
    ran = dstui("explain", "quickstart", "cluster.env.A")
    assert ran.returncode == 0 and "[site (" in ran.stdout


def test_templates_are_listed_and_never_overwrite_a_file(here: Path) -> None:
    listed = dstui("new").stdout
    assert "Begin here." in listed and "ask: #hpc" in listed
    assert "fine-tuning, as we do it" in listed and "trains for real in half a minute" in listed
    made = dstui("new", "sft", "--set", "name=mine")
    assert (
        made.returncode == 0 and "to fill  job.args.0: ${DATA}" in made.stdout and "job.script: train.py does not exist yet" in made.stdout
    )
    text = (here / "plan.yaml").read_text()
    assert text.startswith(TEMPLATE.partition("job")[0]) and "partition" not in text and load(text).name == "mine"
    again = dstui("new", "sft")
    assert again.returncode == 2 and "exists" in again.stderr and (here / "plan.yaml").read_text() == text
    assert dstui("new", "zzz").returncode == 2
    assert "to mend  deepspeed.bf16.enabled: auto, but this site allows only true" in dstui("new", "zero1", "-o", "other.yaml").stdout
    assert "sft.yaml" in dstui("explain", "sft", "job.script").stdout, "a template is opened by its name, as a shipped Plan"


def test_site_is_checked_against_its_templates(here: Path) -> None:
    assert dstui("site", "check").stdout.endswith("nothing wrong; 4 locks, 1 template, 0 machines\n")
    (here / "templates" / "big.yaml").write_text(TEMPLATE + "cluster: {num_nodes: 8, num_gpus: 8}\n")
    write_site(here, (here / "site.yaml").read_text() + "machines: {ours: none.json}\n")
    ran = dstui("site", "check")
    assert ran.returncode == 1
    assert "big.yaml:5: cluster.num_nodes: 8, but this site allows at most 4: we have four nodes" in ran.stdout
    assert "machines.ours: " in ran.stdout and "3 wrong" not in ran.stdout
    write_site(here, "version: 1\ndefaults: {deepspeed: {gradient_cliping: 1.0}}\n")
    assert "defaults.deepspeed.gradient_cliping" in dstui("site", "check").stdout
    write_site(here, "version: 1\nzzz: 1\n")
    broken = dstui("site", "check")
    assert broken.returncode == 2 and "site.yaml:2" in broken.stderr


def test_first_site_file_is_valid_with_and_without_comments(here: Path) -> None:
    facts = SiteFacts("h1", ["H100"] * 8, ["gpu", "debug"], ["w1", "w2"], {"NCCL_DEBUG": "WARN", "TOKEN": "secret", "HF_HOME": "/x: #y"})
    text = first_site(facts)
    assert "secret" not in text and "8 x H100" in text
    assert not read_site(text, "site.yaml", "/").locks
    entries = [line for line in text.splitlines() if line.startswith(("#   ", "# ")) and (line[2:3] == " " or ":" in line.split(" ")[1])]
    bare = "version: 1\n" + "".join(f"{line[2:]}\n" for line in entries if not line.startswith(("# dstui's", "# Made", "# It is")))
    site = read_site(bare, "site.yaml", "/")
    assert site.layer is not None and site.layer.values()["cluster"]["env"] == {"HF_HOME": "/x: #y", "NCCL_DEBUG": "WARN"}
    assert site.layer.values()["cluster"]["hosts"] == {"w1": 8, "w2": 8} and len(site.locks) == 3
    made = dstui("site", "init", "-o", "first.yaml")
    assert made.returncode == 0 and dstui("site", "check", "first.yaml").returncode == 0


def test_schema_accepts_what_the_reader_accepts(here: Path) -> None:
    validator = Draft202012Validator(site_schema())
    assert json.loads(dstui("schema", "--site").stdout) == site_schema()
    assert not list(validator.iter_errors(Document((here / "site.yaml").read_text()).data))
    models = {"actor": {"role": "train", "model": {"params": 7}, "deepspeed": {"bf16": {"enabled": True}}}}
    assert validator.is_valid({"version": 1, "defaults": {"models": models}})  # their schemas are references
    for wrong in (
        "defaults: {models: {actor: {deepspeed: 3}}}",
        "zzz: 1",
        "locked: {bf16: 1}",
        "locked: {name: {reason: x}}",
        "launchers: [rsh]",
        "defaults: {clustr: {}}",
    ):
        assert list(validator.iter_errors(Document(f"version: 1\n{wrong}\n").data)), wrong


def test_cause_shows_the_note_of_the_site(here: Path) -> None:
    (here / "job.log").write_text("ncclSystemError: System call (e.g. socket, malloc) or external library call failed or device error.\n")
    assert "At this site: ib0 flaps on rack 7" in dstui("diagnose", "job.log").stdout
    assert "- At this site: ib0 flaps on rack 7" in dstui("docs", "--causes").stdout
    assert "here     ib0 flaps on rack 7" in dstui("docs", "NCCL-SYSTEM").stdout


def test_findings_are_workflow_annotations(here: Path) -> None:
    (here / "a,b.yaml").write_text("version: 1\njob: {script: t.py}\ndeepspeed:\n  train_batch_size: 1\n  bf16: {enabled: false}\n")
    ran = dstui("check", "a,b.yaml", "missing.yaml", "--format", "github")
    assert ran.returncode == 2
    lines = ran.stdout.splitlines()
    assert all(line.startswith(("::error file=", "::warning file=", "::notice file=")) for line in lines)
    assert any(
        line.startswith("::error file=a%2Cb.yaml,line=5,title=dstui PL080::false, but this site allows only true; ask #hpc%0Awhy: ")
        for line in lines
    )
    assert any(line.startswith("::error file=missing.yaml,line=1,title=dstui::") for line in lines)
    assert dstui("check", "a,b.yaml", "--format", "github", env={**os.environ, "DSTUI_SITE": ""}).returncode in (0, 1)
