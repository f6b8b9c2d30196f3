"""The command palette: offers every action by name and runs it once; quitting asks as its key does."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.style import Style
from textual import events
from textual.command import CommandList
from textual.pilot import Pilot
from textual.widgets import Input

from dstui.plan.finding import Finding
from dstui.tui.app import DstuiApp
from dstui.tui.commands import LEFT_OUT, Palette
from dstui.tui.dialogs.reading import FindingPage, finding_rows
from dstui.tui.forms.review import LINES
from dstui.tui.forms.steps import STEPS
from dstui.tui.kit.keys import ANYWHERE, KEYS
from dstui.tui.kit.row_list import RowList
from dstui.tui.kit.styles import THEMES
from dstui.tui.plot.plot_screen import Plot
from dstui.tui.session.drafts import recent_plans
from dstui.tui.session.settings import setting
from tests.monkey import Keys
from tests.owned import add_to_index
from tests.tui.conftest import PLAN, Open, letters, screen, store, text_of, until
from tests.tui.hands import send
from tests.tui.test_reason import job, show_job

LETTERS = {" ": "space", "(": "left_parenthesis", ")": "right_parenthesis", "[": "left_square_bracket", "]": "right_square_bracket"}


async def opened(pilot: Pilot[int]) -> CommandList:
    """Open the palette and return its list before anything is typed."""
    await pilot.press("ctrl+p")
    await until(pilot, lambda: isinstance(pilot.app.screen, Palette) and pilot.app.screen.query_one(CommandList).option_count)
    return pilot.app.screen.query_one(CommandList)


async def choose(pilot: Pilot[int], name: str) -> None:
    """Open the palette, type a name and choose the best match."""
    await pilot.press("ctrl+p")
    await until(pilot, lambda: isinstance(pilot.app.screen, Palette) and pilot.app.screen.query(CommandList))
    found = pilot.app.screen.query_one(CommandList)
    pilot.app.screen.query_one("CommandInput").value = name
    await until(pilot, lambda: found.option_count and str(found.get_option_at_index(0).hit.text).startswith(name))
    await pilot.press("enter")
    await until(pilot, lambda: not isinstance(pilot.app.screen, Palette))
    await pilot.pause()


async def test_every_action_and_step_is_offered_on_every_screen(open_app: Open, tmp_path: Path) -> None:
    wanted = {f"Go to {n}: {step.title}" for n, step in enumerate(STEPS, 1)} | {"Theme", "Screenshot"}
    async with open_app() as pilot:
        for step in ("3", "8", "9"):
            await pilot.press(step)
            found = await opened(pilot)
            names = {str(option.hit.text) for option in found.options}
            assert wanted <= names
            assert "\U0001f50e" not in screen(pilot), "an emoji that consoles lack"
            assert {"Save (F2)", "Undo (z)", "Stop (s)", "Metrics as a plot (m)", "Bundle for a bug report (b)", "Quit (q)"} <= names
            for key in KEYS:
                if key.name and key.where & ANYWHERE and key.name not in LEFT_OUT:
                    assert any(k.action == key.action and f"{k.title} ({k.shown})" in names for k in KEYS), key
            await pilot.press("escape")


async def test_job_that_starts_while_the_palette_opens_is_shown(open_app: Open) -> None:
    """The palette looks for the screen below it when it is mounted, and another mode has none."""
    async with open_app() as pilot:
        app = pilot.app
        assert isinstance(app, DstuiApp)
        app.push_screen(Palette())
        app.show_step(STEPS[-1])
        await until(pilot, lambda: app.step is STEPS[-1])


async def test_click_on_a_vanished_entry_does_nothing(open_app: Open) -> None:
    async with open_app() as pilot:
        found = await opened(pilot)
        gone = Style(meta={"option": found.option_count + 3})
        facts = {"button": 1, "shift": False, "meta": False, "ctrl": False, "screen_x": 4, "screen_y": 4}
        found.post_message(events.Click(found, 4, 1, 0, 0, **facts, style=gone))
        await pilot.pause()
        assert pilot.app.is_running and isinstance(pilot.app.screen, Palette)


async def test_typed_names_act_like_their_keys(open_app: Open, tmp_path: Path) -> None:
    async with open_app(PLAN + "  train_batch_size: 13\n") as pilot:
        await choose(pilot, "Fix")
        assert store(pilot).can_undo
        await choose(pilot, "Undo")
        assert store(pilot).state.plan.text.endswith("train_batch_size: 13\n")
        await choose(pilot, "Redo")
        await choose(pilot, "Save")
        assert (tmp_path / "plan.yaml").read_text() == store(pilot).state.plan.text != PLAN + "  train_batch_size: 13\n"
        await choose(pilot, "Write files")
        assert pilot.app.step.id == "review", "its target is visible first"
        await choose(pilot, "Write files")
        await until(pilot, lambda: "Folder for ds_config.json" in screen(pilot))
        await pilot.press("escape")
        await choose(pilot, "Go to 6")
        assert pilot.app.step.id == "batch"


async def test_typed_names_of_a_job_act_like_their_keys(open_app: Open, tmp_path: Path) -> None:
    async with open_app() as pilot:
        await choose(pilot, "Stop")
        assert pilot.app.step.id == "run", "no job is open yet: it opens the list"
        await show_job(pilot, job(tmp_path / "job"))
        await choose(pilot, "Stop")
        await until(pilot, lambda: "is not available now" in screen(pilot))
        await choose(pilot, "Bundle")
        await until(pilot, lambda: list(tmp_path.glob("*bundle.zip")))
        await choose(pilot, "Metrics")
        await until(pilot, lambda: isinstance(pilot.app.screen, Plot))
        await choose(pilot, "Log")
        assert pilot.app.screen.view.log
        await choose(pilot, "Metrics")
        assert len(pilot.app.screen_stack) == 1


@pytest.mark.parametrize("how", ["Quit", "ctrl+q"])
async def test_quitting_asks_if_edits_would_be_lost(open_app: Open, how: str) -> None:
    async with open_app() as pilot:
        await pilot.press("3", "down", "enter")
        if how == "Quit":
            await choose(pilot, how)
        else:
            await opened(pilot)
            await pilot.press("ctrl+q")
        await until(pilot, lambda: letters(pilot) == "sdc")
        assert not pilot.app._exit


async def test_paging_before_layout_works_and_double_enter_acts_once(open_app: Open) -> None:
    async with open_app(PLAN + "  train_batch_size: 13\n  gradient_clipping: -1\n") as pilot:
        for _ in range(5):
            await send(pilot, [Keys(("ctrl+p", "pagedown", "pagedown", "pageup", "down"))])
            await until(pilot, lambda: isinstance(pilot.app.screen, Palette))
            await send(pilot, [Keys(("pagedown", "x", "backspace", "pagedown", "escape", "escape"))])
            await until(pilot, lambda: len(pilot.app.screen_stack) == 1)
        found, before = await opened(pilot), store(pilot).state.plan.text
        pilot.app.screen.query_one("CommandInput").value = "Fix"
        await until(pilot, lambda: found.option_count and str(found.get_option_at_index(0).hit.text).startswith("Fix"))
        await send(pilot, [Keys(("enter", "enter", "enter"))])
        await until(pilot, lambda: store(pilot).state.plan.text != before)
        await pilot.pause()
        store(pilot).undo()
        assert store(pilot).state.plan.text == before, "one undo step: it was done once"


async def test_screenshot_is_written_beside_earlier_ones_and_its_path_is_shown(open_app: Open, tmp_path: Path) -> None:
    (tmp_path / "dstui-screenshot.svg").write_text("an earlier one")
    async with open_app() as pilot:
        await choose(pilot, "Screenshot")
        written = tmp_path / "dstui-screenshot-2.svg"
        await until(pilot, lambda: any(str(written) in note.message for note in pilot.app._notifications))
        assert "Machine" in written.read_text() and "Screenshot" not in written.read_text()
        assert f"written  {written}" in pilot.app.receipt()
    assert (tmp_path / "dstui-screenshot.svg").read_text() == "an earlier one"


async def test_script_code_is_found_by_the_word_code(open_app: Open) -> None:
    async with open_app() as pilot:
        await pilot.press("ctrl+p", *"code")
        await until(pilot, lambda: "Code: the" in screen(pilot) and "Stacks: where" in screen(pilot))
        assert screen(pilot).index("Code: the") < screen(pilot).index("Stacks: where"), "names that begin with it come first"
        await pilot.press("escape")
        await choose(pilot, "Code: the lines that the script needs")
        await until(pilot, lambda: "deepspeed" in text_of(pilot, "#review-content"))
        assert pilot.app.screen.query_one("#review-names", RowList).cursor == LINES


async def test_unavailable_action_stays_and_says_why(open_app: Open) -> None:
    async with open_app() as pilot:
        found = await opened(pilot)
        hits = {str(option.hit.text): option.hit for option in found.options}
        assert str(hits["Undo (z)"].help) == "Not now: nothing was edited."
        assert hits["Undo (z)"].display.spans and not hits["Save (F2)"].display.spans, "it is dim"


async def test_setting_shows_its_value_and_can_be_changed(open_app: Open) -> None:
    async with open_app() as pilot:
        await choose(pilot, "Setting: wrap (off)")
        await until(pilot, lambda: setting("wrap") is True)
        await choose(pilot, "Setting: bell (off)")
        await until(pilot, lambda: "3  failed" in screen(pilot))
        await pilot.press("3")
        await until(pilot, lambda: setting("bell") == "failed")
        await choose(pilot, "Theme: dstui-high-contrast")
        await until(pilot, lambda: setting("theme") == "dstui-high-contrast" and pilot.app.theme == "dstui-high-contrast")


async def test_findings_recent_plans_runs_and_files_are_found_by_name(
    open_app: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "second.yaml").write_text(PLAN.replace("name: small ", "name: second"))
    folder = job(tmp_path / "a-run")
    add_to_index(folder)
    async with open_app() as pilot:
        await choose(pilot, "Finding DS111: gradient_clipping")
        await until(pilot, lambda: isinstance(pilot.app.screen, FindingPage) and "constants.py" in text_of(pilot, "#help"))
        await pilot.press("escape")
        await choose(pilot, "Open…")
        await pilot.press(*"other/second.yaml", "enter")
        await until(pilot, lambda: store(pilot).state.plan.name == "second")
        await until(pilot, lambda: len(recent_plans()) == 2)
        await pilot.press("3", "down", "enter")
        await choose(pilot, "Plan: plan.yaml")
        await until(pilot, lambda: "o" in letters(pilot))
        await pilot.press("o")
        await until(pilot, lambda: store(pilot).state.plan.name == "small")
        await choose(pilot, "Run: a-run")
        await until(pilot, lambda: pilot.app.run_screen.view.job is not None)
        await pilot.press("colon")
        await until(pilot, lambda: isinstance(pilot.app.screen, Palette))


@pytest.mark.every_frame
@pytest.mark.parametrize("theme", ["dstui-light", "ansi-dark"])
async def test_open_palette_takes_the_colours_of_another_theme(open_app: Open, theme: str) -> None:
    def styles(pilot: Pilot[int]) -> list[set[str]]:
        pilot.app.screen.query_one(Input).cursor_blink = False
        return [{str(style) for text, style, _ in strip if text.strip()} for strip in pilot.app.screen._compositor.render_strips()]

    async with open_app() as pilot:
        usual, pilot.app.theme = pilot.app.theme, theme
        await opened(pilot)
        await pilot.pause(0.2)
        fresh = styles(pilot)
        await pilot.press("escape")
        pilot.app.theme = usual
        await opened(pilot)
        pilot.app.theme = theme
        await until(pilot, lambda: styles(pilot) == fresh, 10)


async def test_own_themes_are_offered_first(open_app: Open) -> None:
    async with open_app() as pilot:
        await pilot.press("ctrl+p", *"theme:")
        await until(pilot, lambda: "Theme: dstui-light" in screen(pilot))
        names = [line.split()[1] for line in screen(pilot).splitlines() if line.split()[:1] == ["Theme:"]]
        assert set(names[: len(THEMES)]) == {theme.name for theme in THEMES}


def test_page_of_a_finding_does_not_repeat_the_words_of_deepspeed() -> None:
    why = "DeepSpeed: Check batch related parameters. train_batch_size is not equal to micro_batch_per_gpu * gradient_acc_step * world_size 8 != 4"
    for finding, times in ((Finding("DS002", "error", "x", "no", why=why), 1), (Finding("DS002", "error", "x", "no"), 1)):
        assert "\n".join(line.text for line in finding_rows(finding, 200)).count("Check batch related parameters") == times
