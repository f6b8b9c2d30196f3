"""Dialogs close once whatever is typed in one write; help and quit work in them; escape goes back."""

from __future__ import annotations

import gc
import weakref
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from textual.containers import Vertical
from textual.css.stylesheet import Stylesheet
from textual.pilot import Pilot
from textual.widget import Widget
from textual.widgets import Input

from dstui.tui.dialogs.dialog import Answer, Ask, Dialog, Prompt
from dstui.tui.dialogs.pick import Find
from dstui.tui.dialogs.reading import Help, TextViewer, WholeLine
from dstui.tui.kit.footer import Footer
from dstui.tui.kit.text_row import paragraph, row
from dstui.tui.plot.plot_screen import OtherRun, Plot
from tests.monkey import Keys, Mouse
from tests.tui.conftest import PLAN, Open, letters, screen, store, text_of, until
from tests.tui.hands import send
from tests.tui.test_reason import job, show_job

TWICE = [("escape", "escape"), ("enter", "enter"), ("enter", "escape"), ("escape", "enter", "escape"), ("y", "y"), ("n", "y", "enter")]


async def write(pilot: Pilot[int], *keys: str) -> None:
    """Type keys in one write and wait until the app is idle."""
    await send(pilot, [Keys(keys)])
    await pilot.pause()
    await pilot.pause()


def dialogs() -> dict[str, Callable[[], Dialog]]:
    """Return every kind of dialog that needs no job."""
    answers = [Answer("y", "yes", True), Answer("n", "no", False)]
    return {
        "Ask": lambda: Ask("Sure?", "Really?", answers),
        "Prompt": lambda: Prompt("Name", "Its name:", "x"),
        "TextViewer": lambda: TextViewer("Read", lambda _width: [row("a line", key="a"), row("another")]),
        "Help": lambda: Help("form", None),
    }


@pytest.mark.parametrize("kind", dialogs())
async def test_two_answers_in_one_write_close_a_dialog_once(open_app: Open, kind: str) -> None:
    async with open_app() as pilot:
        for keys in TWICE:
            given: list[object] = []
            pilot.app.push_screen(dialogs()[kind](), given.append)
            await pilot.pause()
            await write(pilot, *keys)
            typed = kind == "Prompt" and keys == ("y", "y")
            await until(pilot, lambda: (len(pilot.app.screen_stack), len(given)) == ((2, 0) if typed else (1, 1)))  # noqa: B023
            if typed:
                await pilot.press("escape")


async def test_widgets_of_a_new_dialog_get_their_styles_once(open_app: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """Textual would apply the style sheet a second time as soon as the dialog is shown."""
    styled: Counter[object] = Counter()
    apply = Stylesheet.apply

    def count(sheet: Stylesheet, node: Widget, **how: Any) -> None:
        styled[node] += 1
        apply(sheet, node, **how)

    async with open_app() as pilot:
        monkeypatch.setattr(Stylesheet, "apply", count)
        pilot.app.push_screen(Ask("Sure?", "Really?", [Answer("y", "yes", True)]))
        await pilot.pause()
        assert styled[pilot.app.screen.query_one(Vertical)] == styled[pilot.app.screen.query_one(Footer)] == 1


async def test_second_key_does_not_answer_the_screen_below(open_app: Open) -> None:
    async with open_app() as pilot:
        given: list[object] = []
        for heading in ("The first", "The second"):
            pilot.app.push_screen(Ask(heading, "Really?", [Answer("y", "yes", True), Answer("n", "no", False)]), given.append)
        await pilot.pause()
        await write(pilot, "y", "y", "n")
        await until(pilot, lambda: given == [True] and len(pilot.app.screen_stack) == 2)


async def test_key_pressed_again_before_its_dialog_opens_opens_it_once(open_app: Open) -> None:
    async with open_app() as pilot:
        await write(pilot, "C", "C", "C")
        await until(pilot, lambda: len(pilot.app.screen_stack) == 2)
        for _ in range(10):
            await pilot.pause(0.01)
        assert len(pilot.app.screen_stack) == 2


async def test_two_answers_to_a_real_question_save_once(open_app: Open, tmp_path: Path) -> None:
    async with open_app() as pilot:
        await pilot.press("3", "down", "enter")
        (tmp_path / "plan.yaml").write_text("# somebody else\n")
        await pilot.press("f2")
        await until(pilot, lambda: letters(pilot) == "or")
        await write(pilot, "r", "r", "o")
        assert len(pilot.app.screen_stack) == 1
        await until(pilot, lambda: (tmp_path / "plan.yaml").read_text() == PLAN.replace("stage: 2", "stage: 3"))


async def test_settings_that_begin_with_the_text_come_first(open_app: Open) -> None:
    async with open_app() as pilot:
        await pilot.press("slash", *"optim")
        await until(pilot, lambda: "optimizer.params.lr" in screen(pilot))
        assert "zero_optimization.stage" not in screen(pilot).split("optimizer.params.lr")[0]
        await pilot.press("down", *"izer.p")
        await until(pilot, lambda: "› optimizer.params.lr" in screen(pilot))


async def test_setting_is_found_once(open_app: Open) -> None:
    async with open_app() as pilot:
        await pilot.press("slash", *"zzqq")
        await until(pilot, lambda: "There is none with zzqq" in screen(pilot))
        await pilot.press("enter", "slash", *"bucket")
        await write(pilot, "enter", "enter", "down", "enter")
        assert len(pilot.app.screen_stack) <= 2 and not isinstance(pilot.app.screen, Find)


@pytest.mark.every_frame
async def test_f1_helps_and_ctrl_q_quits_or_asks_in_every_dialog(open_app: Open, tmp_path: Path) -> None:
    async with open_app() as pilot:
        await pilot.press("3", "down", "enter")
        for kind, make in dialogs().items():
            pilot.app.push_screen(make())
            await pilot.press("f1")
            if kind != "Help":  # there it closes the dialog
                assert isinstance(pilot.app.screen, Help), kind
                await pilot.press("escape")
                await pilot.press("ctrl+q", "ctrl+q")
                assert screen(pilot).count("The Plan has edits that are not saved.") == 1, kind
                await pilot.press("c")
                await pilot.press("escape")
            assert len(pilot.app.screen_stack) == 1
        await pilot.press("z")
        pilot.app.push_screen(dialogs()["Ask"]())
        await pilot.press("ctrl+q")
        await until(pilot, lambda: pilot.app._exit)


async def test_footer_shows_the_keys_of_the_dialog(open_app: Open, tmp_path: Path) -> None:
    wanted = {"Ask": "Enter take", "Prompt": "Enter done", "TextViewer": "↑↓ move", "Help": "↑↓ move"}
    async with open_app() as pilot:
        for kind, make in dialogs().items():
            pilot.app.push_screen(make())
            await until(pilot, lambda kind=kind: wanted[kind] in screen(pilot).splitlines()[-1])
            await pilot.press("escape")
            await until(pilot, lambda: "q quit" in screen(pilot).splitlines()[-1] and "ctrl+q" not in screen(pilot).splitlines()[-1])


async def test_click_on_a_footer_key_closes_the_dialog(open_app: Open) -> None:
    async with open_app() as pilot:
        pilot.app.push_screen(dialogs()["Prompt"]())
        await until(pilot, lambda: "Esc close" in screen(pilot))
        await pilot.click(offset=(screen(pilot).splitlines()[-1].index("Esc"), pilot.app.size.height - 1))
        assert len(pilot.app.screen_stack) == 1


async def test_save_and_quit_asks_for_a_name_and_never_overwrites_another_file(open_app: Open, tmp_path: Path) -> None:
    async with open_app() as pilot:
        await pilot.press("3", "down", "enter")
        (tmp_path / "plan.yaml").write_text("# somebody else\n")
        await pilot.press("q", "s")
        await until(pilot, lambda: letters(pilot) == "or")
        await pilot.press("o")
        pilot.app.screen.query_one(Input).value = "mine.yaml"
        await pilot.press("enter")
        await until(pilot, lambda: pilot.app._exit)
    assert (tmp_path / "plan.yaml").read_text() == "# somebody else\n"
    assert "stage: 3" in (tmp_path / "mine.yaml").read_text()


async def test_escape_leaves_the_review_and_the_list_of_jobs(open_app: Open) -> None:
    async with open_app() as pilot:
        await pilot.press("3", "8", "enter")
        await until(pilot, lambda: pilot.app.focused.id == "review-content")
        await pilot.press("escape")
        assert pilot.app.step.id == "review" and pilot.app.focused.id == "review-names"
        await pilot.press("escape")
        assert pilot.app.step.id == "zero"
        await pilot.press("9")
        await until(pilot, lambda: "No job yet" in screen(pilot) or "Enter opens a job" in screen(pilot))
        await pilot.press("8")  # no rank has this number
        await until(pilot, lambda: pilot.app.step.id == "review")
        await pilot.press("3", "9", "escape")
        assert pilot.app.step.id == "zero" and pilot.app.focused.id == "form-rows"


@pytest.mark.every_frame
async def test_every_dialog_over_a_job_closes_once(open_app: Open, tmp_path: Path) -> None:
    async with open_app() as pilot:
        await show_job(pilot, job(tmp_path / "job"))
        for opening, kind, keys in (
            (("up", "enter"), WholeLine, ("x", "x")),
            (("d",), TextViewer, ("enter", "escape", "enter")),
            (("d",), TextViewer, ("q", "q")),
            (("m",), Plot, ("m", "m", "escape", "escape")),
            (("m", "o"), OtherRun, ("escape", "escape", "enter")),
            (("g",), Prompt, ("0", "enter", "enter")),
        ):
            await pilot.press(*opening)
            await until(pilot, lambda kind=kind: isinstance(pilot.app.screen, kind))
            await write(pilot, *keys)
            while len(pilot.app.screen_stack) > 1:
                await pilot.press("escape")
            assert pilot.app.step.id == "run"


async def test_enter_acts_on_the_row_where_it_was_pressed(open_app: Open) -> None:
    async with open_app() as pilot:
        await pilot.press("3")
        await write(pilot, "down", "enter", "down", "down")
        assert store(pilot).state.plan.get("deepspeed.zero_optimization.stage") == 3
        await write(pilot, "end", "enter", "5", "enter", "up", "d", "home", "enter")
        assert pilot.app.is_running and "▸" in text_of(pilot, "#form-rows") + screen(pilot)


async def test_click_on_a_removed_note_does_nothing(open_app: Open) -> None:
    async with open_app() as pilot:
        pilot.app.notify("something to click away")
        await until(pilot, lambda: "something to click away" in screen(pilot))
        line = next(n for n, text in enumerate(screen(pilot).splitlines()) if "something to click away" in text)
        place = (screen(pilot).splitlines()[line].index("click") + 0.5) / pilot.app.size.width, (line + 0.5) / pilot.app.size.height
        await send(pilot, [Mouse("click", *place)] * 3 + [Mouse("drag", *place, 0.2, 0.2)] * 2)
        await until(pilot, lambda: "something to click away" not in screen(pilot))
        assert pilot.app.is_running


def test_long_path_breaks_after_a_slash() -> None:
    path = "/home/someone/experiments/2026/llama-2-7b-sft/dstui_runs/small-20260101"
    lines = [row.text for row in paragraph(f"in {path}", 30)]
    assert "".join(lines) == f"in {path}"
    assert all(len(line) <= 30 for line in lines) and all(line.endswith("/") for line in lines[:-1])
    assert [len(row.text) for row in paragraph("x" * 70, 30)] == [30, 30, 10]


@pytest.mark.every_frame
async def test_closed_dialogs_leave_none_of_their_lines_in_memory(open_app: Open) -> None:
    async with open_app() as pilot:
        painted = []
        for _ in range(2):  # of the last one its timer stays for a while
            await pilot.press("f1")
            painted.append([weakref.ref(widget._styles_cache) for widget in (pilot.app.screen, *pilot.app.screen.walk_children())])
            await pilot.press("escape")
        gc.collect()
        assert len(painted[0]) > 2 and not any(ref() for ref in painted[0])


async def test_cursor_stays_in_view_when_the_screen_becomes_smaller(open_app: Open) -> None:
    async with open_app(size=(120, 40)) as pilot:
        pilot.app.push_screen(Ask("Which?", "One of these.", [Answer("", f"answer {number}", number) for number in range(25)]))
        await until(pilot, lambda: "answer 24" in screen(pilot))
        await pilot.press("end")
        for size in ((80, 24), (120, 40), (60, 16)):
            await pilot.resize_terminal(*size)
            await until(pilot, lambda: "▸   answer 24" in screen(pilot))


@pytest.mark.parametrize("width", [80, 100, 120])
async def test_notification_is_whole_above_the_footer(open_app: Open, width: int) -> None:
    async with open_app(size=(width, 24)) as pilot:
        for length in range(8, 24):
            words = [f"word{number}" for number in range(length)]
            pilot.app.notify(" ".join(words))
            await until(pilot, lambda: words[0] in screen(pilot))  # noqa: B023
            assert [word for word in words if word not in screen(pilot)] == []
            assert "F1 help" in screen(pilot).splitlines()[-1]
            pilot.app.clear_notifications()
            await until(pilot, lambda: "word0" not in screen(pilot))


async def test_typed_text_is_below_its_question(open_app: Open) -> None:
    async with open_app() as pilot:
        pilot.app.push_screen(Prompt("Name", "question", "typed"))
        await until(pilot, lambda: "question" in screen(pilot) and "typed" in screen(pilot))
        columns = {line.index(word) for line in screen(pilot).splitlines() for word in ("question", "typed") if word in line}
        assert len(columns) == 1


async def test_wrong_text_is_marked(open_app: Open) -> None:
    async with open_app() as pilot:
        pilot.app.push_screen(Prompt("Name", "question", "typed", lambda text: f"{text} is wrong"))
        await until(pilot, lambda: "question" in screen(pilot))
        await pilot.press("enter")
        await until(pilot, lambda: "✖ typed is wrong" in screen(pilot))


async def test_footer_fits_after_the_size_has_changed_under_another_screen(open_app: Open) -> None:
    async with open_app(size=(200, 40)) as pilot:
        await pilot.press("J")
        await until(pilot, lambda: "Runs" in screen(pilot))
        await pilot.resize_terminal(80, 24)
        await until(pilot, lambda: pilot.app.screen.size.width == 80)
        await pilot.press("escape")
        await until(pilot, lambda: "choose" in screen(pilot).splitlines()[-1] and "…" not in screen(pilot).splitlines()[-1])
