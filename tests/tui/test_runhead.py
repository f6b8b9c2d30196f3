"""The head of a job: what it shows of a running job, what is dropped on a narrow screen, and the cells of its ranks."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from dstui.jobs.control.launch_record import metrics_of
from dstui.jobs.store.folder import JobFolder
from dstui.jobs.watch.follow import Follower
from dstui.jobs.watch.usage import Usage, summarise_usage
from dstui.plan import load
from dstui.tui.run.rank_cell import cells_of
from dstui.tui.run.run_head import first_facts, fitting, more_facts, spark
from tests.owned import add_to_index
from tests.tui.conftest import Open, attach, screen, text_of, until

LINE = "step {0}/5000 loss {1} lr 1.9e-05 grad_norm 1.25 41.2k tok/s step time: 310 ms reward 2.5\n"
OVERFLOW = "[deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 65536, reducing to 32768\n"


@pytest.fixture
def folder(tmp_path: Path) -> JobFolder:
    """Write a running job with one rank, and hold its lock."""
    folder = add_to_index(JobFolder(tmp_path / "job"))
    folder.prepare(1)
    assert folder.lock() is not None
    folder.launch_file.write_text(json.dumps({"metrics": {"reward": "reward ([0-9.]+)"}}))
    rank = {"host": "here", "pid": 1, "state": "started", "exit_code": None}
    folder.status_file.write_text(
        json.dumps({"state": "running", "started": "2026-01-01T00:00:00+00:00", "attempt": 1, "ranks": {"0": rank}})
    )
    return folder


@pytest.fixture
def follower(folder: JobFolder, monkeypatch: pytest.MonkeyPatch) -> Follower:
    """Return a follower of the job after 100 steps, two per second, two of them lost to overflow."""
    follower, now = Follower(folder), time.monotonic()
    monkeypatch.setattr("dstui.jobs.watch.follow.time.monotonic", lambda: now)
    for step in (10, 50, 100):
        with folder.log(0).open("a") as log:
            log.write(LINE.format(step, 5 - step / 50) + (OVERFLOW if step > 10 else ""))
        follower.poll()
        now += 20 + step / 100
    return follower


def head_lines(follower: Follower, width: int) -> list[str]:
    lines = first_facts(follower, 3.0, "█▁"), more_facts(follower, None)
    return [fitting(facts, width).text for facts in lines]


def test_running_job_shows_progress_and_remaining_time(follower: Follower) -> None:
    first, second = head_lines(follower, 118)
    assert "step 100 / 5,000   loss 3   █▁   ░░░░░░░░░░░░ 2%   ETA 36 min" in first and first.endswith("41.2k tokens/s")
    assert second == "reward 2.5   step time 310 ms   lr 1.9e-05   grad norm 1.25   loss scale 32,768   2 overflows"


def test_step_beyond_the_named_total_keeps_the_bar(folder: JobFolder) -> None:
    folder.log(0).write_text("step 5/5 loss 2.0\nstep 6/5 loss 2.0\n")
    follower = Follower(folder)
    follower.poll()
    assert "step 6 / 5   █" + "█" * 11 + " 100%" in fitting(first_facts(follower, None, ""), 118).text


def test_least_important_parts_are_dropped_on_a_narrow_screen(follower: Follower) -> None:
    first, second = head_lines(follower, 72)
    assert "step 100" in first and "ETA" in first and "tokens/s" not in first and "█" not in first
    assert len(first) <= 72 and len(second) <= 72 and "reward" in second and "overflows" in second


def test_forecast_is_shown_beside_the_measurement(follower: Follower) -> None:
    here = SimpleNamespace(speed=SimpleNamespace(tokens=40_000.0), gpu=SimpleNamespace(bytes=68 << 30), host=SimpleNamespace(bytes=0))
    sampler = SimpleNamespace(latest={0: Usage("GPU", 97, 71 << 30, 612.0, 0)}, note="")
    assert fitting(first_facts(follower, 3.0, "", here), 118).text.endswith("41.2k tokens/s (forecast 40k)")
    assert fitting(more_facts(follower, sampler, here), 118).text.startswith("GPU 97 %  71.0 GB  612 W (forecast 68 GB)")


def test_nan_loss_is_shown_as_such(follower: Follower) -> None:
    assert "loss nan" in fitting(first_facts(follower, float("nan"), ""), 118).text


def test_latest_loss_of_each_model_is_shown(folder: JobFolder) -> None:
    plan = load("version: 1\njob: {script: t.py}\nmodels: {student: {deepspeed: {bf16: {}}}, critic: {deepspeed: {bf16: {}}}}\n")
    folder.launch_file.write_text(json.dumps({"metrics": {**metrics_of(plan), "reward": "reward ([0-9.]+)"}}))
    folder.log(0).write_text("step 3/40 student_loss 2.0712 critic/loss: 1.5e-1 reward 2.5\n")
    follower = Follower(folder)
    follower.poll()
    lines = [fitting(facts, 118).text for facts in (first_facts(follower, None, ""), more_facts(follower, None))]
    assert "step 3 / 40   student loss 2.071   critic loss 0.15" in lines[0] and lines[1] == "reward 2.5"
    folder.log(0).open("a").write("step 4/40 loss 1.0\n")
    follower.poll()
    assert (
        "student" not in fitting(first_facts(follower, 1.0, ""), 118).text
        and "student loss 2.071" in fitting(more_facts(follower, None), 118).text
    )


def test_resource_use_is_in_the_cells_and_summed_in_the_head(follower: Follower) -> None:
    usage = {0: Usage("GPU", 97, 71 << 30, 612.0, 0), 1: Usage("GPU", 91, 70 << 30, 588.0, 1)}
    (cell,) = cells_of(follower.ranks, time.time(), 300.0, usage)
    assert cell.words().startswith("running  step 100  loss 3") and cell.words().endswith("GPU 97 %  71.0 GB  612 W")
    assert summarise_usage(usage.values()) == "2 GPUs 94 %  71.0 GB  1200 W"
    assert summarise_usage([Usage("CPU", 190, 1 << 30), Usage("CPU", 180, 1 << 30)]) == "CPU 370 %  2.0 GB"
    assert (summarise_usage([Usage("GPU", why="NVML is not there")]), str(Usage("GPU", why="NVML is not there"))) == ("", "GPU unknown")


def test_cells_of_ranks_are_aligned(folder: JobFolder) -> None:
    follower = Follower(folder)
    for loss in ("1.3", "1.327", "1.33"):
        folder.log(0).write_text(f"step 7 loss {loss}\n")
        follower = Follower(folder)
        follower.poll()
        (cell,) = cells_of(follower.ranks, time.time() + 20, 300.0)
        assert cell.words().index("  2") == len("running  step 7  loss 1.327")


def test_sparkline_has_the_shape_of_all_values() -> None:
    assert spark([4, 3, 2, 1], 4) == "█▆▃▁"
    assert spark([1, float("nan"), 1], 4) == "▁▁"
    assert spark([0.001, 0.0009999999999999998] * 8, 16) == "▁" * 16, "the mean of equal numbers is not always that number"
    assert (spark([1], 4), len(spark(range(1000), 16))) == ("", 16)


async def test_run_screen_shows_the_head_of_a_job(open_app: Open, folder: JobFolder) -> None:
    folder.log(0).write_text(LINE.format(1, 5) + LINE.format(2, 4))
    async with open_app() as pilot:
        await attach(pilot, folder)
        await until(pilot, lambda: "step 2 / 5,000   loss 4" in text_of(pilot, "#run-head") or "loss █▁ 4" in screen(pilot))
        await until(pilot, lambda: "loss █▁ 4" in screen(pilot))
        assert len(re.findall(r"\bloss\b", text_of(pilot, "#run-head"))) == 1, "what has a sparkline is not repeated"
        assert "reward ▁▁ 2.5" in text_of(pilot, "#run-head")
        folder.append_event(1.0, "notice", text="the disk is slow")
        await until(pilot, lambda: "the disk is slow" in text_of(pilot, "#run-head"))


async def test_compile_of_an_op_is_shown_while_it_lasts(open_app: Open, folder: JobFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dstui.tui.run.job_view.NOTICE_SECONDS", 0.1)
    folder.append_event(1.0, "notice", text="rank 0 is compiling cpu_adam", about="/ext/cpu_adam", lasts=True)
    folder.append_event(1.0, "notice", text="process 7 is compiling shm", about="/ext/shm", lasts=True)
    folder.append_event(1.0, "notice", text="", about="/ext/shm", lasts=False)
    folder.append_event(2.0, "notice", text="the disk is slow")
    async with open_app() as pilot:
        view = await attach(pilot, folder)
        await until(pilot, lambda: view.job is not None and "rank 0 is compiling cpu_adam" in text_of(pilot, "#run-head"))
        folder.append_event(3.0, "notice", text="", about="/ext/cpu_adam", lasts=False)
        await until(pilot, lambda: "compiling" not in text_of(pilot, "#run-head"))


def test_counted_step_is_marked_as_counted(folder: JobFolder) -> None:
    folder.log(0).write_text("{'loss': 2.5, 'reward': 0.5, 'completions/mean_length': 188.5}\n" * 3)
    follower = Follower(folder)
    follower.poll()
    first, second = head_lines(follower, 118)
    assert "loss line 3 (no steps in the log)" in first and "step 3" not in first
    assert second == "reward 0.5   completions/mean length 188.5"
