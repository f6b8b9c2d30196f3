"""Comparison of runs: differences of their Plans, results of each metric, and the best run."""

from __future__ import annotations

import json
from pathlib import Path

from tests.jobs.made import dstui, make_job
from tests.runs.test_table import at, log, plan


def test_comparison_shows_differences_and_the_best_run(tmp_path: Path) -> None:
    runs = tmp_path / "dstui_runs"
    make_job(runs / "run-a", plan(), log(3.0, 1.0, 2.5), **at(1))
    make_job(runs / "run-b", plan(stage=3), log(3.0, 2.0, 1.5), **at(2))
    code, out, err = dstui("runs", "--compare", "run-a", "run-b", "--json", cwd=tmp_path)
    assert (code, err) == (0, "")
    found = json.loads(out)
    rows = {row["name"]: (row["values"], row["best"]) for row in found["rows"]}
    assert found["runs"] == ["a", "b"]
    assert [row["name"] for row in found["rows"] if row["section"] == "plan"] == ["zero_optimization.stage"]
    assert rows["zero_optimization.stage"] == ([2, 3], None)
    assert rows["loss"] == ([2.5, 1.5], 1) and rows["loss, best"] == ([1.0, 1.5], 0)
    assert rows["tokens/s, median"] == ([2000, 2000], None) and rows["took"] == ([30.0, 30.0], None)
    out = dstui("runs", "--compare", "run-a", "run-b", "--markdown", cwd=tmp_path)[1]
    assert out.startswith("|  | a | b |\n| --- | --- | --- |\n") and "| loss, best | **1 at 2** | 1.5 at 3 |" in out
    assert "★ 1.5" in dstui("runs", "--compare", "run-a", "run-b", cwd=tmp_path)[1]


def test_only_different_arguments_are_shown(tmp_path: Path) -> None:
    runs = tmp_path / "dstui_runs"
    for name, steps in (("a", 40), ("b", 100)):
        make_job(runs / name, plan().replace("args: [", f'args: [--seed, "1", --steps, "{steps}", '), log(1.0))
    out = dstui("runs", "--compare", "a", "b", cwd=tmp_path)[1]
    line = next(line for line in out.splitlines() if line.startswith("job.args"))
    assert line.split() == ["job.args", "--steps", "40", "--steps", "100"]
    make_job(runs / "c", plan().replace("args: [", 'args: [--seed, "1", '), log(1.0))
    out = dstui("runs", "--compare", "a", "c", cwd=tmp_path)[1]
    assert next(line for line in out.splitlines() if line.startswith("job.args")).split() == ["job.args", "--steps", "40", "–"]


def test_numbers_are_spelled_as_in_the_plans(tmp_path: Path) -> None:
    runs = tmp_path / "dstui_runs"
    for name, lr in (("a", "4.1e5"), ("b", "0.00050"), ("c", "3e-4")):
        make_job(runs / name, plan(lr=lr), log(1.0))
    out = dstui("runs", "--compare", "a", "b", "c", cwd=tmp_path)[1]
    line = next(line for line in out.splitlines() if line.startswith("optimizer.params.lr"))
    assert line.split() == ["optimizer.params.lr", "4.1e5", "0.00050", "3e-4"]


def test_run_that_ends_with_nan_has_no_loss_and_is_never_the_best(tmp_path: Path) -> None:
    runs = tmp_path / "dstui_runs"
    make_job(runs / "bad", plan(), {0: "step 1 loss 0.5\nstep 2 loss nan\nstep 3 loss nan\n"})
    make_job(runs / "good", plan(), {0: "step 1 loss 2.5\nstep 2 loss 1.5\n"})
    make_job(runs / "slow", plan(), {0: "step 1 loss 2.5\nstep 2 loss 2.0\n"})
    rows = {row["name"]: row for row in json.loads(dstui("runs", "--compare", "bad", "good", "slow", "--json", cwd=tmp_path)[1])["rows"]}
    assert (rows["loss"]["values"], rows["loss"]["best"]) == ([None, 1.5, 2.0], 1)
    line = next(line for line in dstui("runs", "--compare", "bad", "good", cwd=tmp_path)[1].splitlines() if line.startswith("loss "))
    assert line.split()[1] == "nan"


def test_nan_values_and_missing_runs(tmp_path: Path) -> None:
    runs = tmp_path / "dstui_runs"
    make_job(runs / "a", plan(), {0: "step 1 loss nan\n"})
    make_job(runs / "b", "no: [plan", {0: ""})
    code, out, err = dstui("runs", "--compare", "a", "b", "--json", cwd=tmp_path)
    assert (code, err) == (0, "") and "NaN" not in out and json.loads(out)["version"] == 1
    assert dstui("runs", "--compare", "a", "zzz", cwd=tmp_path)[0] == 1
    assert dstui("runs", "--compare", "a", "a", cwd=tmp_path)[0] == 2


def test_memory_of_ranks_on_the_cpu_is_beside_the_forecast(tmp_path: Path) -> None:
    for name, scale in (("a", 1.25), ("b", None)):
        folder = make_job(tmp_path / "dstui_runs" / name, plan(), log(1.0))
        taken = {"version": 1, "run": name, "node_bytes": 1 << 30, "memory_scale": scale}
        (folder.path / "measured.json").write_text(json.dumps(taken))
    out = dstui("runs", "--compare", "a", "b", cwd=tmp_path)[1]
    line = next(line for line in out.splitlines() if line.startswith("RAM of a node"))
    assert line.split("  ")[-2:] == ["1 GB (+25%)", "1 GB"]
