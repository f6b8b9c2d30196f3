"""An edit changes only the text of the edited node: comments, order, quotes and layout stay."""

from __future__ import annotations

import difflib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dstui.plan import Plan, PlanError, load
from dstui.tui.session.state import History

COMMENTED = """\
# what this is for
version: 1      # the format
job:
  # the script
  script: "train.py"   # quoted on purpose
  args:
    - --epochs     # how long
    - '3'
    - {ds_config}

# below: DeepSpeed's own names
deepspeed:
  bf16: { enabled: true }    # since A100
  zero_optimization:
    stage: 2   # gradients too

    # offload what is seldom used
    offload_optimizer:
      device: cpu
      pin_memory: true  # needs memlock
  optimizer: {type: AdamW, params: {lr: 1e-4, betas: [0.9, 0.95]}}
  gradient_clipping:
# the end
"""


def changed(before: Plan, after: Plan) -> list[str]:
    """Return the lines that an edit removed (-) and added (+)."""
    lines = difflib.ndiff(before.text.splitlines(), after.text.splitlines())
    return [line for line in lines if line[0] in "+-"]


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        ("deepspeed.zero_optimization.stage", 3, ["-     stage: 2   # gradients too", "+     stage: 3   # gradients too"]),
        ("job.script", "a b.py", ['-   script: "train.py"   # quoted on purpose', '+   script: "a b.py"   # quoted on purpose']),
        ("job.args.1", "it's", ["-     - '3'", "+     - 'it''s'"]),
        ("deepspeed.gradient_clipping", 1.0, ["-   gradient_clipping:", "+   gradient_clipping: 1.0"]),
        ("deepspeed.bf16.enabled", False, ["-   bf16: { enabled: true }    # since A100", "+   bf16: { enabled: false }    # since A100"]),
        ("deepspeed.zero_optimization.offload_optimizer.fast_init", True, ["+       fast_init: true"]),
        ("deepspeed.fp16.loss_scale", 0, ["+   fp16:", "+     loss_scale: 0"]),
        (
            "deepspeed.bf16",
            {"auto_cast": True},
            ["-   bf16: { enabled: true }    # since A100", "+   bf16: {auto_cast: true}    # since A100"],
        ),
        (
            *("deepspeed.zero_optimization.stage", {"a": 1}),
            ["-     stage: 2   # gradients too", "+     stage:   # gradients too", "+       a: 1"],
        ),
        ("name", "on", ['+ name: "on"']),
        ("job.args", ["--epochs", "3", "{ds_config}", "--seed"], ["+     - --seed"]),
        ("job.args", ["--epochs", "{ds_config}"], ["-     - '3'", "-     - {ds_config}", "+     - '{ds_config}'"]),
    ],
)
def test_setting_a_value_changes_only_its_lines(path: str, value: Any, expected: list[str]) -> None:
    plan = load(COMMENTED)
    edited = plan.set(path, value)
    assert changed(plan, edited) == expected
    assert edited.get(path) == value


def test_first_key_of_an_empty_section_gets_a_line() -> None:
    plan = load("version: 1\njob: {}\ndeepspeed: {}\n")
    assert changed(plan, plan.set("deepspeed.train_batch_size", 8)) == ["- deepspeed: {}", "+ deepspeed:", "+   train_batch_size: 8"]


def test_replacing_a_block_of_text_keeps_the_lines_after_it() -> None:
    plan = load("version: 1\nname: |\n  several\n  lines\n\n# the end\ndeepspeed: {}\n")
    assert plan.set("name", "one").text == "version: 1\nname: one\n\n# the end\ndeepspeed: {}\n"


def test_removing_a_key_removes_its_lines_and_keeps_surrounding_comments() -> None:
    plan = load(COMMENTED)
    edited = plan.unset("deepspeed.zero_optimization.offload_optimizer")
    assert changed(plan, edited) == ["-     offload_optimizer:", "-       device: cpu", "-       pin_memory: true  # needs memlock"]


def test_removing_the_last_key_removes_the_deepspeed_section() -> None:
    plan = load(COMMENTED)
    edited = plan.unset("deepspeed.bf16.enabled")
    assert changed(plan, edited) == ["-   bf16: { enabled: true }    # since A100"]


def test_json_patch_is_applied_completely_or_not_at_all() -> None:
    plan = load(COMMENTED)
    edited = plan.patch(
        [
            {"op": "replace", "path": "/deepspeed/zero_optimization/stage", "value": 1},
            {"op": "remove", "path": "/deepspeed/zero_optimization/offload_optimizer"},
            {"op": "add", "path": "/job/args/-", "value": "--last"},
        ]
    )
    assert edited.deepspeed["zero_optimization"] == {"stage": 1}
    assert edited.job.args[-1] == "--last"
    with pytest.raises(PlanError, match="does not exist, so it cannot be removed"):
        plan.patch([{"op": "add", "path": "/name", "value": "x"}, {"op": "remove", "path": "/deepspeed/nothing"}])
    assert plan.text == COMMENTED


def test_renamed_key_keeps_place_comments_and_spelling() -> None:
    plan = load(COMMENTED)
    edited = plan.patch([{"op": "move", "from": "/deepspeed/zero_optimization/stage", "path": "/deepspeed/zero_optimization/stagee"}])
    assert changed(plan, edited) == ["-     stage: 2   # gradients too", "+     stagee: 2   # gradients too"]
    flow = plan.patch([{"op": "move", "from": "/deepspeed/optimizer/params/lr", "path": "/deepspeed/optimizer/params/eps"}])
    assert "params: {eps: 1e-4, betas" in flow.text
    elsewhere = plan.patch([{"op": "move", "from": "/deepspeed/optimizer/params/lr", "path": "/deepspeed/gradient_clipping"}])
    assert elsewhere.get("deepspeed.gradient_clipping") == 1e-4
    with pytest.raises(PlanError, match="does not exist, so it cannot be moved"):
        plan.patch([{"op": "move", "from": "/deepspeed/nothing", "path": "/deepspeed/x"}])


@pytest.mark.parametrize(
    ("there", "key", "value", "then"),
    [
        ("true", "stage", 2, {"stage": 2}),
        ("true", "offload_optimizer.device", "cpu", {"stage": 1, "offload_optimizer": {"device": "cpu"}}),
        ("3  # of old", "stage", 3, {"stage": 3}),
    ],
)
def test_scalar_of_deepspeed_is_replaced_by_a_section(there: str, key: str, value: object, then: object) -> None:
    for before in ("", "models: {a: {deepspeed: {}}}\n"):
        text = f"version: 1\n{before}deepspeed:\n  zero_optimization: {there}\n  bf16: {{enabled: true}}  # kept\n"
        plan = load(text).set(f"deepspeed.zero_optimization.{key}", value)
        assert plan.deepspeed == {"zero_optimization": then, "bf16": {"enabled": True}} and "# kept" in plan.text
    with pytest.raises(PlanError, match="job"):
        load("version: 1\njob: {script: t.py}\n").set("job.script.stage", 2)


def test_missing_list_index_is_refused() -> None:
    for place in ("9", "first", "-1"):
        with pytest.raises(PlanError, match=rf"job\.args has 3 items, so there is no item {place}"):
            load(COMMENTED).patch([{"op": "add", "path": f"/job/args/{place}", "value": "x"}])


def test_value_of_the_wrong_type_is_refused_and_the_plan_unchanged() -> None:
    plan = load(COMMENTED)
    with pytest.raises(PlanError, match="cpu_ranks: expected a whole number"):
        plan.set("cluster.cpu_ranks", "many")
    assert plan.text == COMMENTED


def test_crlf_line_ends_stay() -> None:
    plan = load(COMMENTED.replace("\n", "\r\n")).set("deepspeed.fp16.enabled", False).set("deepspeed.zero_optimization.stage", 1)
    assert plan.text.count("\n") == plan.text.count("\r\n")


def test_undo_and_redo_restore_the_same_bytes() -> None:
    plan = load(COMMENTED)
    history = History(plan)
    history.push(second := plan.set("deepspeed.zero_optimization.stage", 3))
    history.push(third := second.unset("deepspeed.bf16"))
    assert [p and p.text for p in (history.undo(), history.undo(), history.undo())] == [second.text, plan.text, None]
    assert [p and p.text for p in (history.redo(), history.redo(), history.redo())] == [second.text, third.text, None]


# -- property: random edits of random files

WORDS = st.sampled_from(["alpha", "beta", "stage", "lr", "x-1", "a_b", "on", "10", "with space", "é", "- dash", "#hash", "k: v", "'q'", ""])
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-10, 10**10),
    st.floats(allow_nan=False, allow_infinity=False),
    WORDS,
    st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(WORDS.filter(bool), inner, max_size=3)), max_leaves=8
)


@st.composite
def layouts(draw: st.DrawFn, value: Any, indent: int = 2, flow: bool = False) -> str:
    """Draw YAML of a value in a layout that a person might have chosen, with numbered comments."""
    note = draw(st.sampled_from(["", "", "  # note", "   # a: b, 'c' {d}"]))
    if isinstance(value, dict) and value:
        if flow or draw(st.integers(0, 3)) == 0:
            space = draw(st.sampled_from(["", " "]))
            inner = ", ".join([f"{written(k)}: {draw(layouts(v, indent, True))}" for k, v in value.items()])
            return "{" + space + inner + space + "}" + ("" if flow else note)
        lines = []
        for key, item in value.items():
            above = draw(st.sampled_from(["", "", f"{' ' * indent}# above\n", "\n"]))
            body = draw(layouts(item, indent + 2))
            lines.append(f"{above}{' ' * indent}{written(key)}:" + beside_key(body))
        return note + "\n" + "\n".join(lines)
    if isinstance(value, list) and value and not flow and draw(st.booleans()):
        return note + "".join(f"\n{' ' * indent}- {draw(layouts(item, indent + 2, True))}" for item in value)
    if isinstance(value, list):
        return "[" + ", ".join([draw(layouts(item, indent, True)) for item in value]) + "]" + ("" if flow else note)
    return written(value, draw(st.sampled_from(["", '"', "'"]))) + ("" if flow else note)


def beside_key(body: str) -> str:
    return body if body.startswith("\n") else " " + body


def written(value: Any, quote: str = "") -> str:
    from dstui.plan.scalars import yaml_scalar

    return "{}" if value == {} else yaml_scalar(value, quote=quote)


def paths(value: Any, prefix: str = "") -> list[str]:
    """Return JSON pointers to every node below."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    found = []
    for key, item in items:
        here = f"{prefix}/{str(key).replace('~', '~0').replace('/', '~1')}"
        found += [here, *paths(item, here)]
    return found


def comments(text: str) -> int:
    return text.count("# note") + text.count("# a: b, 'c' {d}") + text.count("# above")


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_random_edits_change_their_values_and_keep_the_rest(data: st.DataObject) -> None:
    config = data.draw(st.dictionaries(WORDS.filter(bool), VALUES, min_size=1, max_size=4))
    text = "# head\nversion: 1\njob: {script: a}\ndeepspeed:" + beside_key(data.draw(layouts(config))) + "\n# tail\n"
    plan = load(text)
    assert plan.deepspeed == config
    for _ in range(3):
        before = plan
        there = paths(plan.data["deepspeed"], "/deepspeed")
        where = data.draw(st.sampled_from([*there, "/deepspeed/new"]))
        old, is_there = at(plan.data, where), where in there
        kind = data.draw(st.sampled_from(["scalar", "value", "new", "remove"]))
        if kind == "remove" and is_there:
            plan = plan.patch([{"op": "remove", "path": where}])
        else:
            if kind == "new" and isinstance(old, dict):
                where, is_there = f"{where}/fresh", "fresh" in old
            value = data.draw(VALUES if kind == "value" else SCALARS)
            plan = plan.patch([{"op": "replace" if is_there else "add", "path": where, "value": value}])
        lines = changed(before, plan)
        gone, come = sum(line[0] == "-" for line in lines), sum(line[0] == "+" for line in lines)
        if kind == "remove" and is_there:
            assert come <= 1  # the line that the entry shared with others
        elif not is_there:
            assert gone <= 1  # the line that it shares with others
        elif kind != "value" and not isinstance(old, (dict, list)):
            assert (gone, come) in ((0, 0), (1, 1))
        assert plan.text.startswith("# head\nversion: 1\njob: {script: a}\n")
        assert plan.text.endswith("# tail\n")
        assert comments(plan.text) >= comments(before.text) - gone
        assert load(plan.text).data == plan.data


def at(data: Any, where: str) -> Any:
    for part in where.split("/")[1:]:
        part = part.replace("~1", "/").replace("~0", "~")
        data = data[int(part)] if isinstance(data, list) else data.get(part)
        if data is None:
            return None
    return data
