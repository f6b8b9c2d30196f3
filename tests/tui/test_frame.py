"""Titles of frames."""

from __future__ import annotations

from typing import Any

import pytest
from textual.app import App, ComposeResult
from textual.widgets import Static

from dstui.tui.kit.tools import label


class Framed(Static):
    """A widget that counts its repaints."""

    asked = 0

    def refresh(self, *regions: Any, **how: Any) -> Any:
        self.asked += 1
        return super().refresh(*regions, **how)


class Screen(App[None]):
    """A screen with one frame."""

    CSS = "Framed { border: round white; }"

    def compose(self) -> ComposeResult:
        yield Framed("text")


@pytest.mark.parametrize(
    ("title", "shown"),
    [
        ("Ranks", "Ranks"),
        ("[red]not markup[/red] [", "[red]not markup[/red] ["),
        ("a[/] \\[b]", "a[/] \\[b]"),
        ("two\nlines\tand a tab", "two lines and a tab"),
        ("3 warnings  DeepSpeed agrees", "3 warnings  DeepSpeed agrees"),
    ],
)
async def test_title_is_shown_literally_and_painted_once(title: str, shown: str) -> None:
    async with Screen().run_test(size=(60, 5)) as pilot:
        framed = pilot.app.query_one(Framed)
        label(framed, title)
        await pilot.pause()
        assert shown in "".join(strip.text for strip in pilot.app.screen._compositor.render_strips())
        before = framed.asked
        label(framed, title)
        assert framed.asked == before
        label(framed, title, "below")
        assert framed.asked > before
