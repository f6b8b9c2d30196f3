"""The metrics of a run as a table, with each number of each log once."""

from __future__ import annotations

import csv
import io
import json
import os
import random
from pathlib import Path

from dstui.jobs.metrics.export import export, metrics
from dstui.jobs.metrics.measurements import Measure, RankView
from dstui.jobs.store.folder import JobFolder
from dstui.jobs.watch.follow import Follower
from dstui.jobs.watch.summary import summary
from tests.jobs.made import dstui, make_job

LOGS = {
    0: "starting\nstep 1 loss 2.5 lr 1e-3\n  0%| | 0/2\r 50%|# | 1/2\nstep=2, loss=nan\n{'loss': 1.5, 'step': 3}",
    1: "step 1 loss 2.25\n",
    10: "loss 7\nloss 6\n",
}


def table(folder: JobFolder, *only: int) -> list[tuple[str, ...]]:
    out = io.StringIO()
    count = export(folder, "csv", out, only)
    header, *rows = csv.reader(io.StringIO(out.getvalue()))
    assert header == ["step", "rank", "name", "value", "attempt", "source"] and len(rows) == count
    assert {row[5] for row in rows} <= {"log"}
    return [tuple(row[:5]) for row in rows]


def test_every_number_of_every_rank_is_a_row(tmp_path: Path) -> None:
    rows = table(make_job(tmp_path / "job", logs=LOGS))
    losses = [row for row in rows if row[2] == "loss"]
    assert losses == [
        *(("1", "0", "loss", "2.5", "1"), ("2", "0", "loss", "nan", "1"), ("3", "0", "loss", "1.5", "1")),
        ("1", "1", "loss", "2.25", "1"),
        *(("1", "10", "loss", "7.0", "1"), ("2", "10", "loss", "6.0", "1")),  # lines without a step are counted
    ]
    assert ("1", "0", "lr", "0.001", "1") in rows


def test_ranks_can_be_chosen(tmp_path: Path) -> None:
    assert {row[1] for row in table(make_job(tmp_path / "job", logs=LOGS), 1, 10)} == {"1", "10"}


def test_every_attempt_is_in_the_table(tmp_path: Path) -> None:
    folder = make_job(tmp_path / "job", logs=LOGS, attempt=10)
    for attempt in (2, 10):
        folder.prepare(attempt)
        folder.log(0, attempt).write_text("step 1 loss 9\n")
    assert [row[4] for row in table(folder, 0) if row[2:4] == ("loss", "9.0")] == ["2", "10"]


def test_json_is_valid_and_has_null_for_nan(tmp_path: Path) -> None:
    out = io.StringIO()
    export(make_job(tmp_path / "job", logs=LOGS), "json", out)
    found = json.loads(out.getvalue(), parse_constant=lambda word: 1 / 0)
    assert (found["version"], found["run"]) == (1, "job")
    assert {"step": 2, "rank": 0, "name": "loss", "value": None, "attempt": 1, "source": "log", "steps": None, "counted": False} in found[
        "metrics"
    ]
    assert {"step": 2, "rank": 10, "name": "loss", "value": 6.0, "attempt": 1, "source": "log", "steps": None, "counted": True} in found[
        "metrics"
    ]


def test_folder_without_logs_gives_an_empty_table(tmp_path: Path) -> None:
    assert table(JobFolder(tmp_path / "nothing")) == []
    out = io.StringIO()
    assert export(JobFolder(tmp_path / "nothing"), "json", out) == 0 and json.loads(out.getvalue())["metrics"] == []


def test_garbage_in_logs_is_ignored(tmp_path: Path) -> None:
    folder = make_job(tmp_path / "job", logs={0: "step 1 loss 2\n"})
    folder.log(1).write_bytes(os.urandom(300_000) + b"\nstep 5 loss 4\n")
    os.mkfifo(folder.log(2))
    (folder.log(3).parent / "rank_x.log").write_text("loss 1\n")
    folder.log(4).mkdir()
    assert {(metric.rank, metric.value) for _, metric in metrics(folder) if metric.name == "loss"} >= {(0, 2.0), (1, 4.0)}


def test_command_prints_the_table(tmp_path: Path) -> None:
    make_job(tmp_path / "job", logs=LOGS)
    code, out, err = dstui("logs", "job", "--metrics", "csv", "--rank", 1, cwd=tmp_path)
    assert (code, out, err) == (0, "step,rank,name,value,attempt,source\n1,1,loss,2.25,1,log\n", "")
    code, out, _ = dstui("logs", "job", "--metrics", "json", cwd=tmp_path)
    assert code == 0 and len(json.loads(out)["metrics"]) >= 7
    code, _, err = dstui("logs", "job", "--metrics", "csv", "--follow", cwd=tmp_path)
    assert code == 2 and "combined with --rank" in err
    make_job(tmp_path / "mute", logs={0: "hello\n"})
    code, out, err = dstui("logs", "mute", "--metrics", "csv", cwd=tmp_path)
    assert (code, out) == (0, "step,rank,name,value,attempt,source\n") and "no known metrics" in err


def test_trainer_numbers_get_the_step_of_the_bar_they_overwrite(tmp_path: Path) -> None:
    bar = "\r{0:3}%|###       | {0}/100 [00:{0:02}<01:00,  1.00it/s]"
    said = "".join(
        bar.format(n) + "\r" + " " * 40 + f"\r{{'loss': {3 - n / 50}, 'learning_rate': 1e-05}}\n" + bar.format(n) for n in (10, 20)
    )
    evaluation = (
        "\r  0%|          | 0/500 [00:00<?, ?it/s]\r 50%|#####     | 250/500 [00:03<00:03, 80.00it/s]\r"
        + " " * 40
        + "\r{'eval_loss': 2.5}\n"
    )
    rows = table(make_job(tmp_path / "job", logs={0: bar.format(0) + said + evaluation}))
    assert [row[0] for row in rows if row[2] == "loss"] == ["10", "20"]
    assert [row[0] for row in rows if row[2] == "eval_loss"] == ["20"], "an evaluation has a bar of its own, which is not the training's"


def test_patterns_of_the_plan_are_in_the_table(tmp_path: Path) -> None:
    folder = make_job(tmp_path / "job", logs={0: "step 4 Reward = -1.5\nstep 5 Reward = none\nstep 6 Reward = 2,000\n"})
    folder.launch_file.write_text(json.dumps({"metrics": {"reward": "Reward = (\\S+)", "broken": "("}}))
    assert [row[:4] for row in table(folder)] == [("4", "0", "reward", "-1.5"), ("6", "0", "reward", "2000.0")]


def test_slow_pattern_is_given_up_and_the_rest_continues(tmp_path: Path) -> None:
    folder = make_job(tmp_path / "job", logs={0: "step 1 loss 2\n"})
    metrics = {"slow": "[ab]*a[ab]{900}(c)", "mine": "loss ([0-9])", "\x1b[2J": "(a)", "endless": "(?=(a+)+)(b)"}
    folder.launch_file.write_text(json.dumps({"metrics": metrics}))
    measure = Measure.of(folder)
    lines = ["".join(random.Random(n).choices("ab", k=1000)) for n in range(400)]
    found = [metric.name for n in range(400) for line in (lines[n], "step 1 loss 2") for metric in measure(RankView(""), n, line)]
    assert found == ["loss", "mine"] * 400
    notices = measure.notices()
    assert [note.split(" took")[0].split(":")[0] for note in notices] == [
        *("run.metrics. is not used", "run.metrics.endless is not used", "run.metrics.slow"),
    ], "each is reported once"
    assert measure.notices() == []


def test_summary_has_the_last_value_of_every_metric(tmp_path: Path) -> None:
    text = "step 3 loss 0.5 lr 1e-05 eval_loss 0.75 Reward = 7 120 tok/s\nstep 4 step time: 310 ms MemAllocated=0.5GB\n"
    folder = make_job(tmp_path / "job", logs={0: text, 1: "lr 9\n"})
    folder.launch_file.write_text(json.dumps({"metrics": {"reward": "Reward = (\\S+)"}}))
    follower = Follower(folder)
    while follower.poll():
        pass
    lines = summary(follower).splitlines()
    assert "last loss 0.5 at step 4  120.0 tokens/s" in lines[0]
    assert lines[1] == "last values: lr 1e-05, step_time 310 ms, eval_loss 0.75, memory 0.5 GB, reward 7"
