"""What is remembered from one session to the next, and that a file nobody can read or write is no obstacle."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dstui.tui.session.settings import remember, remembered, settings_file
from tests.tui.conftest import Open, until
from tests.tui.test_screens import looks


@pytest.fixture(autouse=True)
def config_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A configuration folder of its own for each test."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return tmp_path / "config"


async def test_the_theme_is_that_of_the_last_session(open_app: Open) -> None:
    async with open_app() as pilot:
        assert pilot.app.theme == "dstui"
        pilot.app.theme = "dstui-light"
        await until(pilot, lambda: remembered() == {"theme": "dstui-light"})
        await until(pilot, lambda: pilot.app.screen.styles.background.brightness > 0.5)
        chosen = looks(pilot)
    async with open_app() as pilot:
        assert pilot.app.theme == "dstui-light"
        await until(pilot, lambda: looks(pilot) == chosen)


@pytest.mark.parametrize("text", ["", "{", "[1]", '"dstui-light"', "\0\xff"])
async def test_settings_that_cannot_be_read_are_as_if_not_there_and_stay_as_they_are(open_app: Open, text: str) -> None:
    settings_file().parent.mkdir(parents=True)
    settings_file().write_text(text)
    async with open_app() as pilot:
        assert pilot.app.theme == "dstui"
    remember("theme", "dstui-light")
    assert settings_file().read_text() == text


@pytest.mark.parametrize("theme", [7, "no-such-theme", None])
async def test_a_theme_that_is_none_is_passed_over(open_app: Open, theme: object) -> None:
    remember("theme", theme)
    async with open_app() as pilot:
        assert pilot.app.theme == "dstui"


def test_other_settings_stay(config_folder: Path) -> None:
    remember("wrap", True)
    remember("theme", "dstui-light")
    assert json.loads(settings_file().read_text()) == {"wrap": True, "theme": "dstui-light"}


def test_a_folder_that_cannot_be_written_is_no_error(config_folder: Path) -> None:
    config_folder.write_text("a file")
    remember("theme", "dstui-light")
    assert remembered() == {}
