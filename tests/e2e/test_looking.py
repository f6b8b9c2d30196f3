"""Looking executes nothing in a folder: an interpreter named by a Plan, modules named like libraries, relative PYTHONPATH entries."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.launcher_path import BARE_LAUNCHER
from tests.terminal import Terminal

PLAN = """\
version: 1
name: cloned
job: {script: train.py, args: [--deepspeed_config, "{ds_config}"], python: ./evil.sh}
cluster: {cpu_ranks: 2}
deepspeed:
  train_micro_batch_size_per_gpu: 1
  optimizer: {type: AdamW, params: {lr: 1e-3, torch_adam: true}}
"""
SCRIPT = str(Path(sys.executable).with_name("dstui"))

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def cloned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder as it may come with a repository; whatever of it is executed or imported leaves a file in `harm/`."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    folder, harm = tmp_path / "cloned", tmp_path / "harm"
    folder.mkdir()
    harm.mkdir()
    trace = f"open({str(harm)!r} + '/' + __name__, 'w')\n"
    for name in ("torch", "json", "yaml", "hjson", "pynvml", "sitecustomize", "usercustomize"):
        (folder / f"{name}.py").write_text(trace)
    (folder / "deepspeed").mkdir()
    (folder / "deepspeed" / "__init__.py").write_text(trace)
    (folder / "evil.sh").write_text(f'#!/bin/sh\ntouch {harm}/evil.sh\nexec {sys.executable} "$@"\n')
    (folder / "evil.sh").chmod(0o755)
    (folder / "train.py").write_text("import deepspeed, argparse\n")
    (folder / "plan.yaml").write_text(PLAN)
    (folder / "mpi.yaml").write_text(PLAN.replace("cpu_ranks: 2", "launcher: openmpi, hosts: {localhost: 2}"))
    return folder


@pytest.fixture
def run(cloned: Path) -> Run:
    """Return `run("check", "plan.yaml")`, which runs there with the empty PYTHONPATH entry that `export PYTHONPATH=$X:` leaves."""

    def do(*args: str, path: str | None = None) -> subprocess.CompletedProcess[str]:
        env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        if path is not None:
            env["PYTHONPATH"] = path
        return subprocess.run([SCRIPT, *args], cwd=cloned, env=env, capture_output=True, text=True, check=False)

    return do


def hand_over(cloned: Path, before: str) -> None:
    """Let the Plan's interpreter run `before`, then hand its program to the interpreter that has imported DeepSpeed (tests/warm_deepspeed.py)."""
    program = f'#!/bin/sh\n{before}\n[ "$1" = -I ] && shift\nPYTHONPATH={BARE_LAUNCHER} exec {sys.executable} "$@"\n'
    (cloned / "evil.sh").write_text(program)


def executed_canaries(cloned: Path) -> list[str]:
    return sorted(path.name for path in (cloned.parent / "harm").iterdir())


@pytest.mark.parametrize(
    "args",
    [
        ("check", "plan.yaml"),
        ("render", "plan.yaml"),
        ("--headless", "plan.yaml", "--dry-run"),
        ("machine",),
        ("doctor", "plan.yaml", "--deep"),
        ("doctor", "mpi.yaml"),
    ],
    ids=" ".join,
)
def test_looking_command_executes_nothing_of_the_folder(args: tuple[str, ...], run: Run, cloned: Path) -> None:
    done = run(*args)
    assert "Traceback" not in done.stderr
    assert executed_canaries(cloned) == [], done.stdout + done.stderr
    assert done.returncode == (1 if "doctor" in args and "✖" in done.stdout else 0), done.stdout + done.stderr


def test_python_m_dstui_imports_no_module_of_the_folder(cloned: Path) -> None:
    done = subprocess.run([sys.executable, "-m", "dstui", "check", "plan.yaml"], cwd=cloned, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and executed_canaries(cloned) == []


def test_child_processes_have_no_path_entry_for_the_current_folder(cloned: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from dstui.base import child_python

    (cloned / "lib").mkdir()
    monkeypatch.chdir(cloned)
    elsewhere = str(cloned.parent / "elsewhere")
    for path, kept in (("", None), (f":{elsewhere}:", elsewhere), (f".:lib:{cloned}:{elsewhere}", elsewhere)):
        monkeypatch.setenv("PYTHONPATH", path)
        env = child_python.environment()
        assert env.get("PYTHONPATH") == kept
        shown = subprocess.run(
            [sys.executable, "-c", "import sys; print(sys.path)"],
            cwd=child_python.NEUTRAL,
            env=env,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        assert str(cloned) not in shown


def test_relative_pythonpath_leads_no_reference_into_the_folder(cloned: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from dstui.check.reference import ReferenceChecker

    monkeypatch.chdir(cloned)
    monkeypatch.setenv("PYTHONPATH", f":.:{cloned}")
    with ReferenceChecker() as reference:
        assert reference.validate({"train_micro_batch_size_per_gpu": 1}, 1).ok
    assert executed_canaries(cloned) == []


def test_command_names_the_judging_interpreter_and_remembers_consent(run: Run, cloned: Path) -> None:
    def reference(*more: str, path: str | None = None) -> tuple[str, list[str]]:
        told = json.loads(run("check", "plan.yaml", "--oracle", "parse", "--json", *more, path=path).stdout)["files"][0]
        return told["oracle"]["python"], [d["message"] for d in told["diagnostics"] if d["path"] == "job.python"]

    python, said = reference(path=BARE_LAUNCHER)  # may be a forked interpreter, whose imports are tested above
    assert python.startswith(str(Path(sys.executable).parent)) and "dstui's own Python was used, not ./evil.sh" in said[0]
    assert executed_canaries(cloned) == []
    assert reference("--trust-python") == (str(cloned / "evil.sh"), [])
    assert executed_canaries(cloned) == ["evil.sh"], "it ran, but imported nothing from the folder"
    remembered = reference(path=BARE_LAUNCHER)
    assert remembered == (str(cloned / "evil.sh"), [])


def test_doctor_says_that_it_did_not_ask_and_asks_with_consent(run: Run, cloned: Path) -> None:
    def checks(*more: str) -> dict[str, str]:
        told = json.loads(run("doctor", "plan.yaml", "--json", *more).stdout)["checks"]
        return {check["id"]: f"{check['verdict']} {check['seen']} {check['fix']}" for check in told}

    hand_over(cloned, f"touch {cloned.parent}/harm/evil.sh")
    before = checks()
    assert before["python"].startswith(f"warn {cloned}/evil.sh, which the Plan names, was not run") and "--trust-python" in before["python"]
    assert before["deepspeed"].startswith("skipped")
    assert executed_canaries(cloned) == []
    after = checks("--trust-python")
    assert after["python"].startswith("ok") and after["deepspeed"].startswith("ok torch")
    assert executed_canaries(cloned) == ["evil.sh"]


@pytest.mark.parametrize("yes", [False, True])
def test_tui_asks_once_and_names_the_judging_deepspeed(yes: bool, cloned: Path) -> None:
    hand_over(cloned, f"touch {cloned.parent}/harm/evil.sh")
    terminal = Terminal([SCRIPT, "plan.yaml"], cwd=str(cloned))
    try:
        terminal.wait("Another interpreter", "evil.sh")
        assert executed_canaries(cloned) == []
        terminal.press("y" if yes else "n")
        terminal.wait_gone("Another interpreter")
        terminal.press("3")
        if yes:
            terminal.wait("Checks", "╰", " DeepSpeed ")
            terminal.wait_gone("dstui's DeepSpeed")
        else:
            terminal.wait("dstui's DeepSpeed")
        terminal.press("q")
        assert terminal.exit_code() == 0
    finally:
        terminal.close()
    assert executed_canaries(cloned) == (["evil.sh"] if yes else [])
    again = Terminal([SCRIPT, "plan.yaml"], cwd=str(cloned))
    try:
        again.wait("1 · Machine")
        again.press("3")
        again.wait("DeepSpeed 0." if yes else "dstui's DeepSpeed")
        assert "Another interpreter" not in again.text
    finally:
        again.close()


def test_doctor_puts_no_password_of_a_plan_on_a_command_line(run: Run, cloned: Path, tmp_path: Path) -> None:
    """Command lines are visible to every user; here the Plan's interpreter, which runs after consent, prints its own."""
    proxy = "http://user:correct-horse@127.0.0.1:9"
    words = tmp_path / "words"
    hand_over(cloned, f'printf "%s\\n" "$@" >> {words}')
    plan = PLAN.replace("cluster: {", f"cluster: {{env: {{https_proxy: '{proxy}'}}, ") + "model: {source: nobody/nothing-like-it}\n"
    (cloned / "plan.yaml").write_text(plan)
    ran = run("doctor", "plan.yaml", "--trust-python", "--json")
    assert words.exists(), ran.stderr
    assert "ready.py" in words.read_text() and "correct-horse" not in words.read_text()
    assert "127.0.0.1:9" in ran.stdout or "refused" in ran.stdout, "the proxy was used"
