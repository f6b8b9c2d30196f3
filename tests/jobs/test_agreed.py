"""Which interpreter looks for a Plan: what the user said about the one that it names, and how long that holds."""

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
from dstui.documents.trusted_python import answer, describe_interpreter, is_own_interpreter, probe_python, remember, state_file, to_be_asked
from dstui.machine.child import run_lookup
from dstui.plan import Plan, load

Named = Callable[..., Plan]


@pytest.fixture
def named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Named:
    """`named("./mine.sh")`: a Plan in a folder of its own that names such an interpreter, which is there."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(trusted_python, "_of_this_process", [])

    def plan(python: str | None, file: str = "plan.yaml") -> Plan:
        text = "version: 1\njob: {script: train.py" + (f", python: {python}" if python else "") + "}\ndeepspeed: {}\n"
        return load(text, str(tmp_path / file), str(tmp_path))

    (tmp_path / "mine.sh").write_text("#!/bin/sh\n")
    (tmp_path / "mine.sh").chmod(0o755)
    return plan


def test_dstuis_own_interpreter_looks_until_somebody_agreed(named: Named, tmp_path: Path) -> None:
    plan = named("./mine.sh")
    assert probe_python(plan) == sys.executable and to_be_asked(plan) and answer(plan) is None
    remember(plan, True)
    assert probe_python(plan) == str(tmp_path / "mine.sh") and not to_be_asked(plan)
    remember(plan, False)
    assert probe_python(plan) == sys.executable and answer(plan) is False and not to_be_asked(plan), "a no is remembered too"
    assert state_file().stat().st_mode & 0o022 == 0, "nobody else may answer"


def test_the_answer_holds_for_this_program_whichever_plan_names_it(named: Named, tmp_path: Path) -> None:
    plan = named("./mine.sh")
    remember(plan, True)
    assert answer(named("./mine.sh", "other.yaml")) is True
    shutil.copy(tmp_path / "mine.sh", tmp_path / "yours.sh")
    assert answer(named("./yours.sh")) is None
    (tmp_path / "mine.sh").write_text("#!/bin/sh\ntouch harm\n")
    assert answer(plan) is None and probe_python(plan) == sys.executable, "another program stands there now"


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    """A virtual environment of the user's own; the folder of its packages."""
    venv.create(tmp_path / "venv", symlinks=True)
    (packages,) = (tmp_path / "venv/lib").glob("python3*/site-packages")
    for folder in (packages, *packages.parents):
        if folder.is_relative_to(tmp_path):
            folder.chmod(0o755)
    return packages


@pytest.mark.parametrize("name", ["sitecustomize.py", "usercustomize.py", "more.pth"])
def test_what_runs_at_the_start_of_an_environment_is_part_of_what_was_agreed(named: Named, environment: Path, name: str) -> None:
    plan = named("venv/bin/python")
    remember(plan, True)
    assert answer(plan) is True
    (environment / name).write_text("import os\n")
    assert answer(plan) is None and to_be_asked(plan)
    remember(plan, True)
    (environment / name).write_text("import os, sys\n")
    assert answer(plan) is None


@pytest.mark.parametrize("place", ["venv/bin/python", "venv/pyvenv.cfg", "venv", "venv/lib", "packages", "."])
def test_where_others_may_write_an_environment_the_answer_is_this_process_own(
    named: Named, environment: Path, tmp_path: Path, place: str
) -> None:
    plan = named("venv/bin/python")
    if place == "venv/bin/python":  # a program of its own, not a link
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


def test_an_environment_that_was_closed_when_it_was_agreed_to_and_is_open_now_is_asked_about(named: Named, environment: Path) -> None:
    plan = named("venv/bin/python")
    remember(plan, True)
    trusted_python._of_this_process.clear()
    assert answer(plan) is True and describe_interpreter(plan) == ""
    environment.chmod(0o777)
    assert answer(plan) is None and probe_python(plan) == sys.executable


def test_looking_imports_nothing_from_pythonpath_and_the_users_own_packages(
    named: Named, environment: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, planted, canary = named("venv/bin/python"), tmp_path / "planted", tmp_path / "canary"
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
    assert not canary.exists(), "dstui's own looks, until somebody agrees again"


def test_another_virtual_environment_is_another_interpreter_though_it_links_to_the_same_program(named: Named, tmp_path: Path) -> None:
    venv.create(tmp_path / "venv", symlinks=True)
    plan = named("venv/bin/python")
    assert not is_own_interpreter(plan) and to_be_asked(plan)
    assert Path(os.path.realpath(tmp_path / "venv/bin/python")) == Path(os.path.realpath(sys.executable))
    remember(plan, True)
    (tmp_path / "venv/bin/python").unlink()
    (tmp_path / "venv/bin/python").symlink_to(tmp_path / "mine.sh")
    assert answer(plan) is None, "the link leads elsewhere now"


@pytest.mark.parametrize("python", [None, sys.executable, str(Path(sys.executable).with_name("python"))])
def test_nothing_is_asked_about_dstuis_own_interpreter(python: str | None, named: Named) -> None:
    plan = named(python)
    assert is_own_interpreter(plan) and probe_python(plan) == sys.executable and not to_be_asked(plan)


@pytest.mark.parametrize("python", ["./not-there", "no-such-program-at-all", "rm"])
def test_a_program_that_is_not_there_is_not_asked_about_and_one_of_the_path_is(python: str, named: Named) -> None:
    plan = named(python)
    assert probe_python(plan) == sys.executable and to_be_asked(plan) is (python == "rm")


def test_an_answer_that_cannot_be_kept_holds_for_this_process(named: Named, tmp_path: Path) -> None:
    (tmp_path / "state").write_text("no folder")
    plan = named("./mine.sh")
    remember(plan, True)
    assert answer(plan) is True
    remember(plan, False)
    assert answer(plan) is False


@pytest.mark.parametrize("text", ["", "[", '{"a": 1}', "[1, null, {}]", '[{"plan": 3}]'])
def test_a_broken_memory_is_none(text: str, named: Named) -> None:
    state_file().parent.mkdir(parents=True)
    state_file().write_text(text)
    plan = named("./mine.sh")
    assert answer(plan) is None
    remember(plan, True)
    assert answer(plan) is True
