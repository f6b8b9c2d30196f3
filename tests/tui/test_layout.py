"""Layout at each size, meaning of keys, and access to everything by keys alone and by mouse alone."""

from __future__ import annotations

import asyncio
import re

import pytest
from textual import events
from textual.geometry import Size

from dstui.plan import load
from dstui.tui.dialogs.dialog import Dialog
from dstui.tui.dialogs.reading import help_rows
from dstui.tui.forms.fields import help_for
from dstui.tui.forms.steps import STEPS, field_of, step_of
from dstui.tui.kit.keys import COMPARE, FORM, KEYS, PLOT, REVIEW, RUN, RUNS, TYPING
from dstui.tui.kit.row_list import RowList
from dstui.tui.kit.tools import Latest
from dstui.tui.plan_screen import PlanScreen
from dstui.tui.plot.plot_screen import Plot
from dstui.tui.runs.compare_screen import Compared
from dstui.tui.runs.runs_screen import RunsTable
from dstui.tui.session.state import State
from tests.tui.conftest import PLAN, Open, screen, store, text_of, until


async def test_steps_form_preview_and_checks_are_visible_at_120_columns(open_app: Open) -> None:
    async with open_app() as pilot:
        await pilot.press("3")
        parts = ("Steps", "3 · ZeRO stage", "ds_config.json", "Checks", "F1 help", "q quit")
        await until(pilot, lambda: all(part in screen(pilot) for part in parts))


async def test_preview_gets_the_room_of_a_very_wide_screen(open_app: Open) -> None:
    async with open_app(size=(200, 50)) as pilot:
        await pilot.press("3")
        await until(pilot, lambda: pilot.app.screen.query_one("#preview").region.width > 70)
        assert pilot.app.screen.query_one("#middle").region.width == 92


async def test_machine_step_shows_gpus_links_islands_and_host_with_meanings(open_app: Open) -> None:
    async with open_app(gpus=4) as pilot:
        shown = text_of(pilot, "#form-rows")
        for wanted in ("[x] 3  A100", " 2 NV12 NV12    X NV12", "Host and software", "What it means"):
            assert wanted in shown
        assert "ds_config.json" not in screen(pilot)


async def test_steps_are_one_line_and_panes_are_tabs_at_80_columns(open_app: Open) -> None:
    async with open_app(size=(80, 24)) as pilot:
        await pilot.press("3")
        assert "✔3 ZeRO stage" in screen(pilot).splitlines()[1]
        assert pilot.app.plan_screen.form.rows.is_on_screen
        await pilot.press("tab")
        await until(
            pilot, lambda: '"train_micro_batch_size_per_gpu": 4' in screen(pilot) and not pilot.app.plan_screen.form.rows.is_on_screen
        )
        await pilot.press("tab")
        await until(pilot, lambda: "╭─ Checks" in screen(pilot))
        await pilot.press("tab")
        await until(pilot, lambda: pilot.app.plan_screen.form.rows.is_on_screen)


@pytest.mark.parametrize("size", [(120, 40), (100, 30), (80, 24), (60, 16)])
async def test_every_step_fits_the_screen_with_complete_frames(open_app: Open, size: tuple[int, int]) -> None:
    async with open_app(size=size) as pilot:
        for step in STEPS:
            await pilot.press("1") if step is STEPS[0] else await pilot.press("right_square_bracket")
            await until(pilot, lambda: screen(pilot).count("╭") == screen(pilot).count("╯") > 0)
            lines = screen(pilot).splitlines()
            assert (pilot.app.step, len(lines)) == (step, size[1])
            assert "quit" in lines[-1]


@pytest.mark.parametrize("size", [(40, 10), (20, 5), (1, 1)])
async def test_too_small_screen_says_what_it_needs_and_can_be_left(open_app: Open, size: tuple[int, int]) -> None:
    async with open_app(size=size) as pilot:
        if size == (40, 10):
            assert "at least 60x16" in screen(pilot)
        await pilot.press("q")
        await until(pilot, lambda: pilot.app._exit)


@pytest.mark.parametrize("cells", [1, 2, 3])
async def test_help_on_a_field_is_drawn_in_any_width(open_app: Open, cells: int) -> None:
    async with open_app() as pilot:
        await pilot.press("3", "down")
        hint = pilot.app.plan_screen.hint
        hint.styles.width, hint.styles.height = cells, 2
        await until(pilot, lambda: hint.size == Size(cells, 1))
        pilot.app.plan_screen.draw()
        await pilot.press("down")
        assert "3 · ZeRO stage" in screen(pilot)


@pytest.mark.every_frame
async def test_resizing_back_and_forth_loses_nothing(open_app: Open) -> None:
    async with open_app() as pilot:
        await pilot.press("6", "enter", "9")
        for size in ((80, 24), (40, 10), (60, 16), (200, 60), (120, 40)):
            await pilot.resize_terminal(*size)
            await pilot.pause()
        assert pilot.app.focused is not None
        assert pilot.app.focused.id == "editor"
        await pilot.press("enter")
        assert store(pilot).state.plan.get("deepspeed.train_micro_batch_size_per_gpu") == 49


@pytest.mark.parametrize("dialog", [False, True])
async def test_two_sizes_that_wait_at_once_do_not_follow_each_other_for_ever(open_app: Open, dialog: bool) -> None:
    async with open_app() as pilot:
        if dialog:
            await pilot.press("question_mark")
        laid_out: list[Size] = []
        pilot.app.screen.screen_layout_refresh_signal.subscribe(pilot.app.screen, lambda screen: laid_out.append(screen.size))
        for size in (Size(80, 24), Size(120, 40)):
            pilot.app.screen.post_message(events.Resize(size, size))
            pilot.app.screen.call_later(lambda: None)  # a message between them keeps Textual from dropping the first
        for _ in range(200):
            await asyncio.sleep(0)
        assert len(laid_out) < 5
        assert pilot.app.screen.size == (120, 40)


async def test_resize_while_the_app_exits_mounts_nothing(open_app: Open) -> None:
    async with open_app(size=(80, 24)) as pilot:
        pilot.app.screen.on_resize()
        pilot.app.exit()
        await pilot.pause()


@pytest.mark.parametrize("key", ["question_mark", "slash"])
@pytest.mark.every_frame
async def test_long_dialog_scrolls_and_follows_the_size(open_app: Open, key: str) -> None:
    async with open_app(size=(60, 16)) as pilot:
        await pilot.press("3", key)
        rows = pilot.app.screen.query_one("#help, #found")
        await until(pilot, lambda: 3 < rows.region.height < len(rows.rows) and rows.region.bottom < 16)
        await pilot.resize_terminal(80, 24)
        await until(pilot, lambda: 11 < rows.region.height < len(rows.rows) and rows.region.bottom < 24)
        for size in ((20, 5), (120, 40)):
            await pilot.resize_terminal(*size)
            await pilot.pause()
        await until(pilot, lambda: rows.region.height >= 14)
        await pilot.press("escape")
        assert pilot.app.focused is not None


def test_letter_has_one_meaning_on_all_main_screens() -> None:
    """The tables of runs, which lie over them, have keys of their own: tests/tui/test_keys_page.py."""
    meanings: dict[str, set[str]] = {}
    for key in (key for key in KEYS if not key.where <= {RUNS, COMPARE}):
        for name in filter(None, key.keys.split(",")):
            meanings.setdefault(name, set()).add(key.action)
    meanings["w"].discard("warning(1)")  # on Run it finds warnings, as in lnav; on Review it writes files
    assert {name: actions for name, actions in meanings.items() if len(actions) > 1} == {}


DRAWN_OVER = {PLOT: Plot, RUNS: RunsTable, COMPARE: Compared}


async def test_every_action_of_the_table_exists(open_app: Open) -> None:
    async with open_app() as pilot:
        for key in KEYS:
            places = [pilot.app, *(DRAWN_OVER[place] for place in key.where if place in DRAWN_OVER), Dialog]
            places += [pilot.app.plan_screen] if key.where & (FORM | REVIEW | TYPING) else []
            places += pilot.app.run_screen.acting if key.where & RUN else []
            assert not key.name or any(hasattr(place, f"action_{key.name}") for place in places), key.name


async def test_every_step_is_reached_by_number_brackets_and_click(open_app: Open) -> None:
    async with open_app() as pilot:
        for number, step in enumerate(STEPS, 1):
            await pilot.press(str(number))
            assert pilot.app.step is step
            if step.pane == "run":
                await pilot.press("left_square_bracket")
                assert pilot.app.step is STEPS[-2]
        await pilot.press("3")
        await pilot.click("#steps", offset=(6, 6))
        assert pilot.app.step.id == "batch"


async def test_click_on_an_option_sets_it(open_app: Open) -> None:
    async with open_app() as pilot:
        await pilot.press("3")
        line = next(n for n, row in enumerate(pilot.app.screen.query_one("#form-rows").rows) if "3  + parameters" in row.text)
        await pilot.click("#form-rows", offset=(8, line))
        assert store(pilot).state.plan.get("deepspeed.zero_optimization.stage") == 3


async def test_letters_are_text_while_typing_and_function_keys_still_work(open_app: Open) -> None:
    async with open_app() as pilot:
        await pilot.press("2", "enter", "q", "x", "z", "f4")
        assert store(pilot).state.plan.name == "smallqxz"
        assert pilot.app.step.id == "zero"


async def test_help_works_while_typing(open_app: Open) -> None:
    async with open_app() as pilot:
        await pilot.press("6", "enter", "f1")
        help = text_of(pilot, "#help")
        assert "train_micro_batch_size_per_gpu" in help and "because" in help
        await pilot.press("escape", "enter", "3", "question_mark")
        assert "The next step." in text_of(pilot, "#help")


async def test_state_is_never_shown_by_colour_alone(open_app: Open) -> None:
    async with open_app(PLAN + "  train_batch_size: 13\n") as pilot:
        assert re.search(r"✖ 6 Batch & optimizer", text_of(pilot, "#steps"))
        assert re.search(r"✖ DS\d+", text_of(pilot, "#checks"))


async def test_value_of_a_step_has_the_room_of_its_title(open_app: Open) -> None:
    async with open_app(PLAN.replace("per_gpu: 4", "per_gpu: 16").replace("steps: 2", "steps: 128")) as pilot:
        assert re.search(r"6 Batch & optim\S*… +16×128", text_of(pilot, "#steps"))


async def test_long_names_of_settings_keep_their_ends_at_80_columns(open_app: Open) -> None:
    async with open_app(size=(80, 24)) as pilot:
        await pilot.press("3", "slash", *"bucket")
        await until(pilot, lambda: "allgather_bucket_size" in screen(pilot) and "stage3_prefetch_bucket_size" in screen(pilot))


async def test_ranks_on_the_cpu_are_those_that_are_launched(open_app: Open) -> None:
    async with open_app(PLAN + "cluster: {num_gpus: 8}\n") as pilot:
        await until(pilot, lambda: "CPU, 8 ranks" in screen(pilot))
        assert re.search(r"Ranks on the CPU +8, by cluster.num_gpus", screen(pilot))


async def test_every_deepspeed_finding_belongs_to_a_step_that_shows_it() -> None:
    for path in ("deepspeed.zero_optimization.stage", "deepspeed.unknown_key", "job.script", "cluster.hosts", "deepspeed.fp16.loss_scale"):
        assert step_of(path).id in {"zero", "batch", "job", "cluster", "precision"}


async def test_every_field_is_found_by_its_path(open_app: Open) -> None:
    async with open_app(gpus=2) as pilot:
        state = store(pilot).state
        for step in STEPS:
            for field in step.fields(state):
                found = field_of(field.path, state)
                assert found is not None
                assert found[1].path == field.path


EVERY_ROW = """\
version: 1
job: {script: train.py}
cluster: {launcher: sbatch, kubernetes: {trainer: "2.2"}}
models:
  student: {role: train, model: {lora: {r: 8}}, deepspeed: {train_micro_batch_size_per_gpu: 1}}
  teacher: {role: inference}
"""


def test_help_of_every_field_says_why_its_default_is_what_it_is() -> None:
    state = State(load(EVERY_ROW, "plan.yaml", ".").focused_on("student"))
    fields = [field for step in STEPS for field in step.fields(state) if field.help is None]
    assert {"cluster.slurm.mem", "cluster.kubernetes.shm", "model.lora.r", "models.student.role"} <= {field.path for field in fields}
    without = [one.path for one in fields if not re.search(r"^because +\w", "\n".join(r.text for r in help_rows("form", one, 80)), re.M)]
    assert without == [], 'write why: "why" in dstui/plan/data/curated.json for keys of DeepSpeed, reasons.json for those of the Plan'


async def test_values_and_findings_with_markup_are_shown_literally(open_app: Open) -> None:
    async with open_app(PLAN.replace("name: small ", "name: '[red]x[/bar] [@click=app.quit]y' ")) as pilot:
        await pilot.press("2")
        assert "[red]x[/bar] [@click=app.quit]y" in text_of(pilot, "#form-rows").replace("\n  ", " ")
        await pilot.press("8")
        assert pilot.app.is_running


async def test_lists_are_styled_as_lists(open_app: Open) -> None:
    async with open_app() as pilot:
        assert pilot.app.screen.query_one("#form-rows").styles.scrollbar_size_vertical == 1


async def test_resize_redraws_without_lookups(open_app: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []
    async with open_app() as pilot:
        put = Latest.put
        monkeypatch.setattr(Latest, "put", lambda box, thing: (asked.append(thing), put(box, thing))[1])
        for size in ((80, 24), (160, 50), (50, 10), (120, 40)):
            await pilot.resize_terminal(*size)
            await until(pilot, lambda size=size: pilot.app.plan_screen.title_bar.size.width == size[0])
        assert asked == [], "no service has work"
        await pilot.press("3", "down", "enter")
        assert asked, "after an edit they have"


async def test_only_the_visible_screen_is_drawn(open_app: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[str] = []
    async with open_app() as pilot:
        draw = PlanScreen.draw
        monkeypatch.setattr(PlanScreen, "draw", lambda screen: (drawn.append("plan"), draw(screen))[1])
        await pilot.press("9")
        await until(pilot, lambda: pilot.app.run_screen.view.is_mounted)
        drawn.clear()
        store(pilot).job_changed("running")
        await until(pilot, lambda: "●9" in text_of(pilot, "#step-line") or "✔9" in text_of(pilot, "#step-line"))
        assert drawn == []
        await pilot.press("left_square_bracket", "3")
        await until(pilot, lambda: "running" in text_of(pilot, "#steps"))
        assert drawn


async def test_mouse_hover_shows_tooltips_of_keys_steps_and_fields(open_app: Open) -> None:
    async with open_app() as pilot:
        await pilot.press("3")
        form = pilot.app.screen.query_one("#form-rows", RowList)
        field = next(n for n, row in enumerate(form.rows) if "Overlap communication" in row.text)
        for selector, row, words in (
            ("#footer", 0, "Move over the rows."),
            ("#steps", 4, STEPS[4].question),
            ("#form-rows", field, help_for("deepspeed.zero_optimization.overlap_comm")),
        ):
            widget = pilot.app.screen.query_one(selector, RowList)
            await pilot.hover(selector, offset=(3, row + widget.gutter.top))
            await until(pilot, lambda widget=widget, words=words: str(widget.tooltip) == words)


def test_help_uses_the_width_of_its_dialog() -> None:
    rows = help_rows("run", field_of("deepspeed.zero_optimization.stage", State(load(PLAN, "plan.yaml", ".")))[1], 60)
    lengths = [len(row.text) for row in rows]
    assert max(lengths) <= 60 and sum(length > 50 for length in lengths) > 10


async def test_help_that_is_longer_than_its_room_says_that_it_goes_on(open_app: Open) -> None:
    async with open_app(size=(80, 24)) as pilot:
        await pilot.press("7")
        await until(pilot, lambda: re.search(r"every GPU[^…]*…$", text_of(pilot, "#hint").rstrip()))
        await pilot.resize_terminal(120, 40)
        await until(pilot, lambda: "null is every GPU of this machine" in " ".join(text_of(pilot, "#hint").split()))
