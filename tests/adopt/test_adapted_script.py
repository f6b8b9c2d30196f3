"""Plain loops are converted to DeepSpeed: lines go to their places, unclear places are reported, and the rest is unchanged."""

from __future__ import annotations

import difflib

import pytest

from dstui.adopt.adapted_script import adapted
from dstui.adopt.script import inspect_script
from dstui.adopt.script_tree import NoPlace
from tests.adopt.plain_loops import FLAT, FUNCTIONS, HEAD, LOOPS, MICRO_BATCHES


@pytest.mark.parametrize("name", LOOPS)
def test_each_line_goes_to_its_place(name: str) -> None:
    loop = LOOPS[name]
    assert (found := inspect_script(loop.text).without) is not None and not found.doubt
    made = adapted(loop.text)
    compile(made.text, name, "exec")
    notes = "\n".join(f"{line}: {note}" for line, note in made.notes)
    assert [part for part in loop.has if part not in made.text] == [], made.text
    assert [part for part in loop.removed if part in made.text] == [], made.text
    assert [part for part in loop.notes if part not in notes] == [], notes
    assert inspect_script(made.text).integration == "deepspeed" and inspect_script(made.text).without is None


def test_all_other_bytes_stay() -> None:
    odd = FLAT.replace('print("loss", ', 'print("ж\\tloss",   ').replace("\n", "\r\n")
    kept = [line[2:] for line in difflib.ndiff(odd.splitlines(True), adapted(odd).text.splitlines(True)) if line.startswith("  ")]
    assert any("ж" in line and line.endswith("\r\n") for line in kept) and "\n" not in adapted(odd).text.replace("\r\n", "")
    removed = [line[2:].strip() for line in difflib.ndiff(odd.splitlines(), adapted(odd).text.splitlines()) if line.startswith("- ")]
    assert removed == ["loader = DataLoader(dataset, batch_size=4)", "optimizer.zero_grad()", "loss.backward()", "optimizer.step()"]


def test_function_may_build_model_and_optimizer() -> None:
    built = "def build():\n    m = nn.Linear(4, 1)\n    return m, torch.optim.AdamW(m.parameters())\n\nmodel, optimizer = build()\n"
    text = FLAT.replace("model = nn.Linear(4, 1)\noptimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)\n", built)
    assert text != FLAT
    assert "model, *_ = deepspeed.initialize(model=model, optimizer=optimizer" in adapted(text).text


@pytest.mark.parametrize("passes", ["loader", "tqdm(loader)", "enumerate(bar)", "self.loader"])
def test_training_loader_is_told_from_the_evaluations(passes: str) -> None:
    text = HEAD + (
        "def loaders():\n    return DataLoader(dataset, batch_size=4, shuffle=True)\n\n\n"
        "class Run:\n    def __init__(self, loader):\n        self.loader = loader\n\n"
        "    def train(self, model, optimizer, loader):\n        bar = tqdm(loader)\n"
        f"        for inputs, targets in {passes}:\n"
        "            loss = nn.functional.mse_loss(model(inputs), targets)\n"
        "            loss.backward()\n            optimizer.step()\n            optimizer.zero_grad()\n\n\n"
        "evaluated = DataLoader(dataset, batch_size=8, shuffle=True)\ntrained = loaders()\nmodel = nn.Linear(4, 1)\n"
        "optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)\nRun(trained).train(model, optimizer, trained)\n"
    )
    changed = adapted(text)
    assert "batch_size=4, sampler=torch.utils.data.DistributedSampler(dataset, shuffle=True))" in changed.text
    assert changed.needs["train_micro_batch_size_per_gpu"] == 4


def test_loss_computed_without_the_engines_forward_is_reported() -> None:
    notes = adapted(FLAT.replace("nn.functional.mse_loss(model(inputs), targets)", "model.loss(inputs, targets)")).notes
    assert [line for line, said in notes if "model.loss() does not go through" in said] == [14]
    assert not any("does not go through" in said for _, said in adapted(FLAT).notes)


@pytest.mark.parametrize(("device", "fixed"), [('"cuda:0"', True), ('f"cuda:{rank}"', False), ('"cuda:{}".format(rank)', False)])
def test_device_of_one_gpu_for_all_ranks_is_reported(device: str, fixed: bool) -> None:
    notes = adapted(FLAT.replace("nn.Linear(4, 1)", f"nn.Linear(4, 1).to({device})")).notes
    assert any("is one GPU for all ranks" in note for _, note in notes) == fixed


TWO = HEAD + "a = torch.optim.Adam(m.parameters())\nb = torch.optim.Adam(n.parameters())\nloss.backward()\na.step()\n"


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        (TWO, 9, "2 optimizers"),
        (FLAT.replace("optimizer.step()", "optimizer.step(closure)"), 16, "closure"),
        (FLAT.replace("loss.backward()", "work(loss)"), 0, "another file"),
        (FLAT.replace("model.parameters()", "things"), 9, "the model of this optimizer"),
        (FLAT.replace("loss.backward()", "loss.backward(retain_graph=True); loss.pow(2).backward()"), 15, "second backward"),
        (MICRO_BATCHES.replace("in range(micro_batches)", "in parts"), 17, "how many times"),
    ],
)
def test_unclear_line_has_no_place(text: str, line: int, said: str) -> None:
    with pytest.raises(NoPlace, match=said) as problem:
        adapted(text)
    assert problem.value.line == line


def test_weights_loaded_after_training_do_not_move_the_engine() -> None:
    made = adapted(
        FUNCTIONS.replace("\n\nif __name__", '    model.load_state_dict(torch.load("best.pt"))\n\n\nif __name__').replace(
            "    for _ in range(2):\n        train(", "    train("
        )
    )
    assert made.text.index("deepspeed.initialize(model=model") < made.text.index("    train(model, optimizer")


SIZES = {
    "itself": "n = 4 * n",
    "a circle": "n = m * 2\nm = n * 2",
    "deep": "n = " + " * ".join(["2"] * 400),
    "infinite": "n = 1e308 * 1e308",
    "long": f"n = {10**400} * 1.5",
    "zero": "n = 0",
    "negative": "n = -4",
    "divided by zero": "n = 8 // 0",
}


@pytest.mark.parametrize("size", SIZES)
def test_batch_size_that_cannot_be_computed_is_left_out(size: str) -> None:
    text = FLAT.replace("batch_size=4", "batch_size=n").replace("model = nn", f"{SIZES[size]}\nmodel = nn")
    assert "train_micro_batch_size_per_gpu" not in adapted(text).needs


def test_script_with_too_many_calls_or_nestings_is_refused() -> None:
    with pytest.raises(NoPlace, match="more than 100 calls"):
        adapted(FLAT.replace("        loss.backward()\n", "        loss.backward()\n        optimizer.step()\n" * 5000))
    chosen = "torch.optim.AdamW(model.parameters())"
    with pytest.raises(NoPlace):
        adapted(FLAT.replace("optimizer = torch", "optimizer = " + f"{chosen} if x else " * 3000 + "torch"))


@pytest.mark.parametrize(
    ("name", "needs"),
    [
        ("by hand", {"gradient_clipping": 0}),
        ("inline", {"train_micro_batch_size_per_gpu": 2, "gradient_clipping": 0}),
        ("accumulated", {"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 2, "gradient_clipping": 0}),
        ("scaled", {"train_micro_batch_size_per_gpu": 4, "zero_allow_untested_optimizer": True, "gradient_clipping": 1.0}),
        (
            "micro-batches",
            {
                "train_micro_batch_size_per_gpu": 4,
                "gradient_accumulation_steps": 2,
                "zero_allow_untested_optimizer": True,
                "gradient_clipping": 0,
            },
        ),
        ("choice", {"train_micro_batch_size_per_gpu": 4, "zero_allow_untested_optimizer": True, "gradient_clipping": 0}),
        ("values", {"train_micro_batch_size_per_gpu": 4}),
    ],
)
def test_values_for_the_configuration_are_returned(name: str, needs: dict[str, object]) -> None:
    assert adapted(LOOPS[name].text).needs == needs
