"""Which interpreter looks for a Plan: what the user said about the one that it names, and how long that holds."""

from __future__ import annotations

import os
import shutil
import sys
import venv
from collections.abc import Callable
from pathlib import Path

import pytest

from dstui.plan import Plan, load
from dstui.trusted_python import answer, own, probe_python, remember, state_file, to_be_asked

Named = Callable[..., Plan]


@pytest.fixture
def named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Named:
    """`named("./mine.sh")`: a Plan in a folder of its own that names such an interpreter, which is there."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))

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


def test_the_answer_holds_for_this_plan_and_this_program_only(named: Named, tmp_path: Path) -> None:
    plan = named("./mine.sh")
    remember(plan, True)
    assert answer(named("./mine.sh", "other.yaml")) is None
    assert answer(named("./mine.sh", "../" + tmp_path.name + "/plan.yaml")) is True, "the same file by another path"
    shutil.copy(tmp_path / "mine.sh", tmp_path / "yours.sh")
    assert answer(named("./yours.sh")) is None
    (tmp_path / "mine.sh").write_text("#!/bin/sh\ntouch harm\n")
    assert answer(plan) is None and probe_python(plan) == sys.executable, "another program stands there now"


def test_another_virtual_environment_is_another_interpreter_though_it_links_to_the_same_program(named: Named, tmp_path: Path) -> None:
    venv.create(tmp_path / "venv", symlinks=True)
    plan = named("venv/bin/python")
    assert not own(plan) and to_be_asked(plan)
    assert Path(os.path.realpath(tmp_path / "venv/bin/python")) == Path(os.path.realpath(sys.executable))
    remember(plan, True)
    (tmp_path / "venv/bin/python").unlink()
    (tmp_path / "venv/bin/python").symlink_to(tmp_path / "mine.sh")
    assert answer(plan) is None, "the link leads elsewhere now"


@pytest.mark.parametrize("python", [None, sys.executable, str(Path(sys.executable).with_name("python"))])
def test_nothing_is_asked_about_dstuis_own_interpreter(python: str | None, named: Named) -> None:
    plan = named(python)
    assert own(plan) and probe_python(plan) == sys.executable and not to_be_asked(plan)


@pytest.mark.parametrize("python", ["./not-there", "no-such-program-at-all", "rm"])
def test_a_program_that_is_not_there_is_not_asked_about_and_one_of_the_path_is(python: str, named: Named) -> None:
    plan = named(python)
    assert probe_python(plan) == sys.executable and to_be_asked(plan) is (python == "rm")


@pytest.mark.parametrize("text", ["", "[", '{"a": 1}', "[1, null, {}]", '[{"plan": 3}]'])
def test_a_broken_memory_is_none(text: str, named: Named) -> None:
    state_file().parent.mkdir(parents=True)
    state_file().write_text(text)
    plan = named("./mine.sh")
    assert answer(plan) is None
    remember(plan, True)
    assert answer(plan) is True
