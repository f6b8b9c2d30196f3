"""The start without a file: what was found, and each way to go on."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from textual.pilot import Pilot

from dstui.documents.open import open_document
from dstui.tui.app import DstuiApp
from dstui.tui.dialogs.welcome import Start
from dstui.tui.flows.launching import Launching
from dstui.tui.forms.steps import STEPS
from dstui.tui.kit.row_list import RowList
from dstui.tui.session.background import Probe
from dstui.tui.session.drafts import Draft
from dstui.tui.session.messages import Probed
from tests.adopt.plain_loops import LOOPS
from tests.tui.conftest import PLAN, SCRIPT, hidden_by_the_scrollbar, machine, notices, screen, store, text_of, until, value

Begin = Callable[..., AbstractAsyncContextManager[Pilot[int]]]


@pytest.fixture
def begin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Begin:
    """Return `begin`: `async with begin({"train.py": text}, gpus=8) as pilot` starts dstui without a file in a folder with these files."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)

    @asynccontextmanager
    async def begun(
        files: dict[str, str], gpus: int = 0, size: tuple[int, int] = (120, 40), *, looked_at: bool = True
    ) -> AsyncIterator[Pilot[int]]:
        for name, text in files.items():
            (folder / name).write_text(text)
        if not looked_at:
            monkeypatch.setattr(Probe, "start", lambda _service, _state: None)
        app = DstuiApp(None, None, machine(gpus) if looked_at else None, reference=False)
        async with app.run_test(size=size, notifications=True) as pilot:
            await until(pilot, lambda: isinstance(pilot.app.screen, Start))
            yield pilot

    return begun


def answer(pilot: Pilot[int]) -> str:
    """Return the answer under the cursor."""
    return str(pilot.app.screen.query_one("#answers", RowList).cursor)


async def test_busy_gpus_are_named_beside_the_estimates(begin: Begin) -> None:
    async with begin({"train.py": SCRIPT}, gpus=2) as pilot:
        assert "GPU" not in text_of(pilot, "#answers").split("In this folder")[0].replace("2 x A100 80GB", "")
        idle = machine(2)
        busy = replace(idle.gpus[1], memory_used=70 << 30, memory_total=80 << 30)
        pilot.app.post_message(Probed(replace(idle, gpus=(idle.gpus[0], busy))))
        await until(pilot, lambda: "▲ GPU 1 is in use" in text_of(pilot, "#answers"))


async def test_machine_scripts_and_files_are_named_and_recipes_come_first(begin: Begin) -> None:
    async with begin({"train.py": SCRIPT, "net.py": "import torch\n", "notes.py": "", "plan.yaml": PLAN}, gpus=8) as pilot:
        shown = text_of(pilot, "#answers")
        assert "8 x A100 80GB" in shown
        assert "train.py (deepspeed), net.py and plan.yaml" in shown
        assert shown.index("r ZeRO-1") < shown.index("1 plan.yaml") < shown.index("q quickstart") < shown.index("b blank")


async def test_recipe_makes_a_plan_for_the_found_script(begin: Begin) -> None:
    async with begin({"train.py": SCRIPT}, gpus=8) as pilot:
        await pilot.press("r")
        assert value(pilot, "job.script") == "train.py"
        assert value(pilot, "job.args") == ["--deepspeed_config", "{ds_config}"]
        await until(pilot, lambda: store(pilot).state.lookups and not store(pilot).state.counted("error"))


async def test_x_leads_a_plain_loop_to_its_adapted_script(begin: Begin) -> None:
    async with begin({"train.py": LOOPS["flat"].text}, size=(80, 24)) as pilot:
        await until(pilot, lambda: "r 2 ranks on the CPU" in text_of(pilot, "#answers"))
        await pilot.press("r", "tab", "tab")
        await until(pilot, lambda: "PL027" in text_of(pilot, "#checks"))
        assert "Enter set" in screen(pilot), "Enter opens the field of the finding there"
        await pilot.press("x")
        await until(pilot, lambda: "▸ → write train_deepspeed.py" in screen(pilot))
        await pilot.press("enter")
        await until(pilot, lambda: value(pilot, "job.script") == "train_deepspeed.py" and "▸ → launch it" in screen(pilot))


async def test_file_is_opened_by_its_number(begin: Begin) -> None:
    async with begin({"a.json": '{"train_batch_size": 7}', "b.yaml": PLAN}) as pilot:
        await pilot.press("2")
        assert store(pilot).state.plan.name == "small"
        assert store(pilot).path == Path("b.yaml")


async def test_empty_folder_offers_the_quickstart_and_a_blank_plan(begin: Begin) -> None:
    async with begin({}) as pilot:
        await pilot.press("b")
        assert value(pilot, "job.script") == "train.py"


async def test_script_beside_its_configuration_is_one_choice(begin: Begin) -> None:
    async with begin({"train.py": SCRIPT, "ds_config.json": '{"train_batch_size": 8}'}, gpus=8) as pilot:
        assert "s train.py with ds_config.json" in text_of(pilot, "#answers")
        await pilot.press("enter")  # it is the first one
        assert value(pilot, "job.script") == "train.py"
        assert value(pilot, "job.args") == ["--deepspeed_config", "{ds_config}"]
        assert value(pilot, "deepspeed.train_batch_size") == 8


async def test_configuration_that_the_script_can_read_comes_first(begin: Begin) -> None:
    auto = '{"train_batch_size": "auto"}'
    files = {"a_yaml.yaml": f"{ACCELERATE_YAML}  zero_stage: 3\n", "b_auto.json": auto, "c_own.json": '{"train_batch_size": 8}'}
    async with begin({"train.py": SCRIPT, **files}, gpus=8) as pilot:
        assert "s train.py with c_own.json" in text_of(pilot, "#answers")
    async with begin({"train.py": ACCELERATED, **files}, gpus=8) as pilot:
        assert "s train.py with a_yaml.yaml" in text_of(pilot, "#answers")


async def test_found_script_comes_before_the_quickstart_without_gpus(begin: Begin) -> None:
    async with begin({"train.py": SCRIPT}, looked_at=False) as pilot:
        await until(pilot, lambda: answer(pilot).startswith("quickstart"))
        pilot.app.post_message(Probed(machine(0)))
        await until(pilot, lambda: answer(pilot).startswith("2 ranks on the CPU"))


async def test_chosen_answer_stays_selected_when_the_machine_is_known(begin: Begin) -> None:
    async with begin({"train.py": SCRIPT}, looked_at=False) as pilot:
        await pilot.press("down")
        pilot.app.post_message(Probed(machine(0)))
        await until(pilot, lambda: "r 2 ranks on the CPU" in text_of(pilot, "#answers"))
        assert answer(pilot).startswith("blank")


@pytest.mark.parametrize("size", [(120, 40), (80, 24)])
async def test_enter_alone_leads_from_the_quickstart_to_the_launch(
    begin: Begin, size: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    launched: list[bool] = []
    monkeypatch.setattr(Launching, "_launch", lambda _flow, yes: launched.append(yes))
    monkeypatch.setattr("dstui.tui.flows.launching.FRESH", 1000.0)
    async with begin({}, size=size) as pilot:
        await until(pilot, lambda: "q quickstart" in text_of(pilot, "#answers"))
        await pilot.press("enter")
        for number, step in enumerate(STEPS[:8], 1):
            await until(pilot, lambda step=step: step.title in screen(pilot) and "▸ →" in screen(pilot))
            assert pilot.app.step is step
            assert number == 8 or "Enter next step" in screen(pilot)
            assert not launched
            await pilot.press("enter")
        await until(pilot, lambda: any("again" in note.message for note in pilot.app._notifications))
        assert not launched, "the key may have been held since the start"
        monkeypatch.setattr("dstui.tui.flows.launching.FRESH", 0.0)
        await pilot.press("enter")
        await until(pilot, lambda: launched == [True])
        assert not store(pilot).can_undo, "continuing edits nothing"


async def test_launch_key_works_on_every_step_and_opens_review_first(begin: Begin, monkeypatch: pytest.MonkeyPatch) -> None:
    launched: list[bool] = []
    monkeypatch.setattr(Launching, "_launch", lambda _flow, yes: launched.append(yes))
    async with begin({}) as pilot:
        await pilot.press("escape")
        for number in "12345679":
            await pilot.press(number, "l")
            assert pilot.app.step is STEPS[7]
            await until(pilot, lambda: any("l again" in note.message for note in pilot.app._notifications))
            assert not launched
        monkeypatch.setattr("dstui.tui.flows.launching.FRESH", 0.0)
        await pilot.press("l")
        assert launched == [True]


async def test_escape_keeps_the_quickstart_open(begin: Begin) -> None:
    async with begin({}) as pilot:
        await pilot.press("escape")
        assert store(pilot).state.plan.name == "quickstart"


async def test_file_that_is_no_plan_is_reported_and_nothing_is_lost(begin: Begin) -> None:
    async with begin({"bad.yaml": "deepspeed:\n\t- x\n"}) as pilot:
        await pilot.press("1")
        await until(pilot, lambda: "bad.yaml:2" in screen(pilot))
        assert store(pilot).state.plan.name == "quickstart"


async def test_edits_of_a_plan_without_a_file_are_offered_first(begin: Begin) -> None:
    draft = Draft(
        f"/shipped/quickstart.yaml in {Path.cwd()}", PLAN, PLAN.replace("stage: 2", "stage: 3"), "quickstart.yaml", str(Path.cwd())
    )
    replace(draft, ticks=1).keep()
    async with begin({}) as pilot:
        await pilot.press("u")
        assert value(pilot, "deepspeed.zero_optimization.stage") == 3
        await pilot.press("z")
        assert value(pilot, "deepspeed.zero_optimization.stage") == 2


async def test_every_choice_is_reachable_on_a_small_screen(begin: Begin) -> None:
    async with begin({f"plan{n}.yaml": PLAN for n in range(9)} | {"train.py": SCRIPT}, gpus=8, size=(60, 16)) as pilot:
        await pilot.press("end")
        await until(pilot, lambda: "b blank" in screen(pilot))


async def test_recipes_show_the_models_needs_and_fitting_ones_come_first(begin: Begin) -> None:
    small = SCRIPT + 'model = AutoModelForCausalLM.from_pretrained("HuggingFaceTB/SmolLM2-135M")\n'
    async with begin({"train.py": small}, gpus=2) as pilot:
        lines = [line for line in text_of(pilot, "#answers").splitlines() if "ZeRO-" in line]
        assert re.search(r" \d+G ▲ RAM \d+G +\d+% +\S+k tok/s", lines[0]), "shows GPU and RAM, which decides, and the speed"
        assert [line[25:] for line in lines] == sorted((line[25:] for line in lines), key=lambda line: "✖" in line)
        await pilot.press("r")
        assert value(pilot, "model.source") == "HuggingFaceTB/SmolLM2-135M"


async def test_recipes_show_the_largest_model_if_none_is_known(begin: Begin) -> None:
    async with begin({"train.py": SCRIPT}, gpus=8) as pilot:
        await until(pilot, lambda: "B parameters" in text_of(pilot, "#answers"))
        sizes = [float(found) for found in re.findall(r"to ([\d.]+)B parameters", text_of(pilot, "#answers"))]
        assert len(sizes) > 2
        assert sizes == sorted(sizes)


ACCELERATE_YAML = (
    "compute_environment: LOCAL_MACHINE\ndistributed_type: DEEPSPEED\nmixed_precision: bf16\nnum_processes: 2\ndeepspeed_config:\n"
)
ACCELERATED = "from accelerate import Accelerator\nimport torch\naccelerator = Accelerator()\noptimizer = torch.optim.AdamW([])\n"


async def test_accelerate_yaml_and_its_script_are_one_choice(begin: Begin) -> None:
    files = {"train.py": ACCELERATED, "acc.yaml": f"{ACCELERATE_YAML}  zero_stage: 3\n"}
    async with begin(files) as pilot:
        assert "s train.py with acc.yaml" in text_of(pilot, "#answers")
        await pilot.press("s")
        await until(pilot, lambda: value(pilot, "job.script") is not None and value(pilot, "deepspeed.zero_optimization.stage") == 3)
        assert (value(pilot, "job.integration"), value(pilot, "job.optimizer")) == ("accelerate", "script")
        assert value(pilot, "cluster.hosts") == {"localhost": 2}


async def test_json_named_by_the_yaml_comes_with_it(begin: Begin) -> None:
    files = {
        "train.py": ACCELERATED,
        "acc.yaml": f"{ACCELERATE_YAML.replace('mixed_precision: bf16', '')}  deepspeed_config_file: ds.json\n",
        "ds.json": '{"train_micro_batch_size_per_gpu": 3, "zero_optimization": {"stage": 2}}',
    }
    async with begin(files) as pilot:
        shown = text_of(pilot, "#answers")
        assert "train.py with acc.yaml" in shown and "train.py with ds.json" not in shown
        await pilot.press("s")
        await until(pilot, lambda: value(pilot, "deepspeed.train_micro_batch_size_per_gpu") == 3)


async def test_problems_of_the_opened_file_are_reported(tmp_path: Path) -> None:
    file = tmp_path / "ds.json"
    file.write_text('{"train_batch_size": 16,\n"train_batch_size": 32}\n')
    opened = open_document(str(file))
    app = DstuiApp(opened.plan, opened.path, machine(0), reference=False, opened=opened)
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await until(pilot, lambda: "DS023, line 2" in screen(pilot))


async def test_one_of_several_launches_is_chosen_by_what_tells_it_from_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shared = "--master_port 29501 train.py --data_path /a/long/path/that/all/of/the/launches/have.json --output_dir out"
    (tmp_path / "go.sh").write_text("".join(f"deepspeed {shared} --lr {lr}\n" for lr in ("1e-3", "2e-5")))
    opened = open_document("go.sh")
    app = DstuiApp(opened.plan, opened.path, machine(0), reference=False, opened=opened)
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await until(pilot, lambda: "line 2: deepspeed … train.py --lr 2e-5" in text_of(pilot, "#answers"))
        await pilot.press("2")
        await until(pilot, lambda: value(pilot, "job.args")[-1] == "2e-5")  # type: ignore[index]
        await pilot.pause(0.1)
        assert not notices(pilot), "the picker has said it"


async def test_start_screen_is_whole_at_80_columns(begin: Begin) -> None:
    async with begin({"train.py": SCRIPT}, gpus=8, size=(80, 24)) as pilot:
        await until(pilot, lambda: re.search(r"to [\d.]+[MB] parameters", screen(pilot)))
        assert all(line.text.endswith("parameters") for line in pilot.app.screen.rows.rows if "parameter" in line.text)
        assert hidden_by_the_scrollbar(pilot) == []


async def test_script_given_as_argument_is_the_one_to_start_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    for name in ("train.py", "loop.py"):
        (tmp_path / name).write_text("import torch\nloss.backward()\n")
    app = DstuiApp(None, None, machine(8), reference=False, script="loop.py")
    async with app.run_test(size=(120, 40), notifications=True) as pilot:
        await until(pilot, lambda: "A Plan for loop.py on this machine" in screen(pilot))
        await pilot.press("r")
        assert value(pilot, "job.script") == "loop.py"
        await until(pilot, lambda: any(finding.code == "PL027" for finding in store(pilot).state.findings))
        await pilot.press("8")
        await until(pilot, lambda: "the lines that loop.py needs" in screen(pilot))


async def test_shipped_plan_shows_its_purpose_and_whether_it_fits(begin: Begin) -> None:
    async with begin({"finetune.py": SCRIPT}, gpus=8) as pilot:
        await pilot.press("p")
        await until(pilot, lambda: "Shipped Plans" in screen(pilot))
        await until(pilot, lambda: re.search(r"zero2 +Qwen2.5-3B . [\d.]+", text_of(pilot, "#answers")))
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(pilot.app.screen, Start))
        await pilot.press("p", "down", "down", "enter")
        await until(pilot, lambda: store(pilot).state.plan.name == "zero2")
        assert value(pilot, "job.script") == "finetune.py"


async def test_site_templates_show_their_purpose_and_whether_they_fit(
    begin: Begin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path.chmod(0o755)
    (tmp_path / "templates").mkdir()
    (tmp_path / "templates" / "sft.yaml").write_text("# fine-tuning, as we do it\n" + PLAN)
    (tmp_path / "templates" / "big.yaml").write_text("# ten nodes\n" + PLAN + "cluster: {num_nodes: 10, num_gpus: 8}\n")
    (tmp_path / "site.yaml").write_text("version: 1\ntemplates: templates\nlocked: {cluster.num_nodes: {max: 4}}\n")
    (tmp_path / "site.yaml").chmod(0o644)
    monkeypatch.setenv("DSTUI_SITE", str(tmp_path / "site.yaml"))
    async with begin({}, gpus=1, size=(80, 24)) as pilot:
        await until(pilot, lambda: re.search(r"sft +fits +fine-tuning, as we do", text_of(pilot, "#answers")), 20)
        shown = text_of(pilot, "#answers")
        assert re.search(r"big +not allowed +ten nodes", shown)
        rows = pilot.app.screen.query_one("#answers", RowList)
        rows.cursor = next(row.key for row in rows.rows if str(row.key).startswith("sft"))
        await pilot.press("enter")
        await until(pilot, lambda: store(pilot).state.plan.text.startswith("# fine-tuning"))
        assert store(pilot).path is None, "a template is never overwritten"
