"""The JSON Schema of a Plan: what dstui takes it takes, and what is mistyped it refuses. Judged by the jsonschema library where it is installed."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest
import yaml

from dstui.documents.plan_files import SHIPPED, find_plan
from dstui.plan import load
from dstui.plan.catalogue import release
from dstui.plan.json_schema import plan_schema
from dstui.plan.load import FIELDS

pytestmark = pytest.mark.xdist_group("schema")
"""A validator of it takes a second to make."""
schema = cache(plan_schema)

WRONG = [
    "{job: {scrip: a}}",
    "{job: {integration: lightning}}",
    "{cluster: {cpu_ranks: 0}}",
    "{cluster: {hosts: {a: 0}}}",
    "{deepspeed: {zero_optimization: {stage: 4}}}",
    "{deepspeed: {zero_optimization: {stge: 3}}}",
    "{deepspeed: {zero_optimization: {offload_optimizer: {device: gpu}}}}",
    "{accelerate: {mixed_precision: fp32}}",
    "{accelerate: {zzz: 1}}",
    "{model: {lora: {rank: 8}}}",
]


def at(path: str) -> dict[str, Any]:
    node = schema()
    for name in path.split("."):
        node = node["properties"][name]
    return node


def test_every_key_of_a_plan_and_of_deepspeed_is_in_it_with_its_help() -> None:
    for path, specs in FIELDS.items():
        for name, spec in specs.items():
            assert at(".".join((*map(str, path), name)))["description"] == spec.metadata["help"]
    for key in release().keys():  # noqa: SIM118
        assert at(f"deepspeed.{key.path}")["description"].startswith(key.help)


def test_a_key_that_may_be_auto_says_so_and_a_section_that_deepspeed_guards_is_closed() -> None:
    assert {"const": "auto"}.items() <= at("deepspeed.zero_optimization.reduce_bucket_size")["anyOf"][-1].items()
    assert at("deepspeed.zero_optimization")["additionalProperties"] is False
    assert "additionalProperties" not in at("deepspeed")


@pytest.fixture(scope="module")
def judge() -> Any:
    library = pytest.importorskip("jsonschema")
    library.Draft202012Validator.check_schema(schema())
    return library.Draft202012Validator(json.loads(json.dumps(schema())))


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_plan_is_right_by_it(name: str, judge: Any) -> None:
    found = json.loads(json.dumps(load(find_plan(name).read_text()).data))
    assert [error.message for error in judge.iter_errors(found)] == []


@pytest.mark.parametrize("text", WRONG)
def test_a_slip_is_wrong_by_it(text: str, judge: Any) -> None:
    assert not judge.is_valid({"version": 1, **yaml.safe_load(text)})
