"""The file of the user's settings: read tolerantly, edited in place, errors reported with lines, described by a schema."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from dstui.site.settings import SETTINGS, first_settings, read_settings, with_setting
from tests.command import dstui
from tests.terminal import Terminal

OTHERS = {"theme": "nord", "columns": ["name", "loss"], "bell": "failed", "timestamps": "none", "pinned": ["loss"]}
WRONG = """\
# mine
version: 1
theme: neon
wrap: maybe
belll: on
columns: [name, 3, {}]
keys: {launch: f9, lunch: x, stop: []}
defaults:
  deepspeed: {steps_per_print: 20}
"""


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the path of this test's settings file."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (tmp_path / "dstui").mkdir()
    return tmp_path / "dstui" / "settings.yaml"


def test_first_file_is_all_comments_and_settings_replace_theirs() -> None:
    text = first_settings()
    assert read_settings(text, "s.yaml", "/").values == {}
    for setting in SETTINGS:
        chosen = OTHERS.get(setting.name, ["loss"] if setting.default == () else not setting.default)
        changed = with_setting(text, setting.name, chosen)
        assert read_settings(changed, "s.yaml", "/").values == {setting.name: chosen}
        assert len(changed.splitlines()) == len(text.splitlines()), "the comment with the default became the setting"
    lines = [re.sub(r"^# (?=[a-z_]+:|  )", "", line) for line in text.splitlines()]
    assert read_settings("\n".join(lines), "s.yaml", "/").problems == (), "removing the # is enough"


def test_every_other_byte_stays() -> None:
    text = "# mine\nversion: 1\n\ntheme:   nord   # as at home\ndefaults: {deepspeed: {steps_per_print: 5e1}}  # hot\n"
    assert with_setting(text, "theme", "dstui") == text.replace("nord", "dstui")
    assert with_setting(text, "wrap", True).replace("wrap: true\n", "") == text


def test_mistake_only_disables_its_setting() -> None:
    found = read_settings(WRONG, "s.yaml", "/")
    assert found.values == {"theme": "neon"} and found.keys == {"launch": ("f9",), "lunch": ("x",)}
    assert found.layer is not None and found.layer.values() == {"deepspeed": {"steps_per_print": 20}}
    assert [problem.line for problem in found.problems] == [4, 5, 6, 7]


def test_plan_takes_its_defaults_and_reports_only_what_concerns_it(config: Path, tmp_path: Path) -> None:
    (tmp_path / "plan.yaml").write_text("version: 1\njob: {script: train.py}\ndeepspeed: {train_batch_size: 4}\n")
    config.write_text(WRONG)
    told = dstui("explain", "plan.yaml", "steps_per_print", cwd=tmp_path)
    assert "20" in told.stdout and "settings.yaml:5: belll: unknown key; did you mean 'bell'?" in told.stdout + told.stderr
    assert "wrap" not in told.stdout + told.stderr


def test_check_names_each_mistake_with_its_line(config: Path) -> None:
    config.write_text(WRONG)
    checked = dstui("settings", "--check")
    lines = checked.stdout.splitlines()
    assert checked.returncode == 1 and [line.partition(": ")[0].rpartition(":")[2] for line in lines[:-1]] == ["3", "4", "5", "6", "7", "7"]
    assert "did you mean 'launch'" in checked.stdout
    config.write_text("theme: dstui-light\n")
    assert dstui("settings", "--check").returncode == 0
    config.unlink()
    assert dstui("settings", "--check").returncode == 0
    assert "# theme: dstui" in dstui("settings").stdout, "without a terminal the file is printed"
    assert not config.exists()


def test_check_names_keys_of_the_defaults_that_deepspeed_does_not_know(config: Path) -> None:
    config.write_text("version: 1\ndefaults:\n  deepspeed:\n    gradient_cliping: 1.0\n    zero_optimization:\n      overlap_com: true\n")
    checked = dstui("settings", "--check")
    assert checked.returncode == 1
    assert (
        "settings.yaml:4: defaults.deepspeed.gradient_cliping: " in checked.stdout and "did you mean gradient_clipping?" in checked.stdout
    )
    assert "settings.yaml:6: defaults.deepspeed.zero_optimization.overlap_com: " in checked.stdout
    config.write_text("version: 1\ndefaults:\n  deepspeed: {gradient_clipping: auto, zero_optimization: {stage: 3}}\n")
    assert dstui("settings", "--check").returncode == 0


def test_schema_accepts_and_refuses_like_the_reader() -> None:
    schema = json.loads(dstui("settings", "--schema").stdout)
    judge = Draft202012Validator(schema)
    Draft202012Validator.check_schema(schema)
    assert [*judge.iter_errors({"version": 1, **OTHERS, "wrap": True, "keys": {"launch": ["f9"]}, "defaults": {"deepspeed": {}}})] == []
    assert judge.is_valid({"version": 1, "defaults": {"models": {"actor": {"deepspeed": {}}}}})
    wrong = ({"theme": 7}, {"bell": "loud"}, {"keys": {"lunch": "x"}}, {"columns": "name"}, {"more": 1}, {"defaults": {"job": 3}})
    assert all(not judge.is_valid(one) for one in wrong)


def test_editor_opens_the_file_and_the_result_is_checked(config: Path, tmp_path: Path) -> None:
    editor = tmp_path / "vi"
    editor.write_text('#!/bin/sh\nsed -i "s/^# theme: dstui/theme: neon/" "$2"\n')
    editor.chmod(0o755)
    terminal = Terminal([sys.executable, "-m", "dstui", "settings"], cwd=str(tmp_path), env={"VISUAL": str(editor)})
    try:
        terminal.wait("1 wrong")
        assert terminal.exit_code() == 1
    finally:
        terminal.close()
    assert "\ntheme: neon\n" in config.read_text()
