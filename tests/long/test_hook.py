"""The hook changes nothing and reports correctly: trainings with and without it, and its numbers compared to those that programs print."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from statistics import fmean
from sysconfig import get_paths

import pytest

from dstui.jobs.control.start import start
from dstui.jobs.control.stop import stop
from dstui.jobs.engine.lines import EngineMade, EngineStep, EvaluationDone, HookEnded, HookFault, LoneOptimizer, read_all
from dstui.jobs.engine.now import read_now
from dstui.jobs.engine.resolved import model_name, read_planned
from dstui.jobs.store.folder import JobFolder
from dstui.jobs.supervisor.launch_command import HOOK, SHIM
from dstui.machine.snapshot import Machine
from dstui.plan import load
from dstui.plan.catalogue import RELEASES
from dstui.render.target import Target
from dstui.tui.app import DstuiApp
from tests.releases import installed
from tests.tui.conftest import screen

HERE = Path(__file__).parent
PLAN = """\
version: 1
name: {name}
job: {{script: {script}, args: {args}, integration: {integration}, optimizer: {optimizer}}}
cluster: {{hosts: {{localhost: 2}}, env: {{OMP_NUM_THREADS: 1}}}}
deepspeed:
  train_micro_batch_size_per_gpu: {micro}
  gradient_accumulation_steps: {accumulation}
  zero_optimization: {{stage: {stage}}}
{more}"""
ADAM = "  optimizer: {type: AdamW, params: {lr: 1e-2, torch_adam: true}}\n"
PROGRAMS = {
    # name: modules that it needs, and lines of its Plan
    "own_loop": (["accelerate"], {"integration": "accelerate", "optimizer": "script", "micro": 4}),
    "trainer": (
        ["accelerate", "transformers"],
        {"integration": "trainer", "micro": "auto", "accumulation": "auto", "stage": 3},
    ),
    "piped": ([], {"micro": 4, "accumulation": 2, "stage": 0, "more": ADAM}),
    "sft": (
        ["trl", "datasets", "accelerate"],
        {"integration": "trainer", "micro": "auto", "accumulation": "auto"},
    ),
    "lit": (["lightning"], {"optimizer": "script", "micro": 4}),
}
VARIES = re.compile(r"\d[\d.:,e+-]*")
"""Times, ports and folders in the output of a training."""
DEFAULTS = {"integration": "deepspeed", "optimizer": "config", "accumulation": 1, "stage": 2, "args": "[]", "more": ""}


def headless(folder: Path, *words: str, path: str = "") -> tuple[int, JobFolder, str]:
    """Run headless; return exit status, job folder, and output."""
    env = {**os.environ, "DS_ACCELERATOR": "cpu", "XDG_STATE_HOME": str(folder / "state")}
    env["PYTHONPATH"] = os.pathsep.join(filter(None, (path, os.environ.get("PYTHONPATH"))))
    run = folder / f"run{len(list(folder.glob('run*')))}"
    command = [sys.executable, "-m", "dstui", "--headless", *words, "--run-dir", str(run)]
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=600, check=False)
    return done.returncode, JobFolder(run), done.stdout + done.stderr


def printed(folder: JobFolder, rank: int, mark: str = "mine ") -> list[str]:
    return [line.partition(mark)[2] for line in folder.log(rank).read_text().splitlines() if mark in line]


def engine_steps(folder: JobFolder, rank: int) -> list[EngineStep]:
    return [report for report in read_all(folder.engine(rank)) if isinstance(report, EngineStep)]


def with_and_without(folder: Path, *words: str, mark: str = "mine ") -> JobFolder:
    """Train with and without the hook; assert equal losses, bit by bit, and the same end."""
    code, hooked, said = headless(folder, *words)
    assert code == 0, said[-4000:]
    code, plain, said = headless(folder, *words, "--no-observe")
    assert code == 0, said[-4000:]
    assert not plain.engine(0).exists() and hooked.engine(0).exists()
    for rank in (0, 1):
        assert printed(hooked, rank, mark) == printed(plain, rank, mark)
        output = [sorted(VARIES.sub("0", line) for line in folder.log(rank).read_text().splitlines()) for folder in (hooked, plain)]
        assert output[0] == output[1]
    assert printed(hooked, 0, mark)
    return hooked


@pytest.mark.parametrize("name", PROGRAMS)
def test_program_trains_bit_by_bit_as_without_the_hook(tmp_path: Path, name: str) -> None:
    modules, says = PROGRAMS[name]
    for module in modules:
        pytest.importorskip(module)
    text = PLAN.format(**DEFAULTS | says | {"name": name, "script": HERE / "hooked" / f"{name}.py"})
    (tmp_path / "plan.yaml").write_text(text)
    hooked = with_and_without(tmp_path, "plan.yaml")
    steps = [engine_steps(hooked, rank) for rank in (0, 1)]
    lines = [[float(text) for text in printed(hooked, rank)] for rank in (0, 1)]
    if name in ("trainer", "sft"):  # rank 0 prints the mean over the ranks
        means = [fmean(step.loss or math.nan for step in both) for both in zip(*steps, strict=True)]
        assert lines[0] == pytest.approx(means, rel=1e-6) and len(means) == 6
    else:
        assert [[step.loss for step in of_rank] for of_rank in steps] == lines
    print(f"{name}: {len(lines[0])} losses of each rank equal; last {lines[0][-1]!r}")


def test_distillation_trains_as_without_the_hook_and_its_student_is_reported(tmp_path: Path) -> None:
    pytest.importorskip("accelerate")
    (tmp_path / "distilled.py").write_text((HERE / "hooked/distilled.py").read_text())
    args = "job.args=[--steps, '8', --lessons, '5', --student, '{ds_config:student}', --teacher, '{ds_config:teacher}']"
    hooked = with_and_without(tmp_path, "distillation", "--set", "job.module=distilled", "--set", f"job.workdir={tmp_path}", "--set", args)
    for rank in (0, 1):
        losses = [float(text) for text in printed(hooked, rank)]
        assert [step.loss for step in engine_steps(hooked, rank)] == losses and len(losses) == 8
    made = [report for report in read_all(hooked.engine(0)) if isinstance(report, EngineMade)]
    names = [model_name(read_planned(hooked), engine) for engine in made]
    assert names == ["student", "teacher"] and [engine.stage for engine in made] == [2, 3]
    print(f"distillation: {len(losses)} losses of each rank equal; last {losses[-1]!r}")


def test_quickstart_trains_as_without_the_hook_and_losses_equal_the_printed_ones(tmp_path: Path) -> None:
    args = "job.args=[--steps, '60', --deepspeed_config, '{ds_config}']"
    code, hooked, said = headless(tmp_path, "quickstart", "--set", args)
    assert code == 0, said[-4000:]
    _, plain, _ = headless(tmp_path, "quickstart", "--set", args, "--no-observe")
    for rank in (0, 1):
        losses = [line.split()[2] for line in printed(hooked, rank, "step ")]
        assert losses == [line.split()[2] for line in printed(plain, rank, "step ")] and len(losses) == 60
        assert losses == [f"{step.loss:.4f}" for step in engine_steps(hooked, rank)]
    print(f"quickstart: {len(losses)} losses of each rank equal; last {losses[-1]}")


@pytest.mark.parametrize("version", RELEASES)
def test_older_release_is_observed_like_the_newest(tmp_path: Path, version: str) -> None:
    (tmp_path / "plan.yaml").write_text(
        "version: 1\nname: old\njob: {script: script.py, args: [out]}\ncluster: {hosts: {localhost: 2}, env: {OMP_NUM_THREADS: 1}}\n"
        "deepspeed: {train_micro_batch_size_per_gpu: 2}\n"
    )
    (tmp_path / "script.py").write_text((HERE.parent / "jobs/engine_script.py").read_text().replace("if rank == 1:", "if False:"))
    code, folder, said = headless(tmp_path, "plan.yaml", path=installed(version))
    if "ImportError" in said or "AttributeError: module 'torch" in said:
        pytest.skip(f"DeepSpeed {version} does not run with this torch: {said.strip().splitlines()[-1]}")
    assert code == 0, said[-4000:]
    for rank in (0, 1):
        assert [step.loss for step in engine_steps(folder, rank)] == [float(text) for text in printed(folder, rank)]
        kinds = {json.loads(line)["is"] for line in folder.engine(rank).read_text().splitlines()}
        assert {"start", "initialize", "step", "save", "evaluation"} <= kinds and "fault" not in kinds
    (made,) = [report for report in read_all(folder.engine(0)) if isinstance(report, EngineMade)]
    assert made.versions["deepspeed"].startswith(version) and made.groups["data"] == 2 and made.optimizer and made.stage == 2


def test_quickstart_is_probed(tmp_path: Path) -> None:
    env = {**os.environ, "DS_ACCELERATOR": "cpu", "XDG_STATE_HOME": str(tmp_path / "state")}
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "dstui", "probe", "quickstart"], cwd=tmp_path, env=env, capture_output=True, text=True, check=False
    )
    print(f"probe of the quickstart: {time.monotonic() - began:.1f} s")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "as in the Plan" in done.stdout and "nothing was trained or saved" in done.stdout and not list(tmp_path.glob("dstui_runs*"))


ODD = {
    # what is done: losses that the engine reports per printed loss, if not all of them
    "plain": 5, "hybrid": 5, "compile": 5, "several": 10, "nan": 5, "vector": 5, "subclass": 5, "thread": 5, "fork": 5, "exec": 3,
}  # fmt: skip
ODD_PLAN = """\
version: 1
name: odd
job: {{script: odd.py, args: ["kind={kind}", "{last}"]}}
cluster: {{hosts: {{localhost: 2}}, env: {{OMP_NUM_THREADS: 1, DS_ACCELERATOR: cpu}}}}
deepspeed: {{train_micro_batch_size_per_gpu: 2}}
"""


def odd(folder: Path, kind: str, last: str = "") -> tuple[int, JobFolder, str]:
    (folder / "odd.py").write_text((HERE / "hooked/odd.py").read_text())
    (folder / "plan.yaml").write_text(ODD_PLAN.format(kind=kind, last=last or kind))
    return headless(folder, "plan.yaml")


@pytest.mark.parametrize("kind", ODD)
def test_unusual_ways_to_train_are_observed_and_end_well(tmp_path: Path, kind: str) -> None:
    code, folder, said = odd(tmp_path, kind)
    assert code == 0, said[-3000:]
    for rank in (0, 1):
        losses = [float(text) for text in printed(folder, rank)]
        steps = engine_steps(folder, rank)
        assert len(steps) == len(losses) == ODD[kind], said[-3000:]
        reported = folder.engine(rank).read_text()
        assert '"is": "fault"' not in reported and reported.count('"is": "end"') == 1
        if kind != "vector":  # what was passed to backward is a sum there
            pairs = zip([step.loss for step in steps], losses, strict=True)
            assert all(a == b or (a is not None and math.isnan(a) and math.isnan(b)) for a, b in pairs), (steps, losses)
    if kind == "several":
        assert {step.model for step in engine_steps(folder, 0)} == {1, 2}
    if kind == "exec":
        assert folder.log(0).read_text().endswith("another program\n") and said.count(" has replaced itself with ") == 2, (
            said
        )  # at once and at the end


SENTENCES = {
    # what the script does: what the screen reports
    "plain": "never called deepspeed.initialize, but optimizers step",
    "other": "another configuration than the Plan's was read",
    "batch": "your script overrode train_micro_batch_size_per_gpu 2 with 8",
}
UNPLANNED = """\
version: 1
name: unplanned
job: {{script: unplanned.py, args: ["{kind}", "{{ds_config}}"], workdir: "{path}"}}
cluster: {{hosts: {{localhost: 2}}, env: {{OMP_NUM_THREADS: 1, DS_ACCELERATOR: cpu}}}}
deepspeed:
  train_micro_batch_size_per_gpu: 2
  gradient_clipping: 1.0
  optimizer: {{type: AdamW, params: {{lr: 1e-2, torch_adam: true}}}}
  zero_optimization: {{stage: 2, reduce_bucket_size: 1e6}}
"""


@pytest.mark.parametrize("kind", SENTENCES)
async def test_deviation_from_the_plan_is_on_the_screen_soon(tmp_path: Path, kind: str) -> None:
    (tmp_path / "unplanned.py").write_text((HERE / "hooked/unplanned.py").read_text())
    plan = load(UNPLANNED.format(kind=kind, path=tmp_path), "plan.yaml", str(tmp_path))
    launched = time.time()
    folder = start(Target(plan, Machine.unprobed()), run_dir=tmp_path / "job")
    app = DstuiApp(plan, None, Machine.unprobed(), folder, reference=False)
    try:
        async with app.run_test(size=(160, 50)) as pilot:
            while SENTENCES[kind] not in " ".join(screen(pilot).split()):
                assert time.time() - launched < 60, screen(pilot)
                await pilot.pause(0.05)
            said = time.time()
    finally:
        stop(folder)
    known = min(report.t for report in read_all(folder.engine(0)) if isinstance(report, (LoneOptimizer, EngineMade)))
    what = "optimizer's first step" if kind == "plain" else "call of deepspeed.initialize"
    print(f"{kind}: on the screen {said - launched:.1f} s after the launch, {said - known:.1f} s after the {what}")
    assert said - known < 10


def alone(folder: Path, script: str | Path, *words: str, hook: bool = True, python: str | Path = sys.executable) -> tuple[int, str]:
    """Run a script as the only rank under the shim; return exit status and log."""
    for part in ("logs", "ranks"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    env = {**os.environ, "RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29533"}
    hooks = [f"hook:engine:{HOOK.parent}"] if hook else []
    target = script if script == "-m" else HERE / "hooked" / script
    command = [python, SHIM, folder, "tag", *hooks, target, *words]
    done = subprocess.run(command, env={**env, "DS_ACCELERATOR": "cpu"}, check=False)
    return done.returncode, (folder / "logs/rank_0.log").read_text()


@pytest.mark.parametrize("kind", ["plain", "subclass", "several", "pipeline"])
def test_engine_idle_between_reported_steps_is_reported_correctly(tmp_path: Path, kind: str) -> None:
    code, log = alone(tmp_path / "hooked", "quick.py", kind)
    plain = alone(tmp_path / "plain", "quick.py", kind, hook=False)
    mine = [line.split()[1:] for line in log.splitlines() if line.startswith("mine ")]
    assert code == plain[0] == (1 if kind == "plain" else 0) and "\nclasses 2" in log and len(mine) in (2000, 4000), log[-3000:]
    assert mine == [line.split()[1:] for line in plain[1].splitlines() if line.startswith("mine ")]
    losses = {(int(number), int(step)): float(loss) for number, step, loss in mine}
    reports = list(read_all(tmp_path / "hooked/engine/rank_0.jsonl"))
    steps = [report for report in reports if isinstance(report, EngineStep)]
    assert [step.loss for step in steps] == [losses[step.model, step.step] for step in steps] and {step.micro_steps for step in steps} == {
        2
    }
    assert 200 < len(steps) < 500 and steps[-1].step > 1000 and '"fault"' not in (tmp_path / "hooked/engine/rank_0.jsonl").read_text()
    now = read_now(tmp_path / "hooked/engine/rank_0.json")
    assert now and now.step == 2000
    if kind == "plain":
        assert (now.phase, now.raised) == ("forward", "RuntimeError")
        assert [report.forwards for report in reports if isinstance(report, EvaluationDone)] == [3]


def test_million_steps_make_a_small_file(tmp_path: Path) -> None:
    """Runs 100,000 of them, or the number in DSTUI_STEPS."""
    steps = int(os.environ.get("DSTUI_STEPS", "100000"))
    code, log = alone(tmp_path / "hooked", "million.py", str(steps))
    plain = alone(tmp_path / "plain", "million.py", str(steps), hook=False)
    (mine, unobserved) = (next(line.split() for line in text.splitlines() if line.startswith("mine ")) for text in (log, plain[1]))
    assert code == plain[0] == 0 and mine[1] == unobserved[1], log[-3000:]
    file = tmp_path / "hooked/engine/rank_0.jsonl"
    reported = [report.step for report in read_all(file) if isinstance(report, EngineStep)]
    size, seconds = file.stat().st_size, steps / float(mine[3])
    print(
        f"{steps:,} steps at {mine[3]}/s ({unobserved[3]} unobserved): {len(reported)} reported, the last {reported[-1]:,}; {size:,} bytes"
    )
    assert reported == sorted(set(reported)) and reported[-1] > steps * (1 - 5 / seconds)
    assert len(reported) < 300 + 3 * seconds and size < 1000 * len(reported) + 20_000 and '"fault"' not in file.read_text()


@pytest.mark.parametrize("version", ["3.8", "3.9", "3.10", "3.11", "3.12", "3.13", "3.14"])
def test_each_python_is_observed(tmp_path: Path, version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Uses fake torch and DeepSpeed modules, since only one interpreter has the real ones."""
    python = Path(shutil.which(f"python{version}") or sys.executable)
    if kept := sorted((python.parent.parent / "versions").glob(f"{version}.*/bin/python")):
        python = kept[-1]  # pyenv's programs on the PATH only start the selected versions
    if subprocess.run([python, "-c", f"import sys; sys.exit('%d.%d' % sys.version_info[:2] != '{version}')"], check=False).returncode:
        pytest.skip(f"Python {version} is not installed")
    monkeypatch.setenv("PYTHONPATH", path := str(HERE / "hooked/without_torch"))
    code, log = alone(tmp_path, "any_python.py", str(tmp_path), python=python)
    assert code == 0 and f"stacks True\nbecame False {path}\n" in log, log
    steps = int(log.split()[1])
    reports = list(read_all(tmp_path / "engine/rank_0.jsonl"))
    taken = [report for report in reports if isinstance(report, EngineStep)]
    assert all(step.loss == math.cos(step.step - 1) and step.grad_norm == 1.5 for step in taken)
    assert 200 < len(taken) < 230 and taken[-1].step > steps / 2 and [type(report) for report in reports].count(HookEnded) == 1
    (engine,) = [report for report in reports if isinstance(report, EngineMade)]
    assert engine.parameters == 3 and not [report for report in reports if isinstance(report, HookFault)]
    print(f"Python {version}: {len(taken)} of {steps:,} steps reported, stacks, fork and exec as they should be")


@pytest.fixture
def editable(tmp_path: Path) -> Path:
    """Return an interpreter with this one's packages, in which DeepSpeed is an editable install of its source."""
    pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-build-isolation", "--no-binary", "deepspeed", "-d", tmp_path]
    env = {**os.environ, "DS_ACCELERATOR": "cpu"}
    if subprocess.run([*pip, f"deepspeed=={RELEASES[-1]}"], env=env, check=False).returncode:
        pytest.skip("DeepSpeed's source cannot be downloaded here")
    shutil.unpack_archive(tmp_path / f"deepspeed-{RELEASES[-1]}.tar.gz", tmp_path)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    (packages,) = (tmp_path / "venv/lib").glob("python3*/site-packages")
    for package in Path(get_paths()["purelib"]).iterdir():
        if not package.name.startswith("deepspeed"):
            (packages / package.name).symlink_to(package)
    python = tmp_path / "venv/bin/python"
    install = [python, "-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation", "-e", tmp_path / f"deepspeed-{RELEASES[-1]}"]
    subprocess.run(install, env=env, check=True)
    return python


def test_editable_install_of_deepspeed_is_observed(tmp_path: Path, editable: Path) -> None:
    code, log = alone(tmp_path / "run", "odd.py", "kind=plain", python=editable)
    reports = list(read_all(tmp_path / "run/engine/rank_0.jsonl"))
    assert code == 0 and [f"mine {report.loss!r}" for report in reports if isinstance(report, EngineStep)] == [
        line for line in log.splitlines() if line.startswith("mine ")
    ]
    where = [editable, "-c", "import deepspeed; print(deepspeed.__file__)"]
    found = subprocess.run(where, cwd=tmp_path, capture_output=True, text=True, check=True).stdout.splitlines()[-1]
    assert found == f"{tmp_path}/deepspeed-{RELEASES[-1]}/deepspeed/__init__.py"


CELLS = ("import os, runpy, sys", "%matplotlib --list", "runpy.run_path(os.environ['ODD'], run_name='__main__')")


@pytest.mark.parametrize("way", ["converted", "IPython"])
def test_notebook_is_observed(tmp_path: Path, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs the script that nbconvert makes of it, without magics, or the notebook itself in IPython, with them."""
    for module in ("nbconvert", "IPython"):
        pytest.importorskip(module)
    monkeypatch.setenv("ODD", str(HERE / "hooked/odd.py"))
    cell = {"cell_type": "code", "metadata": {}, "outputs": [], "execution_count": None}
    cells = [dict(cell, source=text) for text in CELLS if way == "IPython" or "%" not in text]
    notebook = tmp_path / "train.ipynb"
    notebook.write_text(json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 4}))
    words = ["-m", "IPython", "--", str(notebook), "kind=plain"]
    if way == "converted":
        subprocess.run([sys.executable, "-m", "nbconvert", "--to", "python", notebook], check=True, capture_output=True)
        words = [str(notebook.with_suffix(".py")), "kind=plain"]
    code, log = alone(tmp_path / "run", *words)
    steps = [f"mine {report.loss!r}" for report in read_all(tmp_path / "run/engine/rank_0.jsonl") if isinstance(report, EngineStep)]
    assert code == 0 and len(steps) == 5 and steps == [line for line in log.splitlines() if line.startswith("mine ")], log[-3000:]


def test_deleted_folder_and_a_kill_only_lose_lines(tmp_path: Path) -> None:
    code, folder, said = odd(tmp_path, "gone", str(tmp_path / "run0/engine"))
    assert code == 0, said[-3000:]
    assert len(printed(folder, 1)) == 5 and not folder.engine(0).exists()
    code, folder, said = odd(tmp_path, "kill", str(tmp_path / "run1/engine/rank_1.jsonl"))
    assert code == 137 and [step.step for step in engine_steps(folder, 1)] == [1, 2, 3], said[-3000:]


def test_full_disk_silences_the_hook_but_not_the_training(tmp_path: Path) -> None:
    disk = tmp_path / "run0" / "engine"
    disk.mkdir(parents=True)
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16k", "none", str(disk)], check=False).returncode:
        pytest.skip("mounting is not possible here")
    try:
        code, log = alone(disk.parent, "odd.py", "kind=plain")
        assert code == 0 and log.count("mine ") == 5, log
        assert "dstui" not in log and "No space" not in log
        assert (disk / "rank_0.jsonl").stat().st_size <= 16 << 10
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)
