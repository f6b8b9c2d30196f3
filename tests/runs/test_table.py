"""`dstui runs` as a table: sorted, filtered, in folders of others; and ended runs are read once."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from dstui import __version__
from dstui.jobs.store.folder import JobFolder
from dstui.runs.columns import USUAL, column
from dstui.runs.conditions import chosen, parse, quantity
from dstui.runs.find import find_runs, parse_since
from dstui.runs.kept import FORM, Kept
from dstui.runs.table import cells, cut, fitting, lines
from tests.jobs.made import PLAN, dstui, make_job


def plan(**settings: object) -> str:
    """Return the Plan of a run with its stage and learning rate."""
    text = PLAN.replace("stage: 2", f"stage: {settings.get('stage', 2)}")
    return text + f"  optimizer: {{type: AdamW, params: {{lr: {settings.get('lr', '1e-4')}}}}}\n"


def log(*losses: float) -> dict[int, str]:
    return {0: "".join(f"step {n}/{len(losses)} loss {loss} {1000 * n} tokens/s\n" for n, loss in enumerate(losses, 1))}


def at(minute: int) -> dict[str, str]:
    return {"started": f"2026-01-02T03:{minute:02}:00.000+00:00", "ended": f"2026-01-02T03:{minute:02}:30.000+00:00"}


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """Return a folder with three runs of one project, the last of which failed."""
    runs = tmp_path / "dstui_runs"
    facts = {"launch": json.dumps({"base": str(tmp_path)})}
    make_job(runs / "a", plan(), log(3.0, 2.5), **at(1))
    make_job(runs / "b", plan(stage=3, lr="3e-4"), log(3.0, 1.5), **at(2))
    text = 'Traceback (most recent call last):\n  File "train.py", line 3, in <module>\n    row["labels"]\nKeyError: \'labels\'\n'
    failed = {"ranks": {"0": {"host": "h7", "pid": 1, "state": "ended", "exit_code": 1}}}
    folder = make_job(runs / "c", plan(stage=3, lr="3e-4"), {0: log(3.0)[0] + text}, state="failed", exit_code=1, **failed, **at(3))
    folder.record(0).write_text(json.dumps({"rank": 0, "host": "h7", "pid": 1, "ended": 1767323105.0, "exit_code": 1}))
    for name in "abc":
        (runs / name / "launch.json").write_text(facts["launch"])
    return tmp_path


def names(out: str) -> list[str]:
    """Return the first column of a table, without its title."""
    return [line.split()[0] for line in out.splitlines()[1:]]


def table(here: Path, *words: str) -> str:
    code, out, err = dstui("runs", *words, cwd=here)
    assert (code, err) == (0, ""), err
    return out


def test_table_has_metrics_and_changes_of_each_run(here: Path) -> None:
    out = table(here, "--sort", "loss", "--columns", "name,state,step,loss,speed,took,changed,why")
    assert [line.split()[0] for line in out.splitlines()] == ["name", "b", "a", "c"]
    assert "2/2   1.5" in out and "0:30" in out and "1500" in out
    assert "stage 2 → 3, lr 1e-4 → 3e-4" in out and "the same Plan" in out and "KeyError" in out


def test_what_changed_is_spelled_as_in_the_plans(tmp_path: Path) -> None:
    runs = tmp_path / "dstui_runs"
    make_job(runs / "run-a", plan(lr="4.1e5"), log(1.0), **at(1))
    make_job(runs / "run-b", plan(lr="5e8"), log(1.0), **at(2))
    assert "lr 4.1e5 → 5e8" in table(tmp_path, "--columns", "name,changed")


def test_least_important_columns_are_dropped_first(here: Path) -> None:
    runs = find_runs(Kept(), [here])
    columns = tuple(map(column, USUAL))
    shown = {width: [each.name for each in fitting(cells(runs, columns), columns, width)[1]] for width in (48, 78, 500)}
    assert shown[500] == list(USUAL)
    assert [name for name in USUAL if name in shown[78]] == shown[78], "their order stays"
    assert set(shown[48]) < set(shown[78]) < set(USUAL)
    assert "changed" in shown[48] and not {"changed"} & {each.name for each in fitting(cells(runs, columns), columns, 30)[1]}
    assert {"state", "name", "step", "loss", "speed", "why"} <= set(shown[48])
    texts, left = fitting(cells(runs, columns), columns, 48)
    assert all(len(line) <= 48 for line in lines(texts, left, 48))


def test_long_names_leave_room_for_why() -> None:
    columns = tuple(map(column, ("name", "why")))
    texts = [["name", "why"], ["llama2-7b-sft-20261128-121500", "A GPU ran out of memory"]]
    assert lines(texts, columns, 36)[1] == "llama2…261128-121500  A GPU ran out…"


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("stage=3", "bc"),
        ("stage!=3", "a"),
        ("lr>1e-4 succeeded", "b"),
        ("failed", "c"),
        ("!failed loss<2", "b"),
        ("deepspeed.zero_optimization.stage=2", "a"),
        ("why~labels", "c"),
        ("took>=30s took<1m", "abc"),
        ("bf16.enabled=true", "abc"),
        ("exit=1", "c"),
        ("host=h7", "c"),
    ],
)
def test_all_conditions_must_hold(here: Path, where: str, expected: str) -> None:
    assert "".join(run.name for run in chosen(find_runs(Kept(), [str(here)]), parse(where))) == expected


def test_invalid_condition_is_refused(tmp_path: Path) -> None:
    for where in ("loss<much", "loss<", "'loss"):
        with pytest.raises(ValueError, match="loss"):
            parse(where)
    code, out, err = dstui("runs", "--where", "loss<much", cwd=tmp_path)
    assert (code, out) == (2, "") and err.count("\n") == 1


def test_key_that_no_run_has_is_reported(here: Path) -> None:
    assert "no run has los" in dstui("runs", "--where", "los<2", cwd=here)[2]


def test_missing_value_is_last_in_both_directions(here: Path) -> None:
    (here / "dstui_runs" / "a" / "logs" / "rank_0.log").write_text("nothing\n")
    assert [names(table(here, "--sort", "loss", "--columns", "name", *more)) for more in ([], ["--reverse"])] == [list("bca"), list("cba")]


def test_json_has_values_and_markdown_is_escaped(here: Path) -> None:
    found = json.loads(table(here, "--json", "--columns", "name,loss,stage", "--sort", "name"))["runs"]
    assert [(run["name"], run["loss"], run["stage"]) for run in found] == [("a", 2.5, 2), ("b", 1.5, 3), ("c", 3.0, 3)]
    make_job(here / "dstui_runs" / "x|y", plan(), log(1.0), **at(4))
    assert "| x\\|y |" in table(here, "--markdown", "--columns", "name")


def test_other_folders_are_read_without_writing(here: Path, tmp_path: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in here.rglob("*") if "state" not in path.parts}
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    code, out, _ = dstui("runs", "--in", here, "--columns", "name", cwd=elsewhere)
    assert (code, names(out)) == (0, list("abc"))
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert names(dstui("runs", "--in", here, "--since", "2026-01-02T03:01:30+00:00", "--columns", "name", cwd=elsewhere)[1]) == ["b", "c"]
    assert dstui("runs", "--in", here / "no", cwd=elsewhere)[0] == 2


def test_link_in_a_folder_is_not_followed(here: Path, tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    (shared / "link").symlink_to(here / "dstui_runs")
    assert "there is no run here" in dstui("runs", "--in", shared, cwd=tmp_path)[2]


def test_failures_are_counted_by_cause_host_and_user(here: Path) -> None:
    by = {name: json.loads(table(here, "--by", name, "--json"))["counts"] for name in ("cause", "host", "user")}
    assert [(one["failed"], Path(one["latest"]).name) for one in by["cause"]] == [(1, "c")]
    assert {one["name"]: (one["failed"], one["runs"]) for one in by["host"]} == {"h7": (1, 1), "h1": (0, 2)}
    assert [(one["failed"], one["runs"]) for one in by["user"]] == [(1, 3)]
    assert (
        "h7" in table(here, "--by", "host") and "none of 1 runs failed" in dstui("runs", "--by", "host", "--where", "stage=2", cwd=here)[2]
    )


def test_ended_run_is_read_once_and_again_after_a_change(here: Path) -> None:
    assert names(table(here, "--where", "loss<2", "--columns", "name")) == ["b"]
    folder = JobFolder(here / "dstui_runs" / "b")
    folder.log(0).write_text(log(9.0)[0])
    assert names(table(here, "--where", "loss<2", "--columns", "name")) == ["b"], "from the cache"
    os.utime(folder.status_file, ns=(1, 1))
    assert names(table(here, "--where", "loss<20", "--columns", "name,loss")) == list("abc")
    assert "9" in table(here, "--where", "b", "--columns", "loss")


def test_damaged_cache_is_ignored(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(here / "cache"))
    cache = here / "cache" / "dstui" / "runs.json"
    cache.parent.mkdir(parents=True)
    entry = json.dumps({"by": [__version__, FORM], "runs": {str(here / "dstui_runs" / "b"): {"stamp": 1, "told": 3}}})
    for damage in ("", "{", '{"by": 1}', "[[[[", '{"runs": {"x": 3}}', entry):
        cache.write_text(damage)
        kept = Kept()
        assert [run.name for run in chosen(find_runs(kept, [str(here)]), parse("loss<2"))] == ["b"]
        kept.save()
        assert json.loads(cache.read_text())["by"] == [__version__, FORM] and cache.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    ("text", "number"), [("1e-4", 1e-4), ("90s", 90), ("2h", 7200), ("40GB", 40 * 2**30), ("41k", 41000), ("x", None), ("3x", None)]
)
def test_quantities_have_units(text: str, number: float | None) -> None:
    assert quantity(text) == number


def test_since_is_an_age_or_a_day() -> None:
    assert parse_since("7d", 1e9) == 1e9 - 7 * 86400
    assert parse_since("1970-01-02T00:00:00+00:00", 0) == 86400
    with pytest.raises(ValueError, match="not a time"):
        parse_since("soon", 0)


def test_numbers_keep_their_digits_where_there_is_no_room() -> None:
    columns = [column("state"), column("name"), column("speed"), column("why")]
    texts = [
        ["state", "name", "speed", "why"],
        ["✖ failed 1", "quickstart-20261128-090815", "200 samples/s", "The program raised an exception"],
    ]
    assert re.fullmatch(r"✖ failed 1  qui\w*….*15  200 samples/s  The p.*…", lines(texts, columns, 52)[1])


@pytest.mark.parametrize(
    ("text", "width", "shown"),
    [
        ("quickstart-20261128-090815", 18, "quick…61128-090815"),
        ("optimizer.params.weight_decay", 18, "optim…weight_decay"),
        ("名前-20261128", 9, "名…261128"),
        ("short", 18, "short"),
    ],
)
def test_cut_name_keeps_both_ends(text: str, width: int, shown: str) -> None:
    assert cut(text, width, "ends") == shown


@pytest.mark.parametrize(
    ("width", "shown"),
    [
        (60, "train_micro_batch_size_per_gpu 8 → 16, lr 3e-3 → 1e-2"),
        (40, "train_micro_batch_size_per_gpu 8 → 16, …"),
        (30, "…_batch_size_per_gpu 8 → 16, …"),
        (8, "… 8 → 16"),
    ],
)
def test_cut_change_keeps_its_values(width: int, shown: str) -> None:
    text = "train_micro_batch_size_per_gpu 8 → 16, lr 3e-3 → 1e-2"
    assert cut(text, width, "value") == shown
