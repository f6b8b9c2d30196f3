"""The hook in each rank: what it leaves untouched, and what a real training reports through it."""

from __future__ import annotations

import importlib.util
import itertools
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dstui.diagnosis import diagnose_job
from dstui.jobs.engine.compare import differences, is_another, sentence
from dstui.jobs.engine.lines import CheckpointCall, EngineMade, EngineStep, EvaluationDone, parse, read_all
from dstui.jobs.engine.now import read_now
from dstui.jobs.engine.resolved import lines, read_resolved
from dstui.jobs.metrics.export import metrics
from dstui.jobs.store.events import Notice
from dstui.jobs.store.folder import JobFolder
from dstui.jobs.supervisor.launch_command import HOOK, SHIM
from dstui.jobs.watch import follow
from dstui.jobs.watch.follow import Follower
from dstui.jobs.watch.summary import summary
from tests.job_json import write_status_json
from tests.jobs.lab import Lab, final_status
from tests.jobs.made import dstui, make_job

SHOW = """
import json, multiprocessing, os, subprocess, sys
def facts():
    import sys
    own = sys.modules.get("sitecustomize")
    skip = ("DSTUI_JOB",)
    environment = {name: value for name, value in os.environ.items() if name not in skip}
    return [sys.path, environment, getattr(own, "__file__", None), sorted(type(finder).__name__ for finder in sys.meta_path)]
if __name__ == "__main__":
    show = "import os, sys; print(sys.path, sorted(os.environ), 'sitecustomize' in sys.modules)"
    set_by_script = {**os.environ, "PYTHONPATH": "/elsewhere"}
    unset_by_script = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    child = [subprocess.run([sys.executable, "-c", show], env=env, capture_output=True, text=True, check=True).stdout
             for env in (None, set_by_script, unset_by_script)]
    read, write = os.pipe()
    if os.fork() == 0:
        os.write(write, json.dumps(facts()[:3]).encode())
        os._exit(0)
    os.wait()
    forked = json.loads(os.read(read, 1 << 20))
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        spawned = pool.apply(facts)
    print(json.dumps([facts()[:3], child, forked, spawned]), flush=True)
    if len(sys.argv) < 2:
        os.execv(sys.executable, [sys.executable, sys.argv[0], "again"])
"""


def ranks_output(folder: Path, *words: str, path: str | None) -> tuple[list[str], bool]:
    """Return what SHOW prints as a rank under the real shim, and whether the user's sitecustomize ran."""
    (folder / "logs").mkdir(parents=True)
    (folder / "ranks").mkdir()
    script = folder.parent / "show.py"
    script.write_text(SHOW)
    given = {"RANK": "0", "HOME": str(folder.parent), "PATH": os.environ["PATH"]} | ({} if path is None else {"PYTHONPATH": path})
    done = subprocess.run([sys.executable, SHIM, folder, "tag", *words, script], env=given, capture_output=True, check=False)
    log = (folder / "logs/rank_0.log").read_text()
    assert done.returncode == 0, log + done.stderr.decode()
    return [line for line in log.splitlines() if line.startswith("[[[")], "mine" in log


@pytest.mark.parametrize("path", [pytest.param(None, marks=pytest.mark.twin), "own"])
def test_rank_and_children_see_path_environment_and_sitecustomize_as_without_the_hook(tmp_path: Path, path: str | None) -> None:
    if path:
        (tmp_path / path).mkdir()
        (tmp_path / path / "sitecustomize.py").write_text("print('mine')")
        path = str(tmp_path / path)
    hooked = ranks_output(tmp_path / "hooked", f"hook:engine:{HOOK.parent}", path=path)
    plain = ranks_output(tmp_path / "plain", path=path)
    assert hooked == plain and len(plain[0]) == 2 and plain[1] == bool(path)
    first, *rest = (tmp_path / "hooked/engine/rank_0.jsonl").read_text().splitlines()
    assert json.loads(first)["is"] == "start"
    (end,) = map(json.loads, rest)  # neither a fork nor what was executed after it is the rank any more
    assert (end["is"], end["program"]) == ("end", sys.executable)


def test_rank_runs_if_its_files_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "hooked").mkdir()
    (tmp_path / "hooked/engine").write_text("in the way")
    (tmp_path / "hooked/logs").mkdir()
    (tmp_path / "hooked/ranks").mkdir()
    (tmp_path / "script.py").write_text("import sys; print('runs', 'dstui' in str(sys.path))")
    words = [sys.executable, SHIM, tmp_path / "hooked", "tag", f"hook:engine:{HOOK.parent}", tmp_path / "script.py"]
    assert subprocess.run(words, env={"RANK": "0"}, check=False).returncode == 0
    assert (tmp_path / "hooked/logs/rank_0.log").read_text() == "runs False\n"


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> JobFolder:
    """Train with two real ranks under an engine; rank 1 raises in a forward at the end."""
    path = tmp_path_factory.mktemp("hook")
    script = Path(__file__).with_name("engine_script.py")
    folder = Lab(path).start(str(path / "checkpoints"), job=f"script: {script}", cluster="env: {OMP_NUM_THREADS: 1}")
    final_status(folder)
    return folder


@pytest.mark.launcher
@pytest.mark.heavy
@pytest.mark.xdist_group("trained with the hook")
class TestTrained:
    """All reports of one trained job."""

    def test_losses_equal_those_that_the_script_prints(self, trained: JobFolder) -> None:
        for rank in (0, 1):
            printed = [float(line.split()[1]) for line in trained.log(rank).read_text().splitlines() if line.startswith("mine ")]
            steps = [report for report in read_all(trained.engine(rank)) if isinstance(report, EngineStep)]
            assert len(printed) == 6, trained.log(rank).read_text()
            assert [step.loss for step in steps] == printed and [step.step for step in steps] == [1, 2, 3, 4, 5, 6]
            assert all(step.micro_steps == 2 and step.lr == [1e-3] and step.samples == 8 * step.step for step in steps)
            assert all(step.grad_norm and step.rss and {"forward", "backward", "step", "total"} <= set(step.times) for step in steps)

    def test_engine_is_described_with_the_scripts_changes(self, trained: JobFolder) -> None:
        (resolved,) = read_resolved(trained)
        made = resolved.made
        assert made.own and made.own.endswith("engine_script.py:30") and made.parameters == made.trained == 72
        assert (made.batch, made.stage, made.precision, made.groups["data"]) == ([8, 2, 2], 2, "fp32", 2)
        assert resolved.sentence.startswith("your script overrode train_batch_size 2 with 8 (")
        assert "8 = 2 per rank × 2 accumulation × 2 data-parallel ranks" in "\n".join(lines(resolved))

    def test_checkpoints_evaluation_and_last_phase_are_reported(self, trained: JobFolder) -> None:
        reports = list(read_all(trained.engine(0)))
        saves = [report for report in reports if isinstance(report, CheckpointCall)]
        assert [(save.kind, save.state, save.tag, save.step) for save in saves] == [
            ("save", "begun", "third", 3),
            ("save", "done", "third", 3),
        ]
        assert [report.forwards for report in reports if isinstance(report, EvaluationDone)] == [1]
        now = read_now(trained.engine(1, kind="json"))
        assert now and (now.phase, now.step, now.raised) == ("forward", 6, "RuntimeError")
        found = diagnose_job(trained)
        assert any("rank 1 in forward after step 6" in note for note in found.notes) and "sitecustomize" not in found.title

    def test_follower_gets_the_engines_numbers_first(self, trained: JobFolder) -> None:
        follower = Follower(trained, lines=False)
        events: list[Any] = []
        while not events or events[-1].as_json()["event"] != "exit":
            events += follower.poll()
        follower.close()
        view = follower.ranks[0]
        assert view.step == 6 and {"loss", "lr", "grad_norm", "step_time", "samples/s"} <= view.by_engine
        codes = [event.code for event in events if isinstance(event, Notice)]
        assert codes.count("overridden") == 1 and "your script overrode" in summary(follower)
        sources = {(metric.name, metric.source) for _, metric in metrics(trained)}
        assert ("loss", "engine") in sources and ("loss", "log") not in sources

    def test_command_prints_the_numbers_with_their_source(self, trained: JobFolder, tmp_path: Path) -> None:
        code, out, _ = dstui("logs", trained.path, "--metrics", "csv", cwd=tmp_path)
        assert code == 0 and "\n6,0,loss," in out and all(line.endswith(",engine") for line in out.splitlines()[1:])

    def test_explain_prints_the_resolved_configuration(self, trained: JobFolder, tmp_path: Path) -> None:
        code, out, _ = dstui("explain", "--run", trained.path, cwd=tmp_path)
        assert code == 0 and "8 = 2 per rank × 2 accumulation × 2 data-parallel ranks" in out
        assert "your script overrode train_batch_size 2 with 8" in out

    def test_bundle_has_the_resolved_configuration(self, trained: JobFolder, tmp_path: Path) -> None:
        code, _, err = dstui("bundle", trained.path, "-o", tmp_path / "b.zip", cwd=tmp_path)
        assert code == 0, err
        with zipfile.ZipFile(tmp_path / "b.zip") as archive:
            text = archive.read(f"{trained.name}/resolved.txt").decode()
        assert "your script overrode train_batch_size 2 with 8" in text and '"torch_adam": true' in text


OTHER = """
import json, sys, deepspeed, torch
deepspeed.ops.__dict__.setdefault("__compatible_ops__", {})
model = torch.nn.Linear(4, 4)
deepspeed.initialize(model=model, model_parameters=model.parameters(), config=sys.argv[-1])
open("trained", "w").close()
"""


@pytest.mark.launcher
@pytest.mark.heavy
def test_probe_ends_after_initialize_and_reports_another_configuration(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(OTHER)
    optimizer = {"type": "AdamW", "params": {"torch_adam": True}}
    config = {
        "train_micro_batch_size_per_gpu": 8,
        "bf16": {"enabled": True},
        "optimizer": optimizer,
    }  # it steps in initialize, for its states
    (tmp_path / "mine.json").write_text(json.dumps(config))
    (tmp_path / "plan.yaml").write_text(
        "version: 1\nname: other\njob: {script: train.py, args: [mine.json]}\n"
        "cluster: {hosts: {localhost: 2}, env: {OMP_NUM_THREADS: 1, DS_ACCELERATOR: cpu}}\n"
        "deepspeed: {train_micro_batch_size_per_gpu: 2, zero_optimization: {stage: 1}, optimizer: {type: AdamW, params: {torch_adam: true}}}\n"
    )
    code, out, err = dstui("probe", "plan.yaml", cwd=tmp_path)
    assert code == 1 and f"another configuration than the Plan's was read: {tmp_path}/mine.json" in out, out + err
    assert "deepspeed.initialize reached by 2 ranks" in out and "batch 16 = 8 per rank × 1 accumulation × 2 data-parallel ranks" in out
    assert not (tmp_path / "trained").exists() and not (tmp_path / "dstui_runs").exists()


PLANNED: dict[str, Any] = {
    "train_micro_batch_size_per_gpu": 4,
    "zero_optimization": {"stage": 2, "reduce_bucket_size": 5e8},
    "bf16": {"enabled": "auto"},
}


def engine_with(path: str | None = None, **config: Any) -> EngineMade:
    return EngineMade(own="train.py:9", caller="train.py:9", path=path, config=config, batch=[16, 8, 1], stage=2, precision="bf16")


def test_changed_keys_are_named_but_not_those_the_plan_leaves_open() -> None:
    made = engine_with(zero_optimization={"stage": 2, "reduce_bucket_size": "500000000"}, train_micro_batch_size_per_gpu=8, bf16={})
    different = differences(PLANNED, made)
    assert sentence(made, different, another=False) == "your script overrode train_micro_batch_size_per_gpu 4 with 8 (train.py:9)"


def test_another_file_or_dictionary_is_another_configuration() -> None:
    own = engine_with(fp16={"enabled": True})
    different = differences(PLANNED, own)
    assert {d.key for d in different} == {"train_micro_batch_size_per_gpu", "zero_optimization.reduce_bucket_size"}
    read = engine_with("/home/me/ds.json", train_micro_batch_size_per_gpu=8)
    assert is_another(PLANNED, read, differences(PLANNED, read), ("ds_config.json",))
    assert sentence(read, differences(PLANNED, read), another=True).startswith(
        "another configuration than the Plan's was read: /home/me/ds.json"
    )


@pytest.mark.parametrize(
    "line",
    [
        b"", b"{", b"[1]", b'{"is": "step"}', b'{"is": ["step"], "t": 1}', b'{"is": "step", "t": 1, "step": -1}',
        b'{"is": "step", "t": 1, "times": {"total": "x"}}', b'{"is": "initialize", "t": 1, "batch": "no"}', b'{"is": "new", "t": 1}',
    ],
)  # fmt: skip
def test_invalid_line_is_skipped(line: bytes) -> None:
    assert parse(line) is None


def test_nan_losses_are_reported_and_texts_are_escaped() -> None:
    step = parse(b'{"is": "step", "t": 1, "step": 3, "loss": NaN, "grad_norm": Infinity}')
    assert isinstance(step, EngineStep) and step.loss is not None and step.loss != step.loss and step.grad_norm == float("inf")
    alone = parse(b'{"is": "alone", "t": 1, "caller": "a\\u001b[2Jb:1"}')
    assert alone is not None and "\x1b" not in str(alone)


def test_folder_without_a_hook_is_read(tmp_path: Path) -> None:
    folder = make_job(tmp_path / "job")
    assert read_resolved(folder) == [] and read_now(folder.engine(0, kind="json")) is None
    assert {metric.source for _, metric in metrics(folder)} == {"log"}


def test_configuration_of_a_run_is_checked_for_keys_missing_in_the_plan(tmp_path: Path) -> None:
    folder = make_job(tmp_path / "job")
    (folder.path / "ds_config.json").write_text('{"train_micro_batch_size_per_gpu": 1, "typo": 1}')
    folder.engine(0).parent.mkdir(exist_ok=True)
    config = {"train_micro_batch_size_per_gpu": 8, "typo": 1, "zero_optimisation": {"stage": 2}}
    line = {"is": "initialize", "t": 1, "own": "train.py:9", "caller": "train.py:9", "config": config, "batch": [8, 8, 1]}
    folder.engine(0).write_text(json.dumps(line) + "\n")
    code, out, _ = dstui("explain", "--run", folder.path, "--json", cwd=tmp_path)
    (engine,) = json.loads(out)["engines"]
    assert code == 0 and [finding["path"] for finding in engine["findings"]] == ["deepspeed.zero_optimisation"]


def test_explain_says_that_no_engine_was_reported(tmp_path: Path) -> None:
    code, out, err = dstui("explain", "--run", make_job(tmp_path / "job").path, cwd=tmp_path)
    assert (code, out) == (1, "") and "deepspeed.initialize was not reached, or the run was not observed" in err


def steps_of(rank: int, steps: int, own: float = 0.01) -> str:
    lines = [{"is": "start", "version": 1, "t": 1.0, "pid": 1, "mode": "engine", "python": "3.11.7"}]
    times = {"forward": own, "backward": 0.02, "step": 0.01, "total": own + 0.03}
    lines += [{"is": "step", "t": 2.0, "step": n, "loss": 1 / n, "times": times, "micro_steps": 1} for n in range(1, steps + 1)]
    return "".join(json.dumps(line) + "\n" for line in lines)


def observed(path: Path, ranks: int, slow: int | None = None, steps: int = 30) -> JobFolder:
    """Write a running job as its hooks leave it; `slow`: a rank whose own part of a step takes longer."""
    folder = make_job(path, logs=dict.fromkeys(range(ranks), ""), state="running", ended=None)
    folder.launch_file.write_text(json.dumps({"version": 1, "base": str(path.parent), "observe": "engine"}))
    folder.engine(0).parent.mkdir(exist_ok=True)
    for rank in range(ranks):
        folder.engine(rank).write_text(steps_of(rank, steps, 0.3 if rank == slow else 0.01))
        folder.record(rank).write_text(json.dumps({"rank": rank, "host": "h1", "pid": 1}))
    status = json.loads(folder.status_file.read_text())
    for rank in status["ranks"].values():
        rank.update(state="started", exit_code=None)
    write_status_json(folder, status)
    return folder


def notices_of(folder: JobFolder, polls: int = 20) -> dict[str, str]:
    """Return the notices that a follower reports, by code."""
    follower = Follower(folder, lines=False, status_of=JobFolder.read_status)
    events = [event for _ in range(polls) for event in follower.poll()]
    follower.close()
    return {event.code: event.text for event in events if isinstance(event, Notice) and event.code}


def test_rank_with_slow_own_part_of_a_step_is_the_straggler(tmp_path: Path) -> None:
    told = notices_of(observed(tmp_path / "slow", 4, slow=2))
    assert told["straggler"].startswith("rank 2 is the straggler: its own part of a step (data and forward) takes 0.3 s")
    assert notices_of(observed(tmp_path / "even", 4)) == {}


def test_ranks_without_a_hook_are_reported_as_unobserved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = observed(tmp_path / "job", 3)
    folder.engine(1).unlink()
    assert notices_of(folder) == {}, "its interpreter may still be starting"
    monkeypatch.setattr(follow, "HOOKED", 0.0)
    assert notices_of(folder)["not-observed"].startswith("rank 1: not observed (the interpreter ignores sitecustomize (-I")


def test_ranks_that_become_another_program_are_reported_once(tmp_path: Path) -> None:
    folder = observed(tmp_path / "job", 3)
    for rank in (1, 2):
        with folder.engine(rank).open("a") as file:
            file.write('{"is": "end", "t": 3.0, "faults": 0, "program": "/usr/bin/python3"}\n')
    follower = Follower(folder, lines=False, status_of=JobFolder.read_status)
    told = [event.text for _ in range(5) for event in follower.poll() if isinstance(event, Notice)]
    follower.close()
    assert len(told) == 1 and told[0].startswith("rank 1 has replaced itself with /usr/bin/python3 (os.exec): not observed from here on")


def test_log_lines_count_again_when_the_engine_is_silent(tmp_path: Path) -> None:
    folder = observed(tmp_path / "job", 1, steps=3)
    os.utime(folder.engine(0), (1000, 1000))
    follower = Follower(folder, lines=False, status_of=JobFolder.read_status)
    views = []
    for step in (3, 4, 9, 10):  # 4 may be a step that the engine has not completed
        with folder.log(0).open("a") as file:
            file.write(f"step {step}/20 loss {step}.5\n")
        os.utime(folder.log(0), (1100, 1100))
        follower.poll()
        follower.poll()
        views.append((follower.ranks[0].step, follower.latest["loss"], "loss" in follower.ranks[0].by_engine))
    follower.close()
    assert views == [(3, 1 / 3, True), (3, 1 / 3, True), (9, 9.5, False), (10, 10.5, False)]


def test_hook_files_of_512_ranks_are_followed(tmp_path: Path) -> None:
    folder = observed(tmp_path / "job", 512, slow=300, steps=21)
    follower = Follower(folder, lines=False, status_of=JobFolder.read_status)
    codes: list[str] = []
    while not codes:
        codes += [event.code for event in follower.poll() if isinstance(event, Notice)]
    assert codes == ["straggler"] and len(follower.ranks) == 512 and all(view.step == 21 for view in follower.ranks.values())
    follower.close()


def test_only_a_sample_of_a_thousand_steps_per_second_is_reported() -> None:
    spec = importlib.util.spec_from_file_location("hook_under_test", HOOK)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)  # loaded under another name, it does not start
    budget = module.Budget(SimpleNamespace(count=0))
    reported = []
    for step in range(200_000):
        if budget.take(step / 1000):
            reported.append(step)
            budget.output.count += 1
    assert reported[:200] == list(range(200)) and 1_100 < len(reported) < 1_300
    assert max(b - a for a, b in itertools.pairwise(reported)) <= 200


WITHOUT_SITE = """
import os, sys
for flag in ("-I", "-E", "-S"):
    sys.stdout.flush()
    os.spawnv(os.P_WAIT, sys.executable, [sys.executable, flag, "-c", "print('ran')"])
os.write(1, b"done\\n")
os.kill(os.getpid(), 9)
"""


def test_interpreters_without_site_start_and_a_kill_leaves_complete_lines(tmp_path: Path) -> None:
    for part in ("logs", "ranks"):
        (tmp_path / part).mkdir()
    (tmp_path / "script.py").write_text(WITHOUT_SITE)
    words = [sys.executable, SHIM, tmp_path, "tag", f"hook:engine:{HOOK.parent}", tmp_path / "script.py"]
    assert subprocess.run(words, env={"RANK": "0"}, check=False).returncode == 137
    assert (tmp_path / "logs/rank_0.log").read_text() == "ran\nran\nran\ndone\n"
    lines = tmp_path / "engine/rank_0.jsonl"
    lines.write_bytes(lines.read_bytes() + b'{"is": "step", "t": 2.0, "st')  # killed within a line
    assert [type(report).__name__ for report in read_all(lines)] == ["HookStarted"]
