"""A ds_config.json becomes a Plan that renders the same file."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dstui.adopt.new_plan import plan_of_dsconfig
from dstui.plan import load
from dstui.render.jsontext import json_text

FILE = """\
{
  "train_micro_batch_size_per_gpu": 4,
  "zero_optimization": {
    "stage": 3,
    "reduce_bucket_size": 5e8,
    "offload_optimizer": {
      "device": "cpu"
    }
  },
  "optimizer": {
    "type": "AdamW",
    "params": {
      "lr": 1e-5,
      "betas": [0.9, 0.999],
      "note": "yes: no # 'quoted' \\u00e9"
    }
  },
  "empty": {}
}
"""


def test_configuration_renders_unchanged() -> None:
    plan = load(plan_of_dsconfig(FILE, "conf/ds.json").text)
    assert json_text(plan.deepspeed) == FILE.replace("\\u00e9", "é")
    assert plan.name == "ds"


def test_script_and_arguments_come_from_the_command_line() -> None:
    plan = load(plan_of_dsconfig(FILE, "ds.json", ["train.py", "--deepspeed_config", "ds.json", "--lr", "1e-4", "--flag"]).text)
    assert (plan.job.script, plan.job.args) == ("train.py", ("--deepspeed_config", "{ds_config}", "--lr", "1e-4", "--flag"))


@pytest.mark.parametrize(("text", "integration"), [('{"bf16": {"enabled": "auto"}}', "trainer"), ('{"a": 1, /* hjson */ }', "deepspeed")])
def test_auto_values_imply_the_trainer_and_comments_are_accepted(text: str, integration: str) -> None:
    assert load(plan_of_dsconfig(text, "ds.json").text).job.integration == integration


NAMES = st.sampled_from(["stage", "zero_optimization", "yes", "null", "1", "a b", "x: y", "# z", "\u00e9", "-", "auto"])
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(10**12), 10**12)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text("ab: #'\"{}[]\\-1e\u00e9", max_size=8)
)
JSON = st.dictionaries(
    NAMES,
    st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3), max_leaves=8),
    min_size=1,
    max_size=6,
)


@given(JSON)
@settings(max_examples=150)
def test_any_configuration_renders_unchanged(config: dict[str, object]) -> None:
    again = json_text(load(plan_of_dsconfig(json.dumps(config), "ds.json").text).deepspeed)
    assert json.dumps(json.loads(again)) == json.dumps(config), "same keys in the same order"
