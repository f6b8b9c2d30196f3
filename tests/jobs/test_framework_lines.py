"""Output of training programs as a user sees it: by following a job, and as a table."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from dstui.jobs.metrics.measurements import Measure, RankView
from dstui.jobs.watch.follow import Follower
from tests.jobs.framework_lines import NONE, PROGRAMS
from tests.jobs.made import dstui, make_job

ABOUT = {"rel": 1e-6}
NO_STEP = ("TRL SFT", "TRL DPO", "TRL GRPO", "TRL PPO", "axolotl", "LLaMA-Factory", "accelerate")
"""Programs whose lines in the table name no step."""


def read(view: RankView) -> dict[str, float]:
    """Return what is known of a rank: its numbers, its step and the total."""
    places = {"step": view.step, "steps": view.steps}
    return {**view.metrics, **{name: value for name, value in places.items() if value is not None}}


def followed(folder: Path) -> list[dict[str, float]]:
    """Return the numbers of each program, which is one rank of a job."""
    follower = Follower(make_job(folder, logs={rank: "\n".join(program.lines) + "\n" for rank, program in enumerate(PROGRAMS)}))
    while follower.poll():
        pass
    return [read(view) for _, view in sorted(follower.ranks.items())]


def test_numbers_of_every_program_are_read(tmp_path: Path) -> None:
    missing = []
    for program, found in zip(PROGRAMS, followed(tmp_path / "job"), strict=True):
        wrong = {name: found.get(name) for name, value in program.wanted.items() if found.get(name) != pytest.approx(value, **ABOUT)}
        missing += [f"{program.name}: {name} {value} is not {program.wanted[name]}" for name, value in wrong.items()]
    count = sum(len(program.wanted) for program in PROGRAMS)
    print(f"{count - len(missing)} of {count} numbers of {len(PROGRAMS)} programs")
    assert not missing, "\n".join(missing)


@pytest.mark.parametrize("line", NONE)
def test_lines_that_look_like_measurements_give_no_numbers(line: str) -> None:
    assert Measure()(RankView("h"), 0, line) == []


def test_table_has_totals_and_says_which_steps_are_counted(tmp_path: Path) -> None:
    logs = {0: "Epoch 0:  10%|# | 10/100 [00:01<00:10,  9.90it/s, train_loss=2.5]\n", 1: "{'loss': 2.5, 'reward': 0.5}\n"}
    make_job(tmp_path / "job", logs=logs)
    code, text, _ = dstui("logs", tmp_path / "job", "--metrics", "json", cwd=tmp_path)
    found = json.loads(text)
    rows = {(row["rank"], row["name"]): row for row in found["metrics"]}
    assert (code, found["steps"]) == (0, 100)
    assert [rows[0, "loss"][name] for name in ("step", "steps", "counted")] == [10, 100, False]
    assert [rows[1, "reward"][name] for name in ("step", "steps", "counted")] == [1, None, True]


def measured(*lines: str) -> RankView:
    """Return a rank that has written these lines."""
    view, measure = RankView("h"), Measure()
    for line in lines:
        measure(view, 0, line)
    return view


def test_steps_do_not_restart_with_each_epoch() -> None:
    bars = [f"Epoch {epoch}:  50%|#    | 5/10 [00:01<00:01,  5.0it/s, loss=2.0]" for epoch in (0, 1, 2)]
    assert (measured(*bars).step, measured(*bars).steps) == (25, 30)
    headers = [f"Train: data epoch: [{epoch}]  [ 5/10]  lr: 0.1  loss: 2.0" for epoch in (3, 4)]
    assert (measured(*headers).step, measured(*headers).steps) == (15, 20)


def test_named_loss_is_the_training_loss_only_without_a_plain_one() -> None:
    assert measured("step 1 lm_loss: 2.5").loss == 2.5
    assert measured("step 1 loss: 2.5 aux_loss: 0.1", "step 1 mlm_loss: 0.1").loss == 2.5
    evaluated = measured("step 1 aux_loss: 0.1 val/loss: 0.2")
    assert evaluated.loss is None and evaluated.metrics["eval_loss"] == 0.2


def test_number_of_series_and_names_is_limited() -> None:
    view = measured(
        *(f"{{'loss': 1.0, 'a{number}': 1.0}}" for number in range(2000)), "{'loss': 1.0, '\\x1b[31m<x> " + "y" * 70 + "': 2.0}"
    )
    assert len(view.metrics) <= 512
    named = measured("{'loss': 1.0, 'm <x> \u202e" + "y" * 70 + "': 2.0}").metrics
    assert all(name.isascii() and name.isprintable() and " " not in name and len(name) <= 40 for name in named) and len(named) == 2


@pytest.mark.parametrize(
    "line", ["━ train" + " " * 1990, "train " + "━ " * 990, "loss " + "a/" * 900, "{" + "'a': 1," * 900, "step:1 - " + "a:1 - " * 900]
)
def test_no_line_takes_long(line: str) -> None:
    then = time.thread_time()
    measured(line)
    assert time.thread_time() - then < 0.5
