"""Rules for accelerate YAML: what triggers each and what just does not, and their fixes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from test_fixes import errors, patched

from dstui.adopt.accelerate import read_accelerate
from dstui.adopt.dsconfig import ConfigError
from dstui.adopt.signs import is_accelerate
from dstui.check import PlanFacts, check_plan
from dstui.check.accelerate import RULES, check_accelerate
from dstui.plan import load
from dstui.render.target import Target
from tests import command

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
    ("AC001", {**ds(deepspeed_config_file="ds.json"), "mixed_precision": "fp16"}, ds(deepspeed_config_file="ds.json")),
    ("AC004", yaml_with(zero_stage=2), ds(zero_stage=2)),
    ("AC005", yaml_with(mixed_precision=False), yaml_with(mixed_precision="no")),
    ("AC006", {"num_processes": 1}, BASE),
    ("AC007", {**ds(zero_stage=2), "distributed_type": "MULTI_GPU"}, ds(zero_stage=2)),
    ("AC009", ds(train_batch_size=8), ds(gradient_accumulation_steps=8)),
    ("AC060", yaml_with(parallelism_config={"sp_size": 2}), yaml_with(parallelism_config={"parallelism_config_sp_size": 2})),
    ("AC010", ds(zero_stage=4), ds(zero_stage=3)),
    ("AC010", yaml_with(mixed_precision="fp32"), yaml_with(mixed_precision="fp16")),
    ("AC010", ds(gradient_clipping="abc"), ds(gradient_clipping="auto")),
    ("AC010", ds(gradient_accumulation_steps=0), ds(gradient_accumulation_steps="auto")),
    ("AC010", ds(offload_optimizer_device="gpu"), ds(offload_optimizer_device="cpu")),
    ("AC010", ds(zero3_init_flag="maybe"), ds(zero3_init_flag="true")),
    ("AC011", ds(zero_stage=3, offload_param_device="nvme"), ds(zero_stage=3, offload_param_device="cpu")),
    ("AC011", ds(zero_stage=2, offload_optimizer_device="nvme"), ds(zero_stage=2, offload_optimizer_device="cpu")),
    ("AC014", ds(zero_stage=3, zero3_init_flag=False), ds(zero_stage=3, zero3_init_flag=True)),
    ("AC016", ds(zero_stage=2, zero3_save_16bit_model=True), ds(zero_stage=3, zero3_save_16bit_model=True)),
    ("AC016", ds(zero_stage=3, zero3_save_16bit_model=False), ds(zero_stage=2, zero3_save_16bit_model=False)),
    ("AC028", ds(zero_stage=3, deepspeed_moe_layer_cls_names="A, B"), ds(zero_stage=3, deepspeed_moe_layer_cls_names="A,B")),
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


def keys_of(config: dict[str, Any]) -> str:
    """Return the keys that a case has besides the usual ones."""
    names = [*config.get("deepspeed_config", {}), *(name for name in config if name not in BASE and name != "deepspeed_config")]
    return ",".join(names or config)


@pytest.mark.parametrize(("code", "fires", "passes"), CASES, ids=[f"{code}-{keys_of(fires)}" for code, fires, _ in CASES])
def test_rule_triggers_or_just_does_not_and_its_fix_helps(code: str, fires: dict[str, Any], passes: dict[str, Any]) -> None:
    before = check_accelerate(fires)
    fired = [finding for finding in before if finding.code == code]
    assert fired
    assert code not in {finding.code for finding in check_accelerate(passes)}
    for finding in fired:
        if finding.fix and finding.fix.patch:
            after = check_accelerate(patched(fires, finding.fix.patch))
            assert not any((f.code, f.path) == (finding.code, finding.path) for f in after)
            assert not errors(after) - errors(before)


def test_uppercase_device_is_treated_as_accelerate_does() -> None:
    assert not [f for f in check_accelerate(ds(zero_stage=3, offload_param_device="CPU")) if f.severity != "info"]
    assert [f.code for f in check_accelerate(ds(zero_stage=2, offload_param_device="CPU")) if f.severity == "warning"] == ["AC019"]
    assert "AC011" in {f.code for f in check_accelerate(ds(zero_stage=3, offload_optimizer_device="NVMe"))}


def test_invalid_number_of_steps_is_reported_with_its_bound() -> None:
    (found,) = (f for f in check_accelerate(ds(gradient_accumulation_steps=0)) if f.code == "AC010")
    assert "must be a whole number, 1 or more" in found.message and "has to be greater than 0" in found.why


@pytest.mark.parametrize("config", [yaml_with(machine_rank=1), nodes("pdsh", machine_rank=2)], ids=["one machine", "pdsh"])
def test_machine_rank_that_accelerate_ignores_is_no_error(config: dict[str, Any]) -> None:
    """tests/long/test_accelerate_launch.py proves it with accelerate itself."""
    assert [(f.code, f.severity) for f in check_accelerate(config) if f.path == "machine_rank"] == [("AC059", "info")]


def test_every_rule_has_a_case() -> None:
    assert {code for code, *_ in CASES} == set(RULES)


def test_file_is_read_as_accelerate_reads_it_with_lines() -> None:
    found = read_accelerate("distributed_type: DEEPSPEED\nmixed_precision: no\ndeepspeed_config:\n  zero_stage: 2\n")
    assert found.config["mixed_precision"] is False
    assert found.line_of("deepspeed_config.zero_stage") == 4
    assert is_accelerate("compute_environment: X\n") and not is_accelerate("version: 1\njob: {}\n")


def test_two_keys_on_one_line_are_reported() -> None:
    with pytest.raises(ConfigError, match="two keys on one line"):
        read_accelerate("distributed_type: DEEPSPEED\nfsdp_config: {}machine_rank: 0\n")
    for text, words in (("", "empty"), ("- a\n", "not a mapping"), ("a: [1\n", "not YAML")):
        with pytest.raises(ConfigError, match=words):
            read_accelerate(text)


def dstui_check(folder: Path, text: str, **files: str) -> tuple[int, dict[str, list[tuple[str, int | None]]]]:
    """Return the exit status and, for each checked file, the codes with their lines."""
    for name, content in {"acc.yaml": f"distributed_type: DEEPSPEED\nnum_processes: 4\n{text}\n", **files}.items():
        (folder / name.replace("__", ".")).write_text(content)
    done = command.dstui("check", "--json", "acc.yaml", cwd=folder)
    found = {one["file"]: [(d["code"], d["line"]) for d in one["diagnostics"]] for one in json.loads(done.stdout)["files"]}
    return done.returncode, found


def test_json_named_by_a_yaml_is_checked_with_its_own_lines(tmp_path: Path) -> None:
    text = "deepspeed_config: {deepspeed_config_file: ds.json}"
    code, found = dstui_check(
        tmp_path,
        text,
        ds__json='{"train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto",\n"gradient_accumulation_steps": 1,\n"zero_optimization":\n{"stage": 9}}',
    )
    assert code == 1 and found == {"acc.yaml": [], "ds.json": [("DS019", 4)]}


def test_missing_named_file_is_reported(tmp_path: Path) -> None:
    assert dstui_check(tmp_path, "deepspeed_config: {deepspeed_config_file: no.json}") == (1, {"acc.yaml": [("AC026", 3)]})
    two = "num_machines: 2\nmain_process_ip: n1\ndeepspeed_config:\n  deepspeed_multinode_launcher: pdsh\n  deepspeed_hostfile: hosts"
    assert dstui_check(tmp_path, two) == (0, {"acc.yaml": [("AC027", 7)]})
    filtered = f"{two}\n  deepspeed_inclusion_filter: n9"
    code, found = dstui_check(tmp_path, filtered, hosts="n1 slots=2\nn2 slots=2\n")
    assert (code, found) == (1, {"acc.yaml": [("AC030", 8)]})
    assert dstui_check(tmp_path, two, hosts="n1 slots=2\nn2 slots=2\n") == (0, {"acc.yaml": []})


def test_file_flattened_by_a_web_page_is_one_error_with_the_text_as_fix(tmp_path: Path) -> None:
    code, found = dstui_check(tmp_path, "compute\\_environment: LOCAL\\_MACHINE")
    assert (code, found) == (1, {"acc.yaml": [("AC002", 3)]})


def test_accelerate_section_of_a_plan_is_checked_like_the_yaml() -> None:
    plan = load("version: 1\njob: {script: t.py, integration: accelerate}\naccelerate:\n  mixed_precision: fp32\n  zzz: 1\ndeepspeed: {}\n")
    found = {f.code: f for f in check_plan(Target(plan))}
    assert (found["AC010"].path, found["AC010"].line, found["AC004"].path) == ("accelerate.mixed_precision", 4, "accelerate.zzz")
    for code in ("AC010", "AC004"):
        fix = found[code].fix
        assert fix is not None and fix.patch is not None
        plan = plan.patch(fix.patch)
    assert not {"AC010", "AC004"} & {f.code for f in check_plan(Target(plan))}


def test_auto_with_launch_flags_is_resolved_as_by_accelerate() -> None:
    """tests/long/test_accelerate_training.py shows what accelerate makes of them."""
    flags = "{zero_stage: 3, offload_param_device: cpu, zero3_save_16bit_model: true}"
    zero = (
        "{stage: auto, offload_param: {device: auto}, offload_optimizer: {device: auto}, stage3_gather_16bit_weights_on_model_save: auto}"
    )
    plan = load(
        f"version: 1\njob: {{script: t.py, integration: accelerate}}\naccelerate: {{deepspeed_config: {flags}}}\n"
        f"deepspeed: {{train_micro_batch_size_per_gpu: 1, zero_optimization: {zero}}}\n"
    )
    found = {f.path.removeprefix("deepspeed.zero_optimization."): f.message for f in check_plan(Target(plan)) if f.code == "DS331"}
    assert found == {
        "stage": '"auto" becomes 3',
        "offload_param.device": '"auto" becomes cpu',
        "offload_optimizer.device": '"auto" becomes none',
        "stage3_gather_16bit_weights_on_model_save": '"auto" becomes true',
    }


MOE = {"model_type": "mixtral", "num_local_experts": 8, "hidden_size": 32}


@pytest.mark.parametrize(
    ("version", "model", "severity"), [("0.19.8", "mixtral", "info"), ("0.16.9", "mixtral", "warning"), ("0.19.8", "unheard_of", "warning")]
)
def test_moe_at_stage_3_is_checked_for_what_the_release_gathers(version: str, model: str, severity: str) -> None:
    plan = load("version: 1\njob: {script: t.py}\ndeepspeed: {train_batch_size: 2, zero_optimization: {stage: 3}}\n")
    found = [
        f
        for f in check_plan(Target(plan), PlanFacts(configs={"": {**MOE, "model_type": model}}), deepspeed_version=version)
        if f.code == "DS334"
    ]
    assert [f.severity for f in found] == [severity]


def test_value_derived_from_the_model_is_shown_and_an_underivable_one_is_an_error() -> None:
    plan = load(
        "version: 1\njob: {script: t.py, integration: accelerate}\n"
        "deepspeed: {train_micro_batch_size_per_gpu: 1, zero_optimization: {stage: 3, reduce_bucket_size: auto}}\n"
    )
    told = next(f for f in check_plan(Target(plan), PlanFacts(configs={"": {"hidden_size": 32}})) if f.code == "DS306")
    assert told.severity == "info" and told.message.endswith("= 1,024")
    for name in ("n_embd", "d_model", "dim"):  # attribute names of GPT-2, T5 and DistilBERT, which transformers maps to hidden_size
        assert [f.severity for f in check_plan(Target(plan), PlanFacts(configs={"": {name: 32}})) if f.code == "DS306"] == ["info"]
    multimodal = {"text_config": {"hidden_size": 32}}
    assert [f.severity for f in check_plan(Target(plan), PlanFacts(configs={"": multimodal})) if f.code == "DS306"] == ["error"]
    assert [
        f.severity for f in check_plan(Target(plan), PlanFacts(configs={"": multimodal}), integration="trainer") if f.code == "DS306"
    ] == ["info"]
