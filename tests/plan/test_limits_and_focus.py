"""Depth limits of a YAML tree, messages of rare YAML errors, and the model section of a Plan focused on one of its models."""

from __future__ import annotations

import pytest
import yaml

from dstui.base.limits import MAX_DEPTH
from dstui.plan import PlanError, load
from dstui.plan.document import DocumentError, walk_nodes

SEVERAL = """\
version: 1
job: {script: t.py}
model: {source: ./base, sequence_length: 512}
models:
  a: {role: train, model: {sequence_length: 128}, deepspeed: {train_micro_batch_size_per_gpu: 1}}
  b: {role: train, model: {params: 1e9}, deepspeed: {train_micro_batch_size_per_gpu: 1}}
"""


@pytest.mark.parametrize("opening, closing", [("[", "]"), ("{a: ", "}")])
def test_tree_is_walked_to_the_depth_limit(opening: str, closing: str) -> None:
    def count(depth: int) -> int:
        return len(list(walk_nodes(yaml.compose(opening * depth + "1" + closing * depth))))

    assert count(MAX_DEPTH - 2) > MAX_DEPTH - 2
    with pytest.raises(DocumentError):
        count(MAX_DEPTH + 2)


def test_other_yaml_errors_keep_their_text_and_context() -> None:
    with pytest.raises(PlanError, match=r"did not find expected .* \(while parsing a flow sequence\)"):
        load("version: 1\njob: {args: [a b: c: d}\n")


def test_focused_model_overrides_only_what_its_section_sets() -> None:
    plan = load(SEVERAL)
    a, b = plan.focused_on("a").model, plan.focused_on("b").model
    assert a and (a.source, a.sequence_length) == ("./base", 128)
    assert b and (b.source, b.params, b.sequence_length) == (None, 1e9, 512)
