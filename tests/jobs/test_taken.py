"""The measured resource use of a run is kept, and corrects the next forecast of the same model on the same machine."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from dstui.facts.measured import KEPT_RUNS, Taken, model_key, read_measured, remember
from dstui.forecast.findings import findings_of
from dstui.forecast.forecast import forecast
from dstui.forecast.recommend import recommend
from dstui.jobs.control.start import start
from dstui.jobs.store.folder import JobFolder
from dstui.jobs.watch.taken import keep, kept
from dstui.machine.snapshot import Machine
from dstui.plan import Plan, load
from dstui.render.target import Target
from tests.forecast.targets import EIGHT_H100, FOUR_A100, NO_GPU, facts, plan
from tests.jobs.made import make_job
from tests.waiting import wait_for

SEVEN = plan(stage=2, micro=2, model__activation_checkpointing=True)


@pytest.fixture(autouse=True)
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def ended(path: Path, given: Plan, machine: Machine, *, log: str = "", rss: int = 0, **usage: int) -> JobFolder:
    """Write an ended run: the output and memory of its ranks, and what NVML showed of the GPUs."""
    folder = make_job(path, logs={0: log, 1: log})
    (folder.path / "plan.yaml").write_text(given.text)
    (folder.path / "machine.json").write_text(json.dumps(machine.to_json()))
    for rank in (0, 1):
        record = {"rank": rank, "host": "here", "pid": 10 + rank, "exit_code": 0, **({"max_rss": rss} if rss else {})}
        folder.record(rank).write_text(json.dumps(record))
    if usage:
        (folder.path / "usage.json").write_text(json.dumps({name.removeprefix("gpu"): most for name, most in usage.items()}))
    return folder


def test_memory_and_step_time_are_kept_and_correct_the_next_forecast(tmp_path: Path) -> None:
    before = forecast(SEVEN, facts(), EIGHT_H100)
    assert before.gpu.bytes and before.shown and before.speed
    steps = "".join(f"step {number} step_time: {before.speed.step * 1.25:.4f}\n" for number in range(1, 30))
    folder = ended(tmp_path / "job", SEVEN, EIGHT_H100, log=steps, gpu0=int(before.shown * 1.1), gpu1=int(before.shown))
    taken = keep(folder)
    assert taken == kept(folder)
    assert taken is not None
    assert (taken.memory_scale, taken.step_scale) == (pytest.approx(1.1, abs=1e-6), pytest.approx(1.25, rel=1e-3))
    measured = read_measured(model_key(SEVEN))
    assert measured.runs(EIGHT_H100) == [taken]
    other = plan(stage=3, micro=4, model__activation_checkpointing=True)
    assert model_key(other) == model_key(SEVEN)
    plain, learnt = forecast(other, facts(), EIGHT_H100), forecast(other, facts(), EIGHT_H100, measured=measured.of(EIGHT_H100))
    assert plain.gpu.bytes and learnt.gpu.bytes and plain.speed and learnt.speed
    assert learnt.gpu.bytes / plain.gpu.bytes == pytest.approx(1.1, rel=1e-3)
    assert sum(learnt.gpu.parts.values()) == pytest.approx(learnt.gpu.bytes, abs=2)
    assert plain.speed.tokens / learnt.speed.tokens == pytest.approx(1.25, rel=1e-3)
    assert learnt.gpu.range[0] < learnt.gpu.bytes < learnt.gpu.range[1]
    assert measured.of(FOUR_A100) == {}


@pytest.mark.parametrize("log", ["", "step 1 loss 2.5\n"])
def test_memory_of_a_run_without_a_step_corrects_nothing(log: str, tmp_path: Path) -> None:
    folder = ended(tmp_path / "job", SEVEN, EIGHT_H100, log=log, rss=1 << 30, gpu0=1 << 30)
    folder.write_status(replace(folder.read_status(), state="failed", exit_code=1))
    taken = keep(folder)
    assert taken is not None and taken.gpu_bytes == 1 << 30
    corrected = read_measured(model_key(SEVEN)).of(EIGHT_H100)
    assert ("memory_scale" in corrected, "host_scale" in corrected, corrected.get("settings", []) != []) == ((bool(log),) * 3)


def test_memory_used_by_others_at_launch_is_subtracted(tmp_path: Path) -> None:
    busy = replace(EIGHT_H100, gpus=tuple(replace(gpu, memory_used=5 << 30) for gpu in EIGHT_H100.gpus))
    taken = keep(ended(tmp_path / "job", SEVEN, busy, gpu3=40 << 30))
    assert taken is not None
    assert taken.gpu_bytes == 35 << 30


def test_cpu_ranks_are_measured_by_the_kernel(tmp_path: Path) -> None:
    small = plan(stage=2, model="gpt2", sequence=128)
    taken = keep(ended(tmp_path / "job", small, NO_GPU, rss=3 << 30))
    assert taken is not None
    assert (taken.node_bytes, taken.gpu_bytes, taken.step_seconds) == (6 << 30, None, None)
    assert "6 GB of the RAM of a node" in str(taken)


def test_recommended_plans_and_fixes_fit_by_measured_values() -> None:
    given = plan(stage=0, micro=8, sequence=4096)
    for scale in (1.0, 1.5):
        ranked = recommend(given, facts(), EIGHT_H100, measured={"memory_scale": scale})
        assert {row.verdict for row in ranked.rows} <= {"fits", "tight"}
        found = next(f for f in findings_of(given, facts(), EIGHT_H100, measured={"memory_scale": scale}) if f.code == "FC001")
        assert found.fix is not None
        assert found.fix.patch is not None
        assert forecast(given.patch(found.fix.patch), facts(), EIGHT_H100, measured={"memory_scale": scale}).fits


def test_measurement_far_off_corrects_and_is_reported(tmp_path: Path) -> None:
    before = forecast(SEVEN, facts(), EIGHT_H100)
    assert before.gpu.bytes and before.shown
    taken = keep(ended(tmp_path / "job", SEVEN, EIGHT_H100, gpu0=before.shown // 4))
    assert taken is not None
    assert "-75% of the forecast" in str(taken)
    after = forecast(SEVEN, facts(), EIGHT_H100, measured=read_measured(model_key(SEVEN)).of(EIGHT_H100))
    assert after.gpu.bytes == pytest.approx(before.gpu.bytes / 4, rel=1e-6)
    assert after.shown == pytest.approx(before.shown / 4, rel=1e-6)
    assert any("0.25 times the memory of the forecast" in sentence for sentence in after.unknown)
    assert "corrected by 1 run here: memory -75%" in after.corrected


def test_correction_is_per_part_and_wider_for_settings_that_did_not_run() -> None:
    settings = forecast(SEVEN, facts(), EIGHT_H100).setup
    assert settings
    for number, (memory, step) in enumerate(((0.85, 1.2), (0.88, 1.3), (0.91, 1.1))):
        run = Taken(run=f"r{number}", memory_scale=memory, step_scale=step, host_scale=1.5, step_seconds=2.0, settings=settings.settings)
        remember(SEVEN, EIGHT_H100, run)
    measured = read_measured(model_key(SEVEN)).of(EIGHT_H100)
    plain, learnt = forecast(SEVEN, facts(), EIGHT_H100), forecast(SEVEN, facts(), EIGHT_H100, measured=measured)
    assert learnt.corrected.startswith("corrected by 3 runs here: memory -12% (they differ by 3%), RAM +50%, time of a step +20%")
    assert plain.gpu.bytes and plain.host.bytes and plain.speed and learnt.speed
    assert learnt.gpu.bytes == pytest.approx(0.88 * plain.gpu.bytes, rel=1e-6)
    assert learnt.host.bytes == pytest.approx(1.5 * plain.host.bytes, rel=1e-6)
    assert learnt.speed.step == pytest.approx(1.2 * plain.speed.step)
    other = plan(stage=2, micro=4, model__activation_checkpointing=True)
    wider = forecast(other, facts(), EIGHT_H100, measured=measured)
    assert wider.gpu.bytes and learnt.gpu.bytes
    assert wider.gpu.range[1] / wider.gpu.bytes > learnt.gpu.range[1] / learnt.gpu.bytes


@pytest.mark.parametrize("figures", ["0.1.0/1", None])
def test_ratio_of_another_release_of_the_forecast_corrects_nothing(figures: str | None, tmp_path: Path) -> None:
    remember(SEVEN, EIGHT_H100, Taken(run="r", gpu_bytes=60 << 30, memory_scale=0.2, figures=figures or ""))
    if figures is None:
        (file,) = (tmp_path / "state" / "dstui" / "measured").iterdir()
        file.write_text(file.read_text().replace('"figures"', '"other"'))
    measured = read_measured(model_key(SEVEN))
    after = forecast(SEVEN, facts(), EIGHT_H100, measured=measured.of(EIGHT_H100))
    assert (after.gpu.bytes, after.corrected) == (forecast(SEVEN, facts(), EIGHT_H100).gpu.bytes, "")
    assert "60 GB of a GPU" in str(measured.runs(EIGHT_H100)[0]) and "of the forecast" not in str(measured.runs(EIGHT_H100)[0])


def test_cpu_ranks_get_their_measured_speed() -> None:
    small = plan(stage=2, model="openai-community/gpt2", sequence=128)
    known = facts("openai-community/gpt2")
    before = forecast(small, known, NO_GPU)
    assert before.setup and before.speed is None
    remember(small, NO_GPU, Taken(run="r", step_seconds=4.0, settings=before.setup.settings))
    after = forecast(small, known, NO_GPU, measured=read_measured(model_key(small)).of(NO_GPU))
    assert after.speed and (after.speed.step, after.speed.bound_by) == (4.0, "what runs took here")
    assert after.speed.tokens == before.setup.samples * 128 / 4


def test_kept_measurements_are_limited_and_broken_files_ignored(tmp_path: Path) -> None:
    for number in range(KEPT_RUNS + 5):
        remember(SEVEN, EIGHT_H100, Taken(run=f"run-{number}", memory_scale=1.0 + number / 100))
    runs = read_measured(model_key(SEVEN)).runs(EIGHT_H100)
    assert [run.run for run in runs] == [f"run-{number}" for number in range(5, KEPT_RUNS + 5)]
    (file,) = (tmp_path / "state" / "dstui" / "measured").iterdir()
    for text in ("", "[]", "{", '{"machines": 3}', '{"machines": {"a": [3, {"run": 4, "memory_scale": "x"}]}}'):
        file.write_text(text)
        assert read_measured(model_key(SEVEN)).of(EIGHT_H100) == {}


def test_run_without_a_model_or_with_a_broken_folder_is_not_measured(tmp_path: Path) -> None:
    assert keep(JobFolder(tmp_path / "nothing")) is None
    folder = ended(tmp_path / "job", SEVEN, EIGHT_H100, gpu0=1 << 30)
    (folder.path / "plan.yaml").write_text("version: 1\njob: {script: a.py}\n")
    assert not folder.names_model
    assert keep(folder) is None
    (folder.path / "plan.yaml").write_text(SEVEN.text)
    (folder.path / "machine.json").write_text("[]")
    assert keep(folder) is None


def test_real_run_of_a_model_is_measured_at_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(
        "held = b'x' * (200 << 20)\nfor step in range(1, 20):\n    print(f'step {step} step_time: 0.25', flush=True)\n"
    )
    text = (
        "version: 1\njob: {script: train.py}\nmodel: {params: 1.0e6}\ncluster: {hosts: {localhost: 2}}\ndeepspeed: {train_batch_size: 2}\n"
    )
    given = load(text, "plan.yaml", str(tmp_path))
    folder = start(Target(given, NO_GPU), run_dir=tmp_path / "job")
    (taken,) = wait_for(lambda: read_measured(model_key(given)).runs(NO_GPU))
    assert taken.node_bytes >= 2 * 200 << 20
    assert taken.step_seconds == 0.25
    assert taken == kept(folder)
