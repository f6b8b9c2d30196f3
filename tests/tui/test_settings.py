"""The user's settings in a session: remembered, remapped keys, errors reported, and never an obstacle."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dstui.site.installed import settings_path
from dstui.tui.kit.keys import key_of
from dstui.tui.kit.styles import LIGHT
from dstui.tui.session.settings import remember, setting
from tests.tui.conftest import Open, store, text_of, until, value
from tests.tui.test_screens import render


@pytest.fixture(autouse=True)
def config_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Use a separate configuration folder for each test."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return tmp_path / "config"


def write(text: str) -> None:
    settings_path().parent.mkdir(parents=True, exist_ok=True)
    settings_path().write_text(text)


async def test_theme_of_the_last_session_is_restored(open_app: Open) -> None:
    async with open_app() as pilot:
        assert pilot.app.theme == "dstui"
        pilot.app.theme = "dstui-light"
        await until(pilot, lambda: setting("theme") == "dstui-light")
        await until(pilot, lambda: pilot.app.screen.styles.background.brightness > 0.5)
        chosen = render(pilot)
    assert "\ntheme: dstui-light\n" in settings_path().read_text()
    async with open_app() as pilot:
        assert pilot.app.theme == "dstui-light"
        await until(pilot, lambda: render(pilot) == chosen)


@pytest.mark.parametrize("text", ["{", "[1]", "\0\xff"])
async def test_unreadable_file_is_reported_and_kept(open_app: Open, text: str) -> None:
    write(text)
    async with open_app() as pilot:
        assert pilot.app.theme == "dstui"
        await until(pilot, lambda: any("settings.yaml" in note.message for note in pilot.app._notifications))
    assert remember("theme", "dstui-light")
    assert settings_path().read_text() == text


async def test_mistake_disables_only_its_setting_and_is_reported_with_its_line(open_app: Open) -> None:
    write("theme: no-such-theme\nwrap: maybe\nkeys:\n  next-step: ')'\n  undo: [u, F7]\n  redo: u\n  lunch: f9\n")
    async with open_app() as pilot:
        await until(pilot, lambda: len(pilot.app._notifications) == 4)
        told = "\n".join(note.message for note in pilot.app._notifications)
        for line, words in (
            (1, "no theme is called"),
            (2, "wrap: expected true or false"),
            (6, "'u' is the key of 'undo'"),
            (7, "did you mean 'launch'"),
        ):
            assert f"settings.yaml:{line}: " in told and words in told
        assert (pilot.app.theme, setting("wrap")) == ("dstui", False)
        await pilot.press("3", "down", "space", "u")
        await until(pilot, lambda: not store(pilot).can_undo and store(pilot).can_redo)


async def test_remapped_keys_act_and_are_shown(open_app: Open) -> None:
    write("keys: {fix: e, next-step: ')', launch: ctrl+g, help: f6}\n")
    async with open_app() as pilot:
        before = pilot.app.main.step
        await pilot.press("]")
        assert pilot.app.main.step is before
        await pilot.press(")")
        await until(pilot, lambda: pilot.app.main.step is not before)
        assert "[ ) step" in text_of(pilot, "#footer") and "F6 help" in text_of(pilot, "#footer")
        await pilot.press("f6")
        await until(pilot, lambda: "ctrl+g   Go to Review" in text_of(pilot, "#help"))
        await pilot.press("escape", "ctrl+g")
        await until(pilot, lambda: "ctrl+g launch" in text_of(pilot, "#footer"))
        assert key_of("launch") == "ctrl+g"
    assert key_of("launch") == "l"  # the session has ended


def test_state_of_an_older_version_is_used_and_moved_at_the_first_change() -> None:
    old = settings_path().with_suffix(".json")
    old.parent.mkdir(parents=True)
    old.write_text('{"wrap": true, "theme": "nord", "timestamps": 7, "of": "another"}')
    write("# mine\nversion: 1\ntheme: dstui-light  # bright\n")
    assert (setting("wrap"), setting("theme"), setting("timestamps")) == (True, "dstui-light", "clock")
    assert remember("dashboard", False) == ""
    assert settings_path().read_text() == "# mine\nversion: 1\ntheme: dstui-light  # bright\nwrap: true\ndashboard: false\n"
    assert not old.exists()


def test_unwritable_folder_is_no_error(config_folder: Path) -> None:
    config_folder.write_text("a file")
    assert "config" in remember("theme", "dstui-light")
    assert setting("theme") == "dstui"


async def test_session_without_remapped_keys_has_the_defaults(open_app: Open) -> None:
    async with open_app() as pilot:
        await pilot.press("3", "down", "space")
        changed = value(pilot, "deepspeed.zero_optimization.stage")
        await pilot.press("z")
        await until(pilot, lambda: value(pilot, "deepspeed.zero_optimization.stage") != changed or store(pilot).can_redo)
    assert key_of("launch") == "l"


def test_a_theme_of_the_environment_has_its_own_colours() -> None:
    """Textual reads the variable when it is imported, so in a process of its own."""
    program = "from dstui.tui.app import DstuiApp; print(DstuiApp(None, None, None).stylesheet._variables['background'])"
    environment = {**os.environ, "TEXTUAL_THEME": "dstui-light"}
    printed = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False).stdout
    assert printed.strip().lower() == LIGHT.background
