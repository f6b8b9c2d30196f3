"""Numbers out of the lines that trainings print."""

from __future__ import annotations

import math

import pytest

from dstui.run.metrics import scan

GIB = 1 << 30


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("step 10/40 loss 2.7183 1234 tokens/s", {"step": 10, "steps": 40, "loss": 2.7183, "tokens/s": 1234}),
        ("step 1204 loss 1.8312 lr 1.9e-05 41.2k tok/s", {"step": 1204, "loss": 1.8312, "lr": 1.9e-05, "tokens/s": 41200}),
        (
            "{'loss': 2.3, 'grad_norm': 1.2, 'learning_rate': 4.5e-05, 'epoch': 0.1}",
            {"loss": 2.3, "grad_norm": 1.2, "lr": 4.5e-05, "epoch": 0.1},
        ),
        ("{'loss': '2.3', 'learning_rate': '1e-05'}", {"loss": 2.3, "lr": 1e-05}),
        ("{'eval_loss': 2.1, 'eval_accuracy': 0.5}", {"eval_loss": 2.1, "accuracy": 0.5}),
        ("{'train_runtime': 9.1, 'train_samples_per_second': 3.4, 'train_loss': 0.7}", {"samples/s": 3.4, "loss": 0.7}),
        ("[INFO] [logging.py:123:log_dist] [Rank 0] step=2, skipped=0, lr=[0.001], mom=[(0.9, 0.999)]", {"step": 2, "lr": 0.001}),
        (
            "epoch=0/micro_step=4/global_step=2, RunningAvgSamplesPerSec=134.0, CurrSamplesPerSec=133.4",
            {"step": 2, "epoch": 0, "samples/s": 133.4},
        ),
        (
            " iteration      10/     100 | consumed samples: 80 | learning rate: 1.500E-04 | lm loss: 7.1E+00 | loss scale: 1.0 |",
            {"step": 10, "steps": 100, "lr": 0.00015, "loss": 7.1, "loss_scale": 1.0},
        ),
        ("iter 10: loss 3.2000, time 12.3ms, mfu 1%", {"step": 10, "loss": 3.2}),
        ("Step: 3,204 | training loss: .5 | 12.1 samples/sec", {"step": 3204, "loss": 0.5, "samples/s": 12.1}),
        ("val loss 2.9 perplexity 18.2", {"eval_loss": 2.9, "perplexity": 18.2}),
        (" 5%|5    | 5/100 [00:03<00:30, 3.02it/s]", {"step": 5, "steps": 100, "steps/s": 3.02}),
        ("Tokenizing: 5%|5    | 5/100 [00:03<00:30, 3.02it/s]", {"steps/s": 3.02}),
        ("Step 1,200 of 5,000 | loss 2.0", {"step": 1200, "steps": 5000, "loss": 2.0}),
        ("time (ms) | fwd: 24.24 | bwd: 24.02 | bwd_inner: 15.38 | bwd_allreduce: 8.58 | step: 31.27", {}),
        ("elapsed time per iteration (ms): 123.4 | iteration 3 |", {"step_time": 0.1234, "step": 3}),
        ("step 3 step time: 310 ms", {"step": 3, "step_time": 0.31}),
        ("MemAllocated=0.5GB, MaxMemAllocated=2.0GB", {"memory": GIB // 2, "memory_peak": 2 * GIB}),
        ("MA 0.5 GB         Max_MA 2.0 GB         CA 2.0 GB         Max_CA 2 GB", {"memory": GIB // 2, "memory_peak": 2 * GIB}),
        ("GPU Memory before entering the train : 512", {"memory_begin": GIB // 2}),
        ("GPU Memory consumed at the end of the train (end-begin): 1024", {"memory_consumed": GIB}),
        ("GPU Total Peak Memory consumed during the train (max): 2048", {"memory_peak": 2 * GIB}),
        ("CPU Total Peak Memory consumed during the eval (max): 2048", {"cpu_memory_peak": 2 * GIB}),
        ("Total optimization steps = 500", {}),
        ("Gradient Accumulation steps = 1", {}),
        ("the loss of 3 ranks; accuracy 91%", {}),
        ("lossless 3, stepwise 4, already 5", {}),
        ("step inf loss 1.0", {"loss": 1.0}),
        ("", {}),
    ],
)
def test_a_line_tells_its_numbers(line: str, found: dict[str, float]) -> None:
    assert scan(line) == pytest.approx(found)


def test_a_loss_that_is_not_a_number_is_one_to_tell() -> None:
    assert math.isnan(scan("step 3 loss nan")["loss"])
    assert scan("loss: -inf") == {"loss": -math.inf}
