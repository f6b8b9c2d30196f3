"""Every step edits the Plan in every way of editing; nothing that was typed or written is lost."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from dstui.plan.catalogue import release
from dstui.tui.forms.steps import field_of
from dstui.tui.kit.row_list import RowList
from dstui.tui.session.messages import PathChosen
from tests.tui.conftest import PLAN, Open, codes, keys, letters, notices, screen, store, text_of, until, value

# step, keys from its first row, path, value in the Plan afterwards
EDITS = [
    ("1", ["enter", "backspace", "3", "enter"], "cluster.cpu_ranks", 3),
    ("2", ["enter", *["backspace"] * 5, *"run7", "enter"], "name", "run7"),
    ("3", ["down", "enter"], "deepspeed.zero_optimization.stage", 3),
    ("4", ["down", "enter"], "deepspeed.zero_optimization.offload_optimizer.device", "cpu"),
    ("5", ["down", "enter"], "deepspeed.fp16.enabled", True),
    ("6", ["enter", "backspace", *"16", "enter"], "deepspeed.train_micro_batch_size_per_gpu", 16),
    ("7", ["enter", *"localhost: 2", "enter"], "cluster.hosts", {"localhost": 2}),
]


async def test_every_step_edits_the_plan(open_app: Open) -> None:
    async with open_app() as pilot:
        for step, keys, path, wanted in EDITS:
            await pilot.press(step, *({" ": "space", ":": "colon"}.get(key, key) for key in keys))
            assert value(pilot, path) == wanted
            assert store(pilot).state.plan.text.count("# a comment that stays") == 1
            store(pilot).undo()
        assert store(pilot).state.plan.text == PLAN


async def test_lora_and_quantized_weights_have_rows(open_app: Open) -> None:
    async with open_app(size=(120, 60)) as pilot:
        await pilot.press("2")
        store_of = store(pilot)

        async def go_to(path: str) -> None:
            pilot.app.screen.jump(PathChosen(path))
            await until(pilot, lambda: pilot.app.screen.here.path == path)

        await go_to("model.lora")
        await pilot.press("space")
        assert value(pilot, "model.lora") == {"r": 8}
        await go_to("model.lora.r")
        await pilot.press("enter", "backspace", "1", "6", "enter")
        await go_to("model.lora.target_modules")
        await pilot.press("enter", *["backspace"] * 12, *"q_proj", "space", *"v_proj", "enter")
        await go_to("model.quantization")
        await pilot.press("right")
        assert store_of.state.plan.data["model"]["lora"] == {"r": 16, "target_modules": ["q_proj", "v_proj"]}
        assert value(pilot, "model.quantization") == "int8"
        await go_to("model.lora")
        await pilot.press("space")
        assert "lora" not in store_of.state.plan.data["model"]


async def test_review_asks_for_each_open_hole(open_app: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIVEN_HERE", "x")
    args = "args: [--data, '${YOUR_DATA}', --also, '${YOUR_DATA}/b', --env, '${GIVEN_HERE}']"
    async with open_app(PLAN.replace('args: [--deepspeed_config, "{ds_config}"]', args)) as pilot:
        await pilot.press("8")
        await until(pilot, lambda: "hole YOUR_DATA" in keys(pilot, "#review-names"))
        assert "hole GIVEN_HERE" not in keys(pilot, "#review-names")
        assert "PL070" in codes(pilot), "a launch is refused"
        pilot.app.screen.query_one("#review-names").cursor = "hole YOUR_DATA"
        await pilot.press("enter")
        await until(pilot, lambda: "job.args.1, job.args.3" in screen(pilot))
        await pilot.press(*"abc", "enter")
        await until(pilot, lambda: "hole YOUR_DATA" not in keys(pilot, "#review-names"))
        assert value(pilot, "job.args") == ["--data", "abc", "--also", "abc/b", "--env", "${GIVEN_HERE}"]


async def test_long_review_labels_end_with_an_ellipsis(open_app: Open) -> None:
    async with open_app(size=(100, 40)) as pilot:
        await pilot.press("8")
        await until(pilot, lambda: "the same without this scre…" in screen(pilot), 9)
        assert "the lines that a script ne…" in screen(pilot)  # train.py reads a configuration already
        await pilot.press("end")
        await until(pilot, lambda: "deepspeed.initialize(" in screen(pilot))
        content = pilot.app.screen.query_one("#review-content", RowList)
        assert content.max_scroll_y > 0 and all(len(one.text) < content.size.width - 2 for one in content.rows), "the scroll bar hides none"


async def test_adapted_script_is_written_and_replaced_only_after_a_question(open_app: Open, tmp_path: Path) -> None:
    loop = "import torch\nmodel = torch.nn.Linear(2, 2)\noptimizer = torch.optim.AdamW(model.parameters())\n"
    loop += (
        "for x in range(9):\n    loss = model(torch.ones(2)).sum()\n    optimizer.zero_grad()\n    loss.backward()\n    optimizer.step()\n"
    )
    async with open_app() as pilot:
        (tmp_path / "train.py").write_text(loop)
        (tmp_path / "train_deepspeed.py").write_text("other")
        await pilot.press("8")
        await until(pilot, lambda: "write the script" in keys(pilot, "#review-names"), 9)
        pilot.app.screen.query_one("#review-names").cursor = "write the script"
        await pilot.press("enter")
        await until(pilot, lambda: letters(pilot) == "nr", 9)
        assert (tmp_path / "train_deepspeed.py").read_text() == "other"
        await pilot.press("r")
        await until(pilot, lambda: value(pilot, "job.script") == "train_deepspeed.py", 9)
        assert "deepspeed.initialize" in (tmp_path / "train_deepspeed.py").read_text()


async def test_unit_of_one_is_singular(open_app: Open) -> None:
    async with open_app(PLAN.replace("train_micro_batch_size_per_gpu: 4", "train_micro_batch_size_per_gpu: 1")) as pilot:
        await pilot.press("6")
        await until(pilot, lambda: "1 sample " in screen(pilot))


async def test_edit_marks_exactly_the_changed_lines_of_the_preview(open_app: Open) -> None:
    async with open_app() as pilot:
        await pilot.press("3", "down", "enter")
        marked = [row.text.strip() for row in pilot.app.screen.query_one("#preview").rows if row.mark]
        assert marked == ['"stage": 3']


async def test_preview_equals_the_file_byte_for_byte(open_app: Open) -> None:
    from dstui.render.jsontext import json_text

    async with open_app() as pilot:
        await pilot.press("3", "down", "enter")
        shown = "".join("".join(span.text for span in row.left) + "\n" for row in pilot.app.screen.query_one("#preview").rows)
        assert shown == json_text(store(pilot).state.plan.deepspeed)


async def test_undo_and_redo_cover_every_edit_and_typing_is_one_step(open_app: Open) -> None:
    async with open_app() as pilot:
        await pilot.press("6", "enter", "backspace", "1", "2", "8", "enter")
        await pilot.press("3", "down", "enter")
        assert (value(pilot, "deepspeed.train_micro_batch_size_per_gpu"), value(pilot, "deepspeed.zero_optimization.stage")) == (128, 3)
        await pilot.press("z")
        assert (value(pilot, "deepspeed.train_micro_batch_size_per_gpu"), value(pilot, "deepspeed.zero_optimization.stage")) == (128, 2)
        await pilot.press("z")
        assert store(pilot).state.plan.text == PLAN
        await pilot.press("Z", "Z")
        assert (value(pilot, "deepspeed.train_micro_batch_size_per_gpu"), value(pilot, "deepspeed.zero_optimization.stage")) == (128, 3)


async def test_escape_while_typing_keeps_the_text_and_can_be_undone(open_app: Open) -> None:
    async with open_app() as pilot:
        await pilot.press("6", "enter", "backspace", "7", "escape")
        assert value(pilot, "deepspeed.train_micro_batch_size_per_gpu") == 7
        await pilot.press("z")
        assert value(pilot, "deepspeed.train_micro_batch_size_per_gpu") == 4


async def test_click_on_another_field_while_typing_switches_to_it(open_app: Open) -> None:
    async with open_app() as pilot:
        await pilot.press("6", "enter", "2")
        rows = pilot.app.screen.query_one("#form-rows")
        line = next(n for n, row in enumerate(rows.rows) if "Accumulation" in row.text)
        await pilot.click("#form-rows", offset=(30, line))
        await until(pilot, lambda: pilot.app.focused.id == "editor" and pilot.app.focused.region.y == rows.region.y + line)
        await pilot.press("5", "enter")
        assert value(pilot, "deepspeed.train_micro_batch_size_per_gpu") == 42
        assert value(pilot, "deepspeed.gradient_accumulation_steps") == 25
        await until(pilot, lambda: "25 micro-batches" in screen(pilot))


async def test_invalid_number_never_reaches_the_plan_and_is_reported(open_app: Open) -> None:
    async with open_app() as pilot:
        await pilot.press("6", "enter", "x")
        assert value(pilot, "deepspeed.train_micro_batch_size_per_gpu") == 4
        await until(pilot, lambda: "'4x' is not a number" in text_of(pilot, "#form-rows"))  # while it is typed, below the line
        await pilot.press("backspace")
        await until(pilot, lambda: "is not a number" not in text_of(pilot, "#form-rows"))
        await pilot.press("x", "enter")
        await until(pilot, lambda: any("is not a number" in notice for notice in notices(pilot)))
        await pilot.press("escape")
        await until(pilot, lambda: "is not a number" not in text_of(pilot, "#form-rows"))
        assert value(pilot, "deepspeed.train_micro_batch_size_per_gpu") == 4


async def test_numbers_keep_their_typed_spelling(open_app: Open) -> None:
    async with open_app() as pilot:
        await pilot.press("3", *["down"] * 3, "enter", "5", "e", "8", "enter")
        assert "reduce_bucket_size: 5e8\n" in store(pilot).state.plan.text
        assert '"reduce_bucket_size": 5e8' in text_of(pilot, "#preview")


async def test_clearing_a_field_removes_its_key(open_app: Open) -> None:
    async with open_app() as pilot:
        await pilot.press("6", "down", "d")
        assert value(pilot, "deepspeed.gradient_accumulation_steps") is None


async def test_impossible_choice_stays_visible_and_says_why(open_app: Open) -> None:
    async with open_app() as pilot:
        await pilot.press("4", "end")
        assert "needs stage 3" in text_of(pilot, "#form-rows")
        assert "● none needs" not in text_of(pilot, "#form-rows"), "a default needs no action"
        before = store(pilot).state.plan.text
        await pilot.press("enter")
        assert store(pilot).state.plan.text == before


async def test_one_key_applies_the_fix_of_the_first_finding(open_app: Open) -> None:
    async with open_app(PLAN + "  train_batch_size: 13\n") as pilot:
        findings = store(pilot).state.findings
        first = next(f for f in findings if f.fix and f.fix.patch)
        await pilot.press("x")
        assert first.message not in {f.message for f in store(pilot).state.findings}
        await pilot.press("z")
        assert store(pilot).state.plan.text.endswith("train_batch_size: 13\n")


async def test_import_note_is_a_finding_until_one_key_settles_it(open_app: Open) -> None:
    head = "# made by dstui from run.sh\n# nsys precedes the launch, and is left out\n"
    async with open_app(f"{head}{PLAN}", size=(120, 40)) as pilot:
        await until(pilot, lambda: "PL072" in codes(pilot))
        while "PL072" in codes(pilot):
            await pilot.press("x")
            await until(pilot, lambda: store(pilot).state.checked)
        assert "nsys" not in store(pilot).state.plan.text
        await pilot.press("z")
        assert store(pilot).state.plan.text == f"{head}{PLAN}"


async def test_review_says_how_to_fix_each_problem_and_fixes_only_what_it_shows(open_app: Open) -> None:
    async with open_app(PLAN + "  train_batch_size: 13\n") as pilot:
        await pilot.press("8")
        await until(pilot, lambda: "x applies the first fix" in " ".join(text_of(pilot, "#review-verdict").split()))
        while any(f.severity != "info" and f.fix and f.fix.patch for f in store(pilot).state.findings):
            before = store(pilot).state.findings
            await pilot.press("x")
            assert store(pilot).state.findings != before
        settled = store(pilot).state.plan.text
        await pilot.press("x")
        assert store(pilot).state.plan.text == settled


async def test_enter_on_a_finding_goes_to_its_field(open_app: Open) -> None:
    async with open_app(PLAN + "  train_batch_size: 13\n") as pilot:
        await pilot.press("3", "tab", "tab", "enter")
        assert pilot.app.step.id == "batch"


async def test_enter_on_a_preview_line_goes_to_its_field(open_app: Open) -> None:
    async with open_app() as pilot:
        await pilot.press("6", "tab", *["down"] * 7, "enter")
        assert pilot.app.step.id == "zero"
        assert pilot.app.screen.query_one("#form").here.path == "deepspeed.zero_optimization.stage"


async def test_key_without_a_form_is_found_and_set_by_name(open_app: Open) -> None:
    async with open_app() as pilot:
        switches = (path for path, record in release().records.items() if record["type"] == "bool" and "." not in path)
        name = next(path for path in switches if field_of(f"deepspeed.{path}", store(pilot).state) is None)
        await pilot.press("slash", *name)
        await pilot.press("enter")
        await until(pilot, lambda: "Set a key" in screen(pilot))
        await pilot.press(*"true", "enter")
        assert value(pilot, f"deepspeed.{name}") is True


async def test_unticking_a_gpu_writes_include_and_ticking_removes_it(open_app: Open) -> None:
    async with open_app(gpus=4) as pilot:
        await pilot.press("1", "down", "enter")
        assert value(pilot, "cluster.include") == "localhost:0,2,3"
        assert store(pilot).state.ranks == 3
        await pilot.press("enter")
        assert value(pilot, "cluster.include") is None


async def test_local_slots_are_not_offered_for_other_hosts(open_app: Open) -> None:
    async with open_app(PLAN.replace("deepspeed:", "cluster: {hosts: {localhost: 2}}\ndeepspeed:"), gpus=4) as pilot:
        await pilot.press("1", "down", "enter")
        assert value(pilot, "cluster.include") == "localhost:0"
        assert "other hosts" not in screen(pilot) and "gives localhost 2 slots" in screen(pilot)
        await pilot.press("enter")
        assert value(pilot, "cluster.include") is None


async def test_saving_writes_only_the_edited_node_and_detects_changes_on_disk(open_app: Open, tmp_path: Path) -> None:
    async with open_app() as pilot:
        await pilot.press("3", "down", "enter", "f2")
        await until(pilot, lambda: store(pilot).state.saved)
        assert (tmp_path / "plan.yaml").read_text() == PLAN.replace("stage: 2", "stage: 3")
        (tmp_path / "plan.yaml").write_text("# somebody else\n")
        await pilot.press("3", "up", "enter", "f2")
        await until(pilot, lambda: letters(pilot) == "or")
        await pilot.press("escape")
        assert (tmp_path / "plan.yaml").read_text() == "# somebody else\n"


async def test_launch_from_a_recorded_machine_is_refused_in_advance(tmp_path: Path, open_app: Open) -> None:
    async with open_app(PLAN) as pilot:
        store(pilot).machine_probed(replace(store(pilot).state.machine, recorded=True))
        await pilot.press("8")
        await until(pilot, lambda: "nothing is launched" in " ".join(text_of(pilot, "#review-verdict").lower().split()))
        await pilot.press("l")
        await until(pilot, lambda: notices(pilot, "error"))
        assert not (tmp_path / "dstui_runs").exists()


SPOILT = {
    "a folder": lambda path: (path.unlink(), path.mkdir()),
    "a pipe": lambda path: (path.unlink(), os.mkfifo(path)),
    "a binary file": lambda path: path.write_bytes(b"\0" * 100),
    "another encoding": lambda path: path.write_bytes("name: Größe\n".encode("latin-1")),
    "5 MB": lambda path: path.write_bytes(b"# more\n" * 800_000),
}


@pytest.mark.parametrize("what", SPOILT)
async def test_plan_replaced_on_disk_is_reported_and_edits_are_saved_elsewhere(open_app: Open, tmp_path: Path, what: str) -> None:
    async with open_app() as pilot:
        await pilot.press("3", "down", "enter")
        SPOILT[what](tmp_path / "plan.yaml")
        await pilot.press("f2")
        can_be_replaced = (tmp_path / "plan.yaml").is_file()
        await until(pilot, lambda: letters(pilot) == ("or" if can_be_replaced else "o"))
        assert "It was a valid Plan when it was read." in " ".join(text_of(pilot, "#answers").split())
        await pilot.press("o", "ctrl+u", *"mine", "full_stop", *"yaml", "enter")
        await until(pilot, (tmp_path / "mine.yaml").exists)
        assert "stage: 3" in (tmp_path / "mine.yaml").read_text()
        if can_be_replaced:
            pilot.app.session.path = tmp_path / "plan.yaml"
            await pilot.press("f2")
            await until(pilot, lambda: letters(pilot) == "or")
            await pilot.press("r")
            await until(pilot, lambda: "stage: 3" in (tmp_path / "plan.yaml").read_text())


async def test_quitting_asks_only_if_edits_would_be_lost(open_app: Open) -> None:
    async with open_app() as pilot:
        await pilot.press("3", "down", "enter", "q")
        await until(pilot, lambda: letters(pilot) == "sdc")
        await pilot.press("c")
        assert pilot.app.is_running
        await pilot.press("z", "q")
        await until(pilot, lambda: pilot.app._exit)


@pytest.mark.parametrize("size", [(120, 40), (80, 24)])
async def test_lock_of_a_killed_build_is_reported_before_launch_and_x_removes_it(
    open_app: Open, tmp_path: Path, size: tuple[int, int]
) -> None:
    lock = tmp_path / "ext" / "cpu_adam" / "lock"
    lock.parent.mkdir(parents=True)
    lock.touch()
    os.utime(lock, (1e9, 1e9))
    async with open_app(f"{PLAN}cluster:\n  env: {{TORCH_EXTENSIONS_DIR: {tmp_path / 'ext'}}}\n", size=size) as pilot:
        await pilot.press("8")
        await until(pilot, lambda: "OP001" in codes(pilot))
        assert lock.exists()
        await pilot.press("x")
        await until(pilot, lambda: "OP001" not in codes(pilot))
        assert not lock.exists()
        assert not store(pilot).can_undo
