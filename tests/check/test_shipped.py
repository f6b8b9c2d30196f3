"""Shipped Plans: available by name from anywhere, documented, with a forecast, and accepted by DeepSpeed's parser."""

from __future__ import annotations

from pathlib import Path

import pytest

from dstui.check.context import flatten
from dstui.check.reference import ReferenceChecker
from dstui.cli import main
from dstui.commands.ask_reference import config_for_deepspeed, fitting_world_size
from dstui.commands.checked_file import Asked, check_file
from dstui.documents.open import open_document
from dstui.documents.plan_files import SHIPPED, find_plan
from dstui.facts.model_files import read_models
from dstui.forecast.forecast import forecast
from dstui.machine.snapshot import GIB
from dstui.render.code import render_code
from tests.machines import gpus, machine

GPUS = machine(*gpus(8, name="A100", compute_capability="8.0", memory_total=80 * GIB))


def test_each_file_of_configs_is_shipped_under_its_name() -> None:
    assert {path.stem for path in find_plan("quickstart").parent.glob("*.yaml")} == set(SHIPPED)


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_plan_is_valid_and_documented(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    plan = open_document(name).plan
    judged = check_file(find_plan(name), Asked())
    assert judged.error is None and [f.message for f in judged.findings if f.severity != "info"] == []
    lines = plan.text.splitlines()
    assert plan.name == name and lines[0].startswith("# ") and sum("#" in line for line in lines) >= 4
    assert all(len(line) <= 150 for line in lines)
    assert render_code(plan)


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_plan_has_a_forecast(name: str) -> None:
    plan = open_document(name).plan
    found = forecast(plan, read_models(plan), GPUS, {"worker-1": 8} if plan.cluster.hostfile else None)
    assert (found.as_json()["gpu_bytes"] or 0) > GIB, found


@pytest.mark.parametrize("name", SHIPPED)
def test_page_of_a_shipped_plan_explains_its_purpose_and_keys(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["docs", name]) == 0
    page = capsys.readouterr().out.splitlines()
    plan = open_document(name).plan
    assert SHIPPED[name] in page[0] and plan.text.splitlines()[0].removeprefix("# ") in page[1]
    for config in plan.configurations.values():
        for path, value in flatten(config):
            if not isinstance(value, dict):
                at = next(number for number, line in enumerate(page) if line.startswith(f"    {path}: "))
                assert page[at + 1].startswith("        ") and page[at + 1].rstrip().endswith("."), f"{path} has no line of help"
    commands = [line.split("dstui ", 1)[1] for line in page if line.startswith(("  memory ", "  script "))]
    assert len(commands) == 2 and all(main(words.split()) in (0, 1) for words in commands), "the page's example works"


@pytest.mark.parametrize("name", SHIPPED)
def test_deepspeeds_parser_accepts_a_shipped_plan(name: str, deepspeed: ReferenceChecker) -> None:
    plan = open_document(name).plan
    for written in plan.configurations.values():
        config = config_for_deepspeed(written, plan.job.integration)
        verdict = deepspeed.validate(config, 8 if "sequence_parallel_size" in config else fitting_world_size(config))
        assert verdict.ok, verdict.message
