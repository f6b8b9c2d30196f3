"""Differences between two runs: each is listed once, and equal values are not listed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dstui.documents.plan_files import find_plan, read_plan
from dstui.jobs.store.plan_diff import Change, changes, history, last_run
from dstui.plan import load
from tests.jobs.made import PLAN, dstui, make_job

BASE = load(PLAN)


def test_change_has_its_path_and_both_values() -> None:
    after = BASE.set("deepspeed.zero_optimization.stage", 3).set("deepspeed.gradient_clipping", 1.0).unset("cluster.env")
    assert set(map(str, changes(BASE, after))) == {
        "deepspeed.zero_optimization.stage: 2 → 3",
        "+ deepspeed.gradient_clipping: 1.0",
        '- cluster.env: {"OMP_NUM_THREADS": "1"}',
    }


def test_order_comments_and_spelling_are_no_changes() -> None:
    shuffled = """\
name: tiny
deepspeed:
  zero_optimization: {reduce_bucket_size: 500000000, stage: 2}
  bf16:
    enabled: True
  train_micro_batch_size_per_gpu: 4
cluster: {env: {OMP_NUM_THREADS: "1"}, hosts: {localhost: 2}}
job: {args: ["--deepspeed_config", {ds_config}], script: train.py}
version: 1
"""
    assert changes(BASE, load(shuffled)) == ()


def test_order_of_arguments_is_a_change_and_true_is_not_1() -> None:
    swapped = BASE.set("job.args", ["{ds_config}", "--deepspeed_config"])
    assert [change.path for change in changes(BASE, swapped)] == ["job.args"]
    assert [change.path for change in changes(BASE, BASE.set("deepspeed.bf16.enabled", 1))] == ["deepspeed.bf16.enabled"]


def test_null_differs_from_absent() -> None:
    assert changes(BASE, BASE.set("run.on_end", None)) == (Change("add", "run", after={"on_end": None}),)


values = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.floats() | st.text("ab", max_size=2),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("xyz"), inner, max_size=3),
    max_leaves=8,
)
sections = st.dictionaries(st.sampled_from(["a", "b", "c"]), values, max_size=3)


@given(sections, sections)
def test_changes_lead_from_one_plan_to_the_other(one: dict[str, Any], other: dict[str, Any]) -> None:
    before, after = (load(f"version: 1\njob: {{script: t.py}}\ndeepspeed: {json.dumps(section)}\n") for section in (one, other))
    found = changes(before, after)
    data = json.loads(json.dumps(before.data))
    for change in found:
        *parents, key = change.path.split(".")
        at = data
        for parent in parents:
            at = at[parent]
        if change.op == "remove":
            del at[key]
        else:
            at[key] = change.after
    assert repr(_sorted(data)) == repr(_sorted(json.loads(json.dumps(after.data))))
    assert changes(after, after) == ()
    assert len({change.path for change in found}) == len(found)


def _sorted(value: Any) -> Any:
    """Return a value with sorted keys in which booleans differ from numbers, 1.0 equals 1 and -0.0 equals 0."""
    if isinstance(value, dict):
        return {key: _sorted(value[key]) for key in sorted(value)}
    if isinstance(value, list):
        return [_sorted(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Create three runs of one Plan and one of another."""
    folder = tmp_path / "dstui_runs"
    make_job(folder / "tiny-1", started="2026-01-01T00:00:00.000+00:00")
    make_job(folder / "other-1", PLAN.replace("name: tiny", "name: other"), started="2026-01-02T00:00:00.000+00:00")
    make_job(folder / "tiny-2", PLAN.replace("stage: 2", "stage: 3"), started="2026-01-03T00:00:00.000+00:00")
    make_job(folder / "tiny-3", PLAN.replace("stage: 2", "stage: 3"), started="2026-01-04T00:00:00.000+00:00")
    return tmp_path


def test_runs_diff_says_what_changed(runs: Path) -> None:
    assert dstui("runs", "--diff", "tiny-1", "tiny-2", cwd=runs) == (0, "deepspeed.zero_optimization.stage: 2 → 3\n", "")
    assert dstui("runs", "--diff", "tiny-2", "tiny-3", cwd=runs) == (0, "the same Plan\n", "")
    code, out, _ = dstui("runs", "--diff", "tiny-2", "tiny-1", "--json", cwd=runs)
    change = {"op": "replace", "path": "deepspeed.zero_optimization.stage", "before": 3, "after": 2}
    assert (code, json.loads(out)) == (0, {"version": 1, "changes": [change]})


def test_runs_changes_compares_each_run_with_the_previous_one_of_its_project(runs: Path) -> None:
    code, out, _ = dstui("runs", "--changes", cwd=runs)
    lines = [line.strip() for line in out.splitlines() if line.startswith("    ")]
    assert (code, lines) == (0, ["deepspeed.zero_optimization.stage: 2 → 3", "the same Plan"])
    _, out, _ = dstui("runs", "--changes", "--json", cwd=runs)
    assert [run["changes"] and len(run["changes"]) for run in json.loads(out)["runs"]] == [None, None, 1, []]


def test_runs_of_other_projects_with_an_equal_script_name_are_not_compared(tmp_path: Path) -> None:
    folders = []
    for day, project, stage in ((1, "mine", 1), (2, "theirs", 3), (3, "mine", 2)):
        folder = make_job(
            tmp_path / f"run-{day}", PLAN.replace("stage: 2", f"stage: {stage}"), started=f"2026-01-0{day}T00:00:00.000+00:00"
        )
        folder.launch_file.write_text(json.dumps({"base": f"/home/{project}"}))
        folders.append(folder)
    assert [found and list(map(str, found)) for found in history(folders)] == [
        None,
        None,
        ["deepspeed.zero_optimization.stage: 1 → 2"],
    ]
    found = last_run(load(PLAN, base="/home/theirs"), folders)
    assert found is not None and found[0].name == "run-2"
    assert last_run(load(PLAN, base="/home/nobody"), folders) is None


def test_shipped_plan_belongs_to_the_project_it_was_started_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shipped = find_plan("zero2").parent
    folders = []
    for day, project in ((1, "mine"), (2, "theirs")):
        text = read_plan(find_plan("zero2"), ("name=trial",)).text
        folder = make_job(tmp_path / project / "dstui_runs" / f"trial-{day}", text, started=f"2026-01-0{day}T00:00:00.000+00:00")
        folder.launch_file.write_text(json.dumps({"base": str(shipped)}))
        folders.append(folder)
    assert list(history(folders)) == [None, None], "the same Plan under the same name, in two folders"
    monkeypatch.chdir(tmp_path / "mine")
    found = last_run(read_plan(find_plan("zero2"), ("name=trial",)), folders)
    assert found is not None and found[0].name == "trial-1"


def test_missing_run_exits_with_1_and_broken_plan_with_2(runs: Path) -> None:
    code, _, err = dstui("runs", "--diff", "tiny-1", "nowhere", cwd=runs)
    assert code == 1 and "There is no run called nowhere" in err
    (runs / "dstui_runs" / "tiny-2" / "plan.yaml").write_text("version: 1\njob: {script: [\n")
    code, _, err = dstui("runs", "--diff", "tiny-1", "tiny-2", cwd=runs)
    assert code == 2 and "tiny-2/plan.yaml" in err
    (runs / "dstui_runs" / "tiny-3" / "plan.yaml").unlink()
    code, _, err = dstui("runs", "--diff", "tiny-3", "tiny-1", cwd=runs)
    assert code == 2 and "no such file" in err
    assert dstui("runs", "--changes", cwd=runs)[0] == 0


def test_escape_sequences_of_a_plan_do_not_reach_the_terminal(runs: Path) -> None:
    make_job(runs / "dstui_runs" / "evil", PLAN.replace("train.py", '"\\e[2J\\x9b31m\\u202etrain.py"'))
    _, out, _ = dstui("runs", "--diff", "tiny-1", "evil", cwd=runs)
    assert out.count("\n") == 1 and out.strip().isprintable()
