"""Every rule, with a configuration that triggers it and one that just does not; parse errors are proven by DeepSpeed's parser."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace

import pytest
from cases import CASES, Case
from zenflow import FLOWS, MOMENTS, our_moment

from dstui.check import PlanFacts, check_config, check_plan
from dstui.check.reference import ReferenceChecker
from dstui.check.rules.all_rules import RULES
from dstui.machine.snapshot import Machine, Software
from dstui.plan import load
from dstui.plan.catalogue import NEWEST
from dstui.plan.env_file import EnvFiles
from dstui.plan.finding import Finding
from dstui.render.launch import RenderError, launch_spec
from dstui.render.target import Target
from tests.machines import NO_GPU, gpus

OURS = [rule for rule in RULES.values() if not rule.code.startswith("MC")]
PARSED = [case for case in CASES if RULES[case.code].when == "parse" and not case.proof and case.reader == "deepspeed" and not case.plan]


def findings(case: Case, which: str) -> list[Finding]:
    """Return the findings for a case."""
    config = case.config(which)
    machine = case.machine_passes if which == "passes" and case.machine_passes else case.machine
    lines = case.plan_passes if which == "passes" and case.plan_passes is not None else case.plan
    if lines:
        beneath = case.beneath if which == "fires" else case.beneath_passes
        plan = load(f"version: 1\n{lines}\ndeepspeed: {json.dumps(config)}\n", beneath=beneath)
        passes = which == "passes"
        pool, env_files = (case.pool_passes, case.env_files_passes) if passes else (case.pool, case.env_files)
        target = Target(plan, machine or Machine.unprobed(), pool if isinstance(pool, Mapping) else None, env_files or EnvFiles())
        facts = PlanFacts(script=case.facts(which), configs={"": case.model}, pool=pool, slurm=case.slurm)
        return check_plan(target, facts, world_size=case.ranks, deepspeed_version=case.version)
    return check_config(config, machine, world_size=case.ranks, integration=case.reader, deepspeed_version=case.version)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_rule_triggers_or_just_does_not(case: Case) -> None:
    fired = [f for f in findings(case, "fires") if f.code == case.code]
    assert fired, f"{case.code} does not trigger"
    assert case.code not in {f.code for f in findings(case, "passes")}
    for finding in fired:
        assert finding.message, "the message is a sentence"
        assert (finding.when is not None) == (finding.severity == "error"), "errors, and only they, say when the run would fail"


def test_every_rule_has_a_case() -> None:
    codes, tested = {rule.code for rule in OURS}, {case.code for case in CASES}
    assert not codes - tested, f"add a Case to tests/check/cases.py for {', '.join(sorted(codes - tested))}"
    assert not tested - codes, f"cases without a rule, or whose module is not in plan_rules.py: {', '.join(sorted(tested - codes))}"


@pytest.mark.parametrize("case", PARSED, ids=str)
def test_parse_error_is_raised_by_deepspeed_in_these_words(case: Case, deepspeed: ReferenceChecker) -> None:
    refused = deepspeed.validate(case.config("fires"), case.ranks)
    assert not refused.ok
    said = [f.why.removeprefix("DeepSpeed: ").strip("… ") for f in findings(case, "fires") if f.code == case.code]
    assert any(words and words in refused.message for words in said), f"{said} is not in {refused.message!r}"
    if case.machine is None:
        passed = deepspeed.validate(case.config("passes"), case.ranks)
        assert passed.ok, passed.message


@pytest.mark.parametrize(
    ("cluster", "path"),
    [
        ("{hosts: {h1: 2}, launcher: local}", "cluster.launcher"),
        ("{hosts: {h1: 4, h2: 4}, launcher: accelerate, include: 'h1:0,3@h2:0,1'}", "cluster.include"),
        ("{hosts: {h1: 4, h2: 4}, launcher: openmpi, include: h1}", "cluster.include"),
        ("{hosts: {h1: 4, h2: 2}, launcher: accelerate}", "cluster.hosts"),
    ],
)
def test_configuration_refused_by_render_does_not_pass(cluster: str, path: str) -> None:
    plan = load(
        f"version: 1\njob: {{script: t.py, args: ['{{ds_config}}']}}\ncluster: {cluster}\ndeepspeed: {{train_micro_batch_size_per_gpu: 1}}\n"
    )
    with pytest.raises(RenderError):
        launch_spec(plan, NO_GPU)
    errors = [finding for finding in check_plan(Target(plan)) if finding.severity == "error"]
    assert [(finding.path, finding.when) for finding in errors] == [(path, "launch")]


def test_error_says_when_it_occurs_and_rule_cites_its_source() -> None:
    for rule in OURS:
        assert rule.severity != "error" or (rule.when and rule.source), rule.code
        assert rule.title.endswith("."), rule.code


@pytest.mark.parametrize("version", MOMENTS)
@pytest.mark.parametrize("name", FLOWS)
def test_each_release_has_its_own_zenflow(name: str, version: str) -> None:
    assert our_moment(name, version) == MOMENTS[version][name]


@pytest.mark.parametrize(
    ("software", "version", "section", "refused"),
    [
        (Software(fp16=False, bf16=True), NEWEST, "fp16", True),
        (Software(fp16=True, bf16=True), NEWEST, "fp16", False),
        (Software(), NEWEST, "fp16", False),
        (Software(), "0.14.5", "fp16", True),
        (Software(fp16=False, bf16=True), NEWEST, "bf16", False),
        (Software(fp16=False, bf16=False), NEWEST, "bf16", True),
    ],
)
def test_dtype_is_refused_if_deepspeeds_cpu_accelerator_refuses_it(software: Software, version: str, section: str, refused: bool) -> None:
    machine, config = replace(NO_GPU, software=software), {"train_batch_size": 2, section: {"enabled": True}}
    found = [f for f in check_config(config, machine, world_size=2, deepspeed_version=version) if f.code == "DS052"]
    assert [(f.severity, f.when, f.path, f.why) for f in found] == [
        ("error", "initialize", f"{section}.enabled", f"DeepSpeed: Type {section} is not supported on your device.")
    ] * refused
    with_gpus = replace(machine, gpus=gpus(1))
    assert "DS052" not in {f.code for f in check_config(config, with_gpus, world_size=2, deepspeed_version=version)}
