"""The rules for accelerate YAML, each with what fires it and what just does not, and their fixes."""

from __future__ import annotations

from typing import Any

import pytest
from test_fixes import errors, patched

from dstui.adopt.accelerate import read_accelerate
from dstui.adopt.dsconfig import ConfigError
from dstui.adopt.signs import is_accelerate
from dstui.check.accelerate import RULES, check_accelerate

BASE: dict[str, Any] = {"compute_environment": "LOCAL_MACHINE", "distributed_type": "DEEPSPEED", "num_processes": 4}


def yaml_with(**more: Any) -> dict[str, Any]:
    return {**BASE, **more}


def ds(**more: Any) -> dict[str, Any]:
    return yaml_with(deepspeed_config=more)


def nodes(launcher: str | None = None, **more: Any) -> dict[str, Any]:
    inner = {"deepspeed_multinode_launcher": launcher, "deepspeed_hostfile": "hostfile"} if launcher else {}
    return yaml_with(**{"num_machines": 2, "main_process_ip": "10.0.0.1", "deepspeed_config": inner, **more})


CASES: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("AC001", ds(deepspeed_config_file="ds.json", zero_stage=2), ds(deepspeed_config_file="ds.json", zero3_init_flag=True)),
    ("AC004", yaml_with(zero_stage=2), ds(zero_stage=2)),
    ("AC005", yaml_with(mixed_precision=False), yaml_with(mixed_precision="no")),
    ("AC006", {"num_processes": 1}, BASE),
    ("AC007", {**ds(zero_stage=2), "distributed_type": "MULTI_GPU"}, ds(zero_stage=2)),
    ("AC009", ds(train_batch_size=8), ds(gradient_accumulation_steps=8)),
    ("AC014", ds(zero_stage=3, zero3_init_flag=False), ds(zero_stage=3, zero3_init_flag=True)),
    ("AC019", ds(zero_stage=2, offload_param_device="cpu"), ds(zero_stage=3, offload_param_device="cpu")),
    ("AC020", ds(offload_param_nvme_path="/nvme"), ds(offload_param_nvme_path="none")),
    ("AC021", nodes("openmpi"), nodes("pdsh")),
    ("AC022", nodes(num_processes=5), nodes(num_processes=4)),
    ("AC023", nodes(deepspeed_config={"deepspeed_multinode_launcher": "pdsh"}), nodes("pdsh")),
    ("AC024", yaml_with(rdzv_backend="c10d"), yaml_with(rdzv_backend="static")),
    ("AC025", ds(deepspeed_inclusion_filter="a", deepspeed_exclusion_filter="b"), ds(deepspeed_inclusion_filter="a")),
    ("AC029", ds(gradient_clipping=0), ds(gradient_clipping=1.0)),
    ("AC041", yaml_with(dynamo_backend="INDUCTOR"), yaml_with(dynamo_backend="NO")),
    ("AC042", yaml_with(use_cpu=True), yaml_with(use_cpu=False)),
    ("AC056", {"distributed_type": "DEEPSPEED"}, BASE),
    ("AC057", nodes(main_process_ip=None), nodes()),
    ("AC059", nodes("standard", machine_rank=2), nodes("standard", machine_rank=1)),
]


@pytest.mark.parametrize(("code", "fires", "passes"), CASES, ids=[code for code, *_ in CASES])
def test_a_rule_fires_and_just_does_not_and_its_fix_helps(code: str, fires: dict[str, Any], passes: dict[str, Any]) -> None:
    before = check_accelerate(fires)
    fired = [finding for finding in before if finding.code == code]
    assert fired
    assert code not in {finding.code for finding in check_accelerate(passes)}
    for finding in fired:
        if finding.fix and finding.fix.patch:
            after = check_accelerate(patched(fires, finding.fix.patch))
            assert not any((f.code, f.path) == (finding.code, finding.path) for f in after)
            assert not errors(after) - errors(before)


@pytest.mark.parametrize("config", [yaml_with(machine_rank=1), nodes("pdsh", machine_rank=2)], ids=["one machine", "pdsh"])
def test_a_rank_of_the_machine_that_accelerate_does_not_read_is_no_error(config: dict[str, Any]) -> None:
    """Proven with accelerate itself in tests/long/test_accelerate_launch.py."""
    assert [(f.code, f.severity) for f in check_accelerate(config) if f.path == "machine_rank"] == [("AC059", "info")]


def test_every_rule_has_a_case() -> None:
    assert {code for code, *_ in CASES} == set(RULES)


def test_the_file_is_read_as_accelerate_reads_it_with_lines() -> None:
    found = read_accelerate("distributed_type: DEEPSPEED\nmixed_precision: no\ndeepspeed_config:\n  zero_stage: 2\n")
    assert found.config["mixed_precision"] is False
    assert found.line_of("deepspeed_config.zero_stage") == 4
    assert is_accelerate("compute_environment: X\n") and not is_accelerate("version: 1\njob: {}\n")


def test_two_keys_on_one_line_are_said_to_be_so() -> None:
    with pytest.raises(ConfigError, match="two keys on one line"):
        read_accelerate("distributed_type: DEEPSPEED\nfsdp_config: {}machine_rank: 0\n")
    for text, words in (("", "empty"), ("- a\n", "no mapping"), ("a: [1\n", "not YAML")):
        with pytest.raises(ConfigError, match=words):
            read_accelerate(text)
