"""Which interpreter checks a Plan: the user's answer about the interpreter that it names, and how long the answer holds."""

from __future__ import annotations

import os
import shutil
import sys
import venv
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from dstui.check.reference import ReferenceChecker, ReferenceFailure
from dstui.documents import trusted_python
from dstui.documents.trusted_python import (
    answer,
    describe_interpreter,
    is_own_interpreter,
    needs_consent,
    probe_python,
    remember,
    state_file,
)
from dstui.machine.child import run_lookup
from dstui.plan import Plan, load

Named = Callable[..., Plan]


@pytest.fixture
def plan_naming(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Named:
    """Return a function that creates an interpreter and a Plan which names it."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(trusted_python, "_of_this_process", [])

    def plan(python: str | None, file: str = "plan.yaml") -> Plan:
        text = "version: 1\njob: {script: train.py" + (f", python: {python}" if python else "") + "}\ndeepspeed: {}\n"
        return load(text, str(tmp_path / file), str(tmp_path))

    (tmp_path / "mine.sh").write_text("#!/bin/sh\n")
    (tmp_path / "mine.sh").chmod(0o755)
    return plan


def test_own_interpreter_checks_until_the_user_agrees(plan_naming: Named, tmp_path: Path) -> None:
    plan = plan_naming("./mine.sh")
    assert probe_python(plan) == sys.executable and needs_consent(plan) and answer(plan) is None
    remember(plan, True)
    assert probe_python(plan) == str(tmp_path / "mine.sh") and not needs_consent(plan)
    remember(plan, False)
    assert probe_python(plan) == sys.executable and answer(plan) is False and not needs_consent(plan), "a refusal is remembered too"
    assert state_file().stat().st_mode & 0o022 == 0, "nobody else can answer"


def test_consent_holds_for_the_program_under_any_plan(plan_naming: Named, tmp_path: Path) -> None:
    plan = plan_naming("./mine.sh")
    remember(plan, True)
    assert answer(plan_naming("./mine.sh", "other.yaml")) is True
    shutil.copy(tmp_path / "mine.sh", tmp_path / "yours.sh")
    assert answer(plan_naming("./yours.sh")) is None
    (tmp_path / "mine.sh").write_text("#!/bin/sh\ntouch harm\n")
    assert answer(plan) is None and probe_python(plan) == sys.executable, "another program is there now"


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    """Return the packages folder of a virtual environment of the user."""
    venv.create(tmp_path / "venv", symlinks=True)
    (packages,) = (tmp_path / "venv/lib").glob("python3*/site-packages")
    for folder in (packages, *packages.parents):
        if folder.is_relative_to(tmp_path):
            folder.chmod(0o755)
    return packages


@pytest.mark.parametrize("name", ["sitecustomize.py", "usercustomize.py", "more.pth"])
def test_consent_covers_files_that_run_at_environment_start(plan_naming: Named, environment: Path, name: str) -> None:
    plan = plan_naming("venv/bin/python")
    remember(plan, True)
    assert answer(plan) is True
    (environment / name).write_text("import os\n")
    assert answer(plan) is None and needs_consent(plan)
    remember(plan, True)
    (environment / name).write_text("import os, sys\n")
    assert answer(plan) is None


@pytest.mark.parametrize("place", ["venv/bin/python", "venv/pyvenv.cfg", "venv", "venv/lib", "packages", "."])
def test_consent_is_not_saved_for_environments_writable_by_others(
    plan_naming: Named, environment: Path, tmp_path: Path, place: str
) -> None:
    plan = plan_naming("venv/bin/python")
    if place == "venv/bin/python":  # a program, not a link
        (tmp_path / place).unlink()
        shutil.copy(tmp_path / "mine.sh", tmp_path / place)
    found = environment if place == "packages" else tmp_path / place
    found.chmod(found.stat().st_mode | 0o002)
    remember(plan, True)
    assert answer(plan) is True
    assert str(found) in describe_interpreter(plan) and "asked in each session" in describe_interpreter(plan)
    assert not state_file().exists()
    trusted_python._of_this_process.clear()
    assert answer(plan) is None, "the next process asks again"


def test_consent_is_asked_again_when_an_environment_became_writable(plan_naming: Named, environment: Path) -> None:
    plan = plan_naming("venv/bin/python")
    remember(plan, True)
    trusted_python._of_this_process.clear()
    assert answer(plan) is True and describe_interpreter(plan) == ""
    environment.chmod(0o777)
    assert answer(plan) is None and probe_python(plan) == sys.executable


def test_check_ignores_pythonpath_and_user_site_packages(
    plan_naming: Named, environment: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, planted, canary = plan_naming("venv/bin/python"), tmp_path / "planted", tmp_path / "canary"
    remember(plan, True)
    user_site = tmp_path / "user" / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"
    for folder, name in ((planted, "sitecustomize.py"), (user_site, "usercustomize.py")):
        folder.mkdir(parents=True)
        (folder / name).write_text(f"open({str(canary)!r}, 'w')\n")
    monkeypatch.setenv("PYTHONPATH", str(planted))
    monkeypatch.setenv("PYTHONUSERBASE", str(tmp_path / "user"))
    software = dict(run_lookup("software", 60.0, python=probe_python(plan)))["software"]
    assert software["python_path"] == str(tmp_path / "venv/bin/python")
    with suppress(ReferenceFailure), ReferenceChecker(probe_python(plan)) as checker:
        checker.types()
    assert not canary.exists()
    (environment / "sitecustomize.py").write_text(f"open({str(canary)!r}, 'w')\n")
    monkeypatch.delenv("PYTHONPATH")
    run_lookup("software", 60.0, python=probe_python(plan))
    assert not canary.exists(), "dstui's own interpreter is used until the user agrees again"


def test_another_virtual_environment_needs_its_own_consent(plan_naming: Named, tmp_path: Path) -> None:
    venv.create(tmp_path / "venv", symlinks=True)
    plan = plan_naming("venv/bin/python")
    assert not is_own_interpreter(plan) and needs_consent(plan)
    assert Path(os.path.realpath(tmp_path / "venv/bin/python")) == Path(os.path.realpath(sys.executable))
    remember(plan, True)
    (tmp_path / "venv/bin/python").unlink()
    (tmp_path / "venv/bin/python").symlink_to(tmp_path / "mine.sh")
    assert answer(plan) is None, "the link has another target now"


@pytest.mark.parametrize("python", [None, sys.executable, str(Path(sys.executable).with_name("python"))])
def test_own_interpreter_needs_no_consent(python: str | None, plan_naming: Named) -> None:
    plan = plan_naming(python)
    assert is_own_interpreter(plan) and probe_python(plan) == sys.executable and not needs_consent(plan)


@pytest.mark.parametrize("python", ["./not-there", "no-such-program-at-all", "rm"])
def test_missing_program_is_not_asked_about_but_one_on_the_path_is(python: str, plan_naming: Named) -> None:
    plan = plan_naming(python)
    assert probe_python(plan) == sys.executable and needs_consent(plan) is (python == "rm")


def test_consent_that_cannot_be_saved_holds_for_this_process(plan_naming: Named, tmp_path: Path) -> None:
    (tmp_path / "state").write_text("no folder")
    plan = plan_naming("./mine.sh")
    remember(plan, True)
    assert answer(plan) is True
    remember(plan, False)
    assert answer(plan) is False


@pytest.mark.parametrize("text", ["", "[", '{"a": 1}', "[1, null, {}]", '[{"plan": 3}]'])
def test_broken_consent_file_counts_as_empty(text: str, plan_naming: Named) -> None:
    state_file().parent.mkdir(parents=True)
    state_file().write_text(text)
    plan = plan_naming("./mine.sh")
    assert answer(plan) is None
    remember(plan, True)
    assert answer(plan) is True
