"""Text is readable in every theme of dstui: the contrast that WCAG asks for, on the screens themselves."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual.color import Color
from textual.pilot import Pilot

from dstui.tui.kit.row_list import RowList
from dstui.tui.kit.styles import DARK, HIGH_CONTRAST, LIGHT, THEMES, contrast
from tests.jobs.made import make_job
from tests.tui.conftest import PLAN, Open, attach, screen, store, until

LEAST = {DARK.name: 4.5, LIGHT.name: 4.5, HIGH_CONTRAST.name: 7.0}
SCREENS = ("3", "A", "8", "f1", "slash", "ctrl+p")
"""Keys that show each: a form with disabled rows and figures, a selected text, the review, the help, a dialog with a line to type, the palette."""


def test_contrast_is_that_of_wcag() -> None:
    black, white, grey = Color.parse("#000000"), Color.parse("#ffffff"), Color.parse("#777777")
    assert contrast(black, white) == contrast(white, black) == pytest.approx(21)
    assert contrast(grey, white) == pytest.approx(4.48, abs=0.01)


def weak_texts(pilot: Pilot[int], least: float) -> dict[str, float]:
    """Return the visible texts with less contrast to what is behind them. Lines and bars are no texts; nor is what a dialog covers."""
    top = pilot.app.screen
    box = top.query_one("Vertical").region if top.is_modal else top.region
    found = {}
    for y, strip in enumerate(top._compositor.render_strips()):
        x = 0
        for text, style, _ in strip:
            inside = box.contains(x, y)
            x += len(text)
            if not inside or style is None or not any(char.isalnum() for char in text) or style.color is None or style.bgcolor is None:
                continue
            got = contrast(Color.from_rich_color(style.color), Color.from_rich_color(style.bgcolor))
            if got < least - 0.05:
                found[text.strip()] = round(got, 2)
    return found


@pytest.mark.parametrize("theme", [theme.name for theme in THEMES])
async def test_every_text_is_readable(open_app: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, theme: str) -> None:
    monkeypatch.setenv("TEXTUAL_THEME", theme)
    job = make_job(tmp_path / "job", PLAN, {rank: f"step 1/2 loss 2.{rank}\nWARNING: {'abcdefgh'[rank]} is slow\n" for rank in range(8)})
    weak = {}
    async with open_app(PLAN + "  train_batch_size: 13\n", gpus=2) as pilot:
        assert pilot.app.theme == theme
        for key in SCREENS:
            await pilot.press(key)
            await until(pilot, lambda: store(pilot).state.checked and screen(pilot).strip())
            weak[key] = weak_texts(pilot, LEAST[theme])
            if pilot.app.screen.is_modal:
                await pilot.press("escape")
        await attach(pilot, job)
        await until(pilot, lambda: "r7 " in screen(pilot), 20)
        weak["run"] = weak_texts(pilot, LEAST[theme])
    assert {where: texts for where, texts in weak.items() if texts} == {}


async def test_dark_terminal_colours_are_without_plain_blue(open_app: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEXTUAL_THEME", "ansi-dark")
    async with open_app(gpus=2) as pilot:
        for key in SCREENS:
            await pilot.press(key)
            await until(pilot, lambda: store(pilot).state.checked and screen(pilot).strip())
            words = [part for strip in pilot.app.screen._compositor.render_strips() for part in strip if any(map(str.isalnum, part.text))]
            used = {part.style.color.number for part in words if part.style and part.style.color}
            assert 12 in used and 4 not in used, key
            if pilot.app.screen.is_modal:
                await pilot.press("escape")


@pytest.mark.parametrize("theme", [*LEAST, "ansi-dark"])
async def test_errors_without_colour_are_bold_and_as_bright_as_other_text(
    open_app: Open, monkeypatch: pytest.MonkeyPatch, theme: str
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TEXTUAL_THEME", theme)
    async with open_app(gpus=2) as pilot:
        rows = pilot.app.screen.query_one("#form-rows", RowList)
        usual = rows.style_named("")
        for name in ("error", "warning", "accent"):
            assert rows.style_named(name).color == usual.color and rows.style_named(name).bold and not rows.style_named(name).dim


@pytest.mark.parametrize("theme", [*LEAST, "ansi-dark", "ansi-light"])
async def test_warnings_differ_from_errors_by_colour_too(open_app: Open, monkeypatch: pytest.MonkeyPatch, theme: str) -> None:
    monkeypatch.setenv("TEXTUAL_THEME", theme)
    async with open_app() as pilot:
        rows = pilot.app.screen.query_one("#form-rows", RowList)
        assert len({rows.style_named(name).color for name in ("ok", "warning", "error", "accent", "")}) == 5
