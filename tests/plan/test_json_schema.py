"""The JSON Schema of a Plan accepts what dstui accepts and refuses mistyped values, by the jsonschema library if installed."""

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
"""Creating a validator takes a second."""
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


def test_every_key_is_in_the_schema_with_help() -> None:
    for path, specs in FIELDS.items():
        for name, spec in specs.items():
            assert at(".".join((*map(str, path), name)))["description"] == spec.metadata["help"]
    for key in release().keys():  # noqa: SIM118
        assert at(f"deepspeed.{key.path}")["description"].startswith(key.help)


def test_key_that_may_be_auto_says_so_and_strict_sections_are_closed() -> None:
    assert {"const": "auto"}.items() <= at("deepspeed.zero_optimization.reduce_bucket_size")["anyOf"][-1].items()
    assert at("deepspeed.zero_optimization")["additionalProperties"] is False
    assert "additionalProperties" not in at("deepspeed")


@pytest.fixture(scope="module")
def judge() -> Any:
    library = pytest.importorskip("jsonschema")
    library.Draft202012Validator.check_schema(schema())
    return library.Draft202012Validator(json.loads(json.dumps(schema())))


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_plan_is_valid(name: str, judge: Any) -> None:
    found = json.loads(json.dumps(load(find_plan(name).read_text()).data))
    assert [error.message for error in judge.iter_errors(found)] == []


@pytest.mark.parametrize("text", WRONG)
def test_mistake_is_invalid(text: str, judge: Any) -> None:
    assert not judge.is_valid({"version": 1, **yaml.safe_load(text)})
