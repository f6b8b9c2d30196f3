"""Step 6: the arithmetic of the batch."""

from __future__ import annotations

import pytest

from dstui.plain.answers import value_text
from dstui.plan import load
from dstui.tui.forms.form_rows import form_rows
from dstui.tui.forms.steps.batch import ACCUMULATION, BATCH, product
from dstui.tui.session.state import State


@pytest.mark.parametrize(
    ("batch", "args", "said"),
    [
        ("train_micro_batch_size_per_gpu: 2", "", "2 x 1 x 8 ranks = 16 samples per step"),
        ("train_micro_batch_size_per_gpu: 2, train_batch_size: 64", "", "2 x 4 x 8 ranks = 64 samples per step"),
        ("train_batch_size: 64", "", "8 x 1 x 8 ranks = 64 samples per step"),
        (
            "train_micro_batch_size_per_gpu: 2, train_batch_size: 64",
            "--tensor-model-parallel-size, '2', --pipeline-model-parallel-size, '2'",
            "2 x 16 x 2 ranks = 64 samples per step",
        ),
    ],
)
def test_batch_is_completed_as_deepspeed_does(batch: str, args: str, said: str) -> None:
    text = f"version: 1\njob: {{script: t.py, args: [{args}]}}\ndeepspeed: {{{batch}}}\n"
    state = State(load(text, "plan.yaml", "/"), ranks=8)
    assert product(state) == said
    micro, _, steps, *_ = said.split()
    assert BATCH.value(state) == f"{micro}×{steps}"


@pytest.mark.parametrize(("count", "said"), [(1, "1 micro-batch"), (3, "3 micro-batches")])
def test_one_micro_batch_is_singular_in_prompts_and_forms(count: int, said: str) -> None:
    state = State(load(f"version: 1\ndeepspeed: {{gradient_accumulation_steps: {count}}}\n", "plan.yaml", "/"))
    field = next(field for field in BATCH.fields(state) if field.path == ACCUMULATION)
    assert value_text(field, state) == said
    assert any(f"{said} " in f"{row.text} " for row in form_rows(BATCH, state, 78, "", roomy=False))
