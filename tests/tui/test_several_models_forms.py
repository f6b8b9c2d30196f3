"""Several models in the forms: the edited model is chosen and shown, findings lead to their model, and undo covers all models."""

from __future__ import annotations

from dstui.tui.session.messages import PathChosen
from tests.tui.conftest import Open, keys, letters, screen, store, text_of, until, value

PLAN = """\
version: 1
name: two
job: {script: train.py, integration: accelerate, optimizer: script, args: ["{ds_config:student}", "{ds_config:teacher}"]}
cluster: {hosts: {localhost: 2}}
models:
  student:   # learns
    deepspeed: {train_micro_batch_size_per_gpu: auto, gradient_accumulation_steps: 1, zero_optimization: {stage: 2}}
  teacher:
    role: inference
    deepspeed: {train_micro_batch_size_per_gpu: 1, gradient_accumulation_steps: 1, zero_optimization: {stage: 3}}
"""


async def test_forms_and_preview_show_one_model_and_a_key_switches(open_app: Open) -> None:
    async with open_app(PLAN) as pilot:
        await pilot.press("3")
        assert store(pilot).state.plan.focus == "student" and "ds_config_student.json" in screen(pilot)
        assert '"stage": 2' in text_of(pilot, "#preview")
        assert '"train_micro_batch_size_per_gpu": "a…' in screen(pilot), "a line that goes on ends with an ellipsis"
        await pilot.press("O")
        assert store(pilot).state.plan.focus == "teacher" and '"stage": 3' in text_of(pilot, "#preview")
        assert not [row for row in pilot.app.screen.query_one("#preview").rows if row.mark], "nothing was edited"
        assert store(pilot).can_undo is False and store(pilot).state.saved


async def test_model_row_switches_too_and_edits_apply_to_the_chosen_model(open_app: Open) -> None:
    async with open_app(PLAN) as pilot:
        await pilot.press("6", "home")
        store_ = store(pilot)
        pilot.app.plan_screen.form.rows.cursor = pilot.app.plan_screen.form._key_for("models", store_.state)
        await pilot.press("space")
        assert store_.state.plan.focus == "teacher"
        await pilot.press("down", "enter", "backspace", "8", "enter")
        assert value(pilot, "models.teacher.deepspeed.train_micro_batch_size_per_gpu") == 8
        assert value(pilot, "models.student.deepspeed.train_micro_batch_size_per_gpu") == "auto"


async def test_undo_covers_the_edits_of_all_models(open_app: Open) -> None:
    async with open_app(PLAN) as pilot:
        store(pilot).edit(("deepspeed.bf16.enabled", True))
        await pilot.press("O")
        store(pilot).edit(("deepspeed.bf16.enabled", True))
        assert store(pilot).state.plan.text.count("enabled: true") == 2
        await pilot.press("z", "z")
        assert store(pilot).state.plan.text == PLAN
        assert store(pilot).state.plan.focus == "teacher", "undo takes back edits, not the choice"


async def test_finding_names_its_model_and_leads_to_its_step(open_app: Open) -> None:
    text = PLAN.replace("zero_optimization: {stage: 3}", "zero_optimization: {stage: 2}")
    async with open_app(text) as pilot:
        await until(pilot, lambda: any(f.code == "PL031" for f in store(pilot).state.findings))
        pilot.app.plan_screen.jump(PathChosen("models.teacher.deepspeed.zero_optimization.stage"))
        await pilot.pause()
        assert store(pilot).state.plan.focus == "teacher" and pilot.app.screen.here.path == "deepspeed.zero_optimization.stage"
        await pilot.press("x")
        assert value(pilot, "models.teacher.deepspeed.zero_optimization.stage") == 3


async def test_role_is_asked_in_the_job_step(open_app: Open) -> None:
    async with open_app(PLAN) as pilot:
        await pilot.press("2", "O")
        assert "models.teacher.role" in keys(pilot, "#form-rows")


async def test_one_model_needs_no_choice(open_app: Open) -> None:
    async with open_app() as pilot:
        await pilot.press("3", "O")
        assert store(pilot).state.plan.focus == ""


ALONE = """\
version: 1
job: {script: train.py, integration: accelerate, optimizer: script, args: ["{ds_config}"]}
deepspeed: {train_micro_batch_size_per_gpu: auto, gradient_accumulation_steps: 1, zero_optimization: {stage: 2}}   # mine
"""


async def test_one_key_turns_one_model_into_several_and_undo_reverts_it(open_app: Open) -> None:
    async with open_app(ALONE) as pilot:
        await pilot.press("3", "A")
        await until(pilot, lambda: "name of the present model" in screen(pilot))
        await pilot.press("enter")
        await until(pilot, lambda: "name of the other model" in screen(pilot))
        await pilot.press("ctrl+u", *"student", "enter")
        await until(pilot, lambda: "student exists" in screen(pilot))
        await pilot.press("ctrl+u", *"judge", "enter")
        await until(pilot, lambda: letters(pilot))
        await pilot.press("i")
        await until(pilot, lambda: store(pilot).state.plan.focus == "judge")
        assert value(pilot, "models.judge.role") == "inference" and "# mine" in store(pilot).state.plan.text
        assert value(pilot, "job.args") == ["{ds_config:student}"]
        assert "ds_config_judge.json" in screen(pilot)
        await pilot.press("z")
        assert store(pilot).state.plan.text == ALONE and not store(pilot).state.plan.focus


async def test_adding_a_model_asks_only_for_its_name_and_escape_cancels(open_app: Open) -> None:
    async with open_app(PLAN) as pilot:
        await pilot.press("3", "A")
        await until(pilot, lambda: "name of the other model" in screen(pilot))
        await pilot.press("escape")
        assert store(pilot).state.plan.text == PLAN
        await pilot.press("A", *"critic", "enter", "t")
        await until(pilot, lambda: store(pilot).state.plan.focus == "critic")
        assert list(store(pilot).state.plan.models) == ["student", "teacher", "critic"]
