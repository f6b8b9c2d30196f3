"""`dstui tune`: real short jobs of a script without torch, and the choice of the next candidate from measurements."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import product
from math import log2
from pathlib import Path
from typing import Any

import pytest

from dstui.facts.model_files import read_models
from dstui.forecast.model import ModelFacts
from dstui.jobs.store.folder import JobFolder
from dstui.machine.snapshot import Host, Machine
from dstui.plan import Plan, load
from dstui.tune.candidates import Candidate, Expected, Problem, _without_gain, doubtful, merged, next_candidate, preferred, regret_of
from dstui.tune.outputs import fixed_writes, redirected
from dstui.tune.record import Result, TuneFolder, key_of, unfinished
from dstui.tune.session import chosen
from tests.jobs.lab import job_processes
from tests.jobs.made import dstui

SCRIPT = """\
import json, os, sys, time
micro = json.load(open(os.environ["DSTUI_DS_CONFIG"]))["train_micro_batch_size_per_gpu"]
out = sys.argv[sys.argv.index("--output_dir") + 1]
os.makedirs(out)
open(out + "/weights", "w").write("x")
if micro > 4:
    raise RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 24.00 GiB")
for step in range(1, 100_000):
    time.sleep(0.02)
    print(f"step {step}/100000 loss 1.0 step_time {0.1 / micro} s", flush=True)
"""
PLAN = """\
version: 1
name: mine
job: {script: train.py, args: [--output_dir, weights], optimizer: script}
cluster: {hosts: {localhost: 1}}
deepspeed:
  train_micro_batch_size_per_gpu: 1   # as much as fits
  gradient_accumulation_steps: 8
  zero_optimization: {stage: 2}
"""


def plan_in(folder: Path, text: str = PLAN, script: str = SCRIPT) -> Path:
    """Write the Plan and its script to a folder; return the Plan's path."""
    (folder / "train.py").write_text(script)
    (folder / "plan.yaml").write_text(text)
    return folder / "plan.yaml"


@pytest.mark.launcher
def test_largest_micro_batch_is_found_by_real_jobs_without_touching_user_files(tmp_path: Path) -> None:
    text = PLAN.replace("gpu: 1 ", "gpu: 8 ").replace("steps: 8", "steps: 1")
    plan = plan_in(tmp_path, text)
    status, out, said = dstui("tune", plan, "--only", "micro-batch", "--steps", 3, "--json", "-o", "best.yaml", cwd=tmp_path)
    assert status == 0, said
    found = json.loads(out)
    assert [one["state"] for one in found["candidates"]] == ["out of memory", "measured"]
    assert plan.read_text() == text and not (tmp_path / "weights").exists()
    assert (tmp_path / "best.yaml").read_text() == text.replace("gpu: 8 ", "gpu: 4 ").replace("steps: 1", "steps: 2")
    jobs = [JobFolder(Path(found["folder"]) / one["job"]) for one in found["candidates"]]
    assert all(job.has_ended and not job_processes(job) for job in jobs) and not list(Path(found["folder"]).glob("*-output"))
    assert found["chosen"] == 1 and found["candidates"][1]["memory_bytes"] and found["candidates"][1]["samples_per_second"] > 10


@pytest.mark.launcher
def test_endless_script_without_steps_is_stopped_with_a_message(tmp_path: Path) -> None:
    plan = plan_in(tmp_path, script="import time\nwhile True: time.sleep(1)\n")
    status, out, said = dstui("tune", plan, "--budget", "1s", cwd=tmp_path)
    assert status == 1 and "no step was seen in" in out and "run.metrics" in out, (out, said)
    (job,) = (tmp_path / "dstui_runs").glob("*/*-tune-1")
    assert JobFolder(job).has_ended and not job_processes(JobFolder(job))


@pytest.mark.parametrize(
    ("words", "script", "sentence"),
    [
        ((), "import torch\ntorch.save({}, 'model.pt')\n", "line 2: save writes to 'model.pt'"),
        ((), "out = 'ckpt'\nengine.save_checkpoint(out)\n", "line 2: save_checkpoint writes to 'ckpt'"),
        (("--budget", "0"), "", "is not a time between a second and a week"),
        (("--steps", "1"), "", "is not a whole number from 3"),
        (("--set", "deepspeed={}"), "", "deepspeed"),
        (("-o", "plan.yaml"), "", "plan.yaml"),
    ],
)
def test_plan_that_cannot_be_tuned_is_refused_and_nothing_starts(
    tmp_path: Path, words: tuple[str, ...], script: str, sentence: str
) -> None:
    status, _, said = dstui("tune", plan_in(tmp_path, script=script), *words, cwd=tmp_path)
    assert status == 2 and sentence in said and not (tmp_path / "dstui_runs").exists(), said


def planned(text: str = PLAN) -> Problem:
    plan = load(text, "plan.yaml", "/nowhere")
    facts = read_models(plan)
    assert isinstance(facts, ModelFacts)
    return Problem(plan=plan, facts=facts, machine=Machine.unprobed())


def measured(problem: Problem, rate_of: dict[str, float]) -> list[tuple[Candidate, Result]]:
    """Return all trials if candidates have these rates, given by parts of their labels; 0 is out of memory."""
    tried: list[tuple[Candidate, Result]] = []
    while (made := next_candidate(problem, [result for _, result in tried])) is not None:
        rate = next((rate for part, rate in rate_of.items() if part in made.label), 1.0)
        state = "measured" if rate else "out of memory"
        tried.append((made, Result(label=made.label, patch=made.patch, job=f"trial-{len(tried) + 1}", state=state, rate=rate or None)))
    return tried


def test_hill_climbing_finds_the_best_and_tries_each_once() -> None:
    tried = measured(
        planned(), {"ZeRO-1, micro-batch 4": 9, "ZeRO-1, micro-batch 2": 7, "ZeRO-1": 5, "micro-batch 4": 6, "micro-batch 2": 3}
    )
    assert len({made.key for made, _ in tried}) == len(tried) <= 12
    best = chosen(planned(), [result for _, result in tried])
    assert best is not None and "ZeRO-1, micro-batch 4 x 2" in best.label
    assert all(made.setup.samples == 8 for made, _ in tried), "training stays the same"


def test_best_is_found_from_a_careful_plan_with_few_of_all_candidates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Problem, "expected", lambda *_: Expected(fits=True))
    careful = planned(PLAN.replace("stage: 2", "stage: 3").replace("gpu: 1 ", "gpu: 2 ").replace("steps: 8", "steps: 4"))
    name = "{}, micro-batch {} ".format
    zero = ("no ZeRO", "ZeRO-1", "ZeRO-2", "ZeRO-3")
    for slope, stage, micro in product((1.0, 0.2), (0, 1), (4, 8)):
        rates = {name(zero[s], m): 10.0 - slope * (abs(s - stage) + abs(log2(m / micro))) for s in range(4) for m in (1, 2, 4, 8)}
        tried = measured(careful, rates)
        best = chosen(careful, [result for _, result in tried])
        assert best is not None and name(zero[stage], micro) in best.label, [made.label for made, _ in tried]
        assert len(tried) <= (4 if (stage, micro) == (0, 8) else 6), [made.label for made, _ in tried]


def noisy(label: str, rate: float, spread: float, **more: Any) -> Result:
    patch = () if label == "own" else ({"op": "replace", "path": f"/{label}", "value": 1},)
    return Result(label=label, patch=patch, state="measured", rate=rate, spread=spread, **more)


def test_two_fastest_are_measured_again_on_a_busy_machine_slower_first() -> None:
    results = [noisy("own", 2.0, 0.01), noisy("a", 10.0, 0.2), noisy("b", 8.0, 0.1), noisy("c", 3.0, 0.3)]
    asked = []
    while (one := doubtful(results)) is not None:
        asked.append(one.label)
        results.append(replace(one, rate={"b": 12.0, "a": 9.0}[one.label], job=f"again-{len(asked)}"))
    assert asked == ["b", "a"]
    best = preferred(results)
    assert best is not None and (best.label, best.rate) == ("b", 12.0)
    assert [(one.label, one.rate) for one in merged(results)] == [("own", 2.0), ("a", 10.0), ("b", 12.0), ("c", 3.0)]


def test_nothing_is_measured_again_on_a_quiet_machine() -> None:
    assert doubtful([noisy("own", 9.9, 0.01), noisy("a", 10.0, 0.02), noisy("b", 2.0, 0.5)]) is None
    assert doubtful([noisy("own", 9.9, 0.5)]) is None


def test_gain_within_the_noise_of_busy_machine_is_none() -> None:
    rates = (67.8, 82.3, 94.5, 88.6)
    assert _without_gain([noisy(str(at), rate, 0.2) for at, rate in enumerate(rates)]) == 3
    assert _without_gain([noisy(str(at), rate, 0.001) for at, rate in enumerate(rates)]) == 1, "on a quiet one each is a gain"
    assert _without_gain([noisy("own", 67.8, 0.4), noisy("far", 140.5, 0.4)]) == 0


def test_regret_of_the_forecast_alone_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = planned()
    own, other = (Result(label=name, patch=patch, state="measured", rate=rate) for name, patch, rate in TWO)
    monkeypatch.setattr(Problem, "expected", lambda _, one: Expected(rate=5.0 if one.patch else 9.0))
    assert regret_of(problem, [own, other]) == pytest.approx(0.2)
    assert regret_of(problem, [own]) is None


def test_regret_of_the_search_is_reported_if_no_speed_is_known() -> None:
    host = Host(memory_total=1 << 36, memory_available=1 << 36, memory_limit=None)
    cpus = Machine(source="two CPUs", recorded=True, host=host)
    problem = replace(planned(PLAN + "model: {params: 1.0e+7, sequence_length: 16}\n"), machine=cpus)
    tried = measured(problem, {"no ZeRO, micro-batch 8": 8.0, "ZeRO-1, micro-batch 8": 10.0})
    assert regret_of(problem, [result for _, result in tried]) == pytest.approx(0.2), [made.label for made, _ in tried]


TWO = (("own", (), 8.0), ("other", ({"op": "replace", "path": "/deepspeed/zero_optimization/stage", "value": 1},), 10.0))


def test_only_smaller_needs_are_tried_if_the_plan_does_not_fit() -> None:
    tried = measured(planned(PLAN.replace("gpu: 1 ", "gpu: 4 ")), {"": 0})
    wanted = [(2, "none", "none", 4), (3, "none", "none", 4), (3, "cpu", "none", 4), (3, "cpu", "cpu", 4), (3, "cpu", "cpu", 2)]
    found = [(s.stage, s.optimizer_offload, s.param_offload, s.micro_batch) for s in (made.setup for made, _ in tried)]
    assert found == [*wanted, (3, "cpu", "cpu", 1)]


def test_largest_micro_batch_takes_at_most_five_runs() -> None:
    problem = replace(planned(), only="micro-batch")
    for most in (1, 2, 4, 8, 16, 64):  # beyond 8 no forecast tells where to look, so the result is within a factor of two
        tried = measured(problem, {f"micro-batch {2**n} ": 0 for n in range(12) if 2**n > most})
        best = chosen(problem, [result for _, result in tried])
        assert best is not None and len(tried) <= 5
        found = problem.setup(best.patch).micro_batch
        assert found == most or (most > 8 and found >= most // 2), (most, [made.label for made, _ in tried])


def test_plan_with_a_missing_script_starts_nothing(tmp_path: Path) -> None:
    status, _, said = dstui("tune", plan_in(tmp_path), "--set", "job.script=gone.py", "--writes-ok", cwd=tmp_path)
    assert status == 1 and "job.script: there is no file" in said and not (tmp_path / "dstui_runs").exists()


def test_trainer_micro_batch_is_changed_in_its_arguments() -> None:
    args = "args: [--deepspeed, '{ds_config}', --per_device_train_batch_size=4, --gradient_accumulation_steps, '2'], integration: trainer"
    text = PLAN.replace("args: [--output_dir, weights]", args).replace("gpu: 1 ", "gpu: auto ").replace("steps: 8", "steps: auto")
    problem = planned(text.replace("optimizer: script", "scheduler: script"))
    changed = [problem.plan.patch(made.patch).job.args[2:] for made, _ in measured(problem, {}) if made.setup.micro_batch == 8]
    assert changed and changed[0] == ("--per_device_train_batch_size=8", "--gradient_accumulation_steps", "1")


def test_plan_as_fast_as_the_best_stays() -> None:
    own, other = (
        Result(label="own", state="measured", rate=100.0),
        Result(label="other", patch=({"op": "add", "path": "/x"},), state="measured"),
    )
    assert chosen(planned(), [own, replace(other, rate=101.0)]) is own
    assert chosen(planned(), [own, faster := replace(other, rate=120.0)]) is faster
    assert chosen(planned(), [replace(own, rate=None, state="failed")]) is None


def with_args(*args: str) -> Plan:
    return load(PLAN, "plan.yaml", "/nowhere").set("job.args", list(args))


def test_output_folders_are_redirected_wherever_arguments_name_them() -> None:
    words, done = redirected(with_args("--lr", "1", "--output_dir=a/b", "--save-dir", "ckpt", "--save", "--data", "d"), Path("/t"))
    assert words == ["--lr", "1", "--output_dir=/t/output_dir/b", "--save-dir", "/t/save_dir/ckpt", "--save", "--data", "d"]
    assert done == ["--output_dir", "--save-dir"]
    words, done = redirected(with_args("--lr", "1"), Path("/t"), ("--output_dir", "--lr"))
    assert words == ["--lr", "1", "--output_dir", "/t/output_dir/output"] and done == ["--output_dir"]


@pytest.mark.parametrize(
    ("script", "redirection", "found"),
    [
        ("engine.save_checkpoint(args.output_dir)", ["--output_dir"], False),
        ("engine.save_checkpoint(args.output_dir)", [], True),
        ("engine.save_checkpoint('fixed')", ["--output_dir"], True),
        ("TrainingArguments(output_dir='out', save_strategy='no')", [], False),
        ("TrainingArguments(output_dir='out')", [], True),
        ("print('nothing is written')", [], False),
        ("this is no Python", [], True),
    ],
)
def test_output_folder_of_a_script_is_found_in_its_text(tmp_path: Path, script: str, redirection: list[str], found: bool) -> None:
    (tmp_path / "train.py").write_text(script)
    assert bool(fixed_writes(load(PLAN, "plan.yaml", str(tmp_path)), redirection)) is found


def test_jobs_are_named_after_the_plan_and_counted_over_its_tunes(tmp_path: Path) -> None:
    first, second = (TuneFolder(tmp_path / f"mine-tune-2026010{day}-000000", "key") for day in (1, 2))
    assert first.new_job() == "mine-tune-1"
    for job in ("mine-tune-1", "mine-tune-2", "mine-tune-2-output", "trial-7", "mine-tune-x"):
        (first.path / job).mkdir(parents=True)
    (tmp_path / "other-tune-20260101-000000/other-tune-5").mkdir(parents=True)
    assert (first.new_job(), second.new_job()) == ("mine-tune-3", "mine-tune-3")


@pytest.mark.parametrize(("job", "sound"), [("mine-tune-3", True), ("trial-3", True), ("../x-1", False), ("-1", False), ("x/y-1", False)])
def test_stored_job_is_a_name_of_this_or_an_older_release(tmp_path: Path, job: str, sound: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "dstui_runs/mine-tune-20260101-000000"
    path.mkdir(parents=True)
    TuneFolder(path, "key").keep(Result(label="one", job=job))
    assert (unfinished("key") is not None) is sound


def test_record_from_a_repository_is_ignored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    problem = planned()
    key = key_of(problem.plan, problem.machine, 8, "")
    path = tmp_path / "dstui_runs/mine-tune-1"
    path.mkdir(parents=True)
    folder = TuneFolder(path, key)
    folder.keep(Result(label="planted", job="trial-1", state="measured", rate=1e9, patch=({"op": "replace", "path": "/job/script"},)))
    found = unfinished(key)
    assert found is not None and found.results == []
    folder.write(finished=True)
    assert unfinished(key) is None
    for text in ("", "[]", '{"version": 1, "key": 3}', '{"version": 1, "results": [{"job": "../../x"}]}'):
        (path / "tune.json").write_text(text)
        assert unfinished(key) is None
