"""`check`, `--headless --dry-run` and the TUI's session report the same findings for 100 generated Plans."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from dstui.commands.check import installed_deepspeed
from dstui.documents.plan_files import read_plan
from dstui.machine.snapshot import Machine, Software
from dstui.plan import Plan
from dstui.tui.session.file_lookups import resolve_all
from dstui.tui.session.session import Session
from tests import machines
from tests.command import dstui
from tests.machines import A100, gpus

PLANS, FILES = 100, 10
SCRIPT = "import deepspeed\nimport argparse\nparser = deepspeed.add_config_arguments(argparse.ArgumentParser())\n"
MODELS = ("{params: 7.0e9}", "{params: 70.0e9, sequence_length: 4096}", "{params: 1.0e6}", "{source: nowhere/model}")
CLUSTERS = (
    *("{}", "{hosts: {localhost: 2}}", "{hosts: {a: 8, b: 8}}", "{hosts: {a: 8}, include: 'b:0'}", "{num_nodes: 2, num_gpus: 8}"),
    *(
        "{num_nodes: 2}",
        "{hostfile: hosts}",
        "{hostfile: nothing}",
        "{hosts: {a: 2, b: 4}, launcher: openmpi}",
        "{env: {DS_ACCELERATOR: cpu}}",
    ),
)
CONFIGS = (
    "{train_micro_batch_size_per_gpu: 4, bf16: {enabled: true}, zero_optimization: {stage: 3}}",
    "{train_batch_size: 7, train_micro_batch_size_per_gpu: 2, zero_optimization: {stage: 2, offload_optimizer: {device: cpu}}}",
    "{train_micro_batch_size_per_gpu: auto, fp16: {enabled: true}, bf16: {enabled: true}}",
    "{train_micro_batch_size_per_gpu: 1, optimizer: {type: Adamm, params: {lr: 1e-4}}, gradient_cliping: 1.0}",
)


def generated(seed: int) -> str:
    """Return a generated Plan; some have several models."""
    chance = random.Random(seed)
    pick = chance.choice
    several = f"{{student: {{model: {pick(MODELS)}, deepspeed: {pick(CONFIGS)}}}, teacher: {{role: inference, model: {pick(MODELS)}, deepspeed: {pick(CONFIGS)}}}}}"
    args = pick(('["--deepspeed_config", "{ds_config}"]', "[]"))
    integration = pick(("deepspeed", "trainer", "accelerate"))
    lines = [
        "version: 1",
        f"job: {{script: train.py, args: {args}, integration: {integration}}}",
        f"cluster: {pick(CLUSTERS)}",
        *([f"model: {pick(MODELS)}"] if chance.random() < 0.6 else []),
        *([f"models: {several}"] if chance.random() < 0.3 else [f"deepspeed: {pick(CONFIGS)}"]),
    ]
    return "\n".join(lines) + "\n"


def session_findings(plan: Plan, machine: Machine) -> set[str]:
    session = Session(plan, None, machine)
    session.lookups_resolved(resolve_all(plan))
    return {f"{finding.severity} {finding.code} {finding.path}" for finding in session.state.findings}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "hosts").write_text("h1 slots=4\nh2 slots=4\n")
    return tmp_path


def headless_findings(text: str, source: Path) -> Iterator[str]:
    for match in re.finditer(rf"^{re.escape(str(source))}(?::\d+)?: (error|warning) (\w+) ?([\w.{{}}-]*):", text, re.M):
        yield f"{match[1]} {match[2]} {match[3]}".rstrip()


@pytest.mark.parametrize("first", range(0, PLANS, FILES))
def test_all_faces_report_the_same_for_a_generated_plan(folder: Path, first: int) -> None:
    machine = machines.machine(*gpus(8, **A100), software=Software(deepspeed=installed_deepspeed()))
    recorded = folder / "machine.json"
    recorded.write_text(json.dumps(machine.to_json()))
    paths = []
    for seed in range(first, first + FILES):
        paths.append(folder / f"plan{seed}.yaml")
        paths[-1].write_text(generated(seed))
    checked = json.loads(dstui("check", "--json", "--machine", recorded, *paths, cwd=folder).stdout)["files"]
    from dstui.machine.recorded import read_machine

    for path, face in zip(paths, checked, strict=True):
        by_check = {" ".join(filter(None, (f["severity"], f["code"], f["path"]))) for f in face["diagnostics"]}
        by_session = {line.rstrip() for line in session_findings(read_plan(path), read_machine(recorded))}
        assert by_check == by_session, path.read_text()
        ran = dstui("--headless", path, "--dry-run", "--machine", recorded, cwd=folder)
        if "could not be read" in ran.stderr or "nothing: " in ran.stderr:
            continue  # a missing hostfile is refused before any check
        by_headless = set(headless_findings(ran.stderr, path))
        assert by_headless == {line for line in by_check if not line.startswith("info")}, path.read_text() + ran.stderr
