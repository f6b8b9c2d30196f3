"""Numbers from the lines that training programs print."""

from __future__ import annotations

import math
import re
import string
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dstui.jobs.metrics.line_hints import hints_of
from dstui.jobs.metrics.line_patterns import PATTERNS, scan
from dstui.jobs.metrics.measurements import Measure, RankView

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
        (
            "{'train_runtime': 9.1, 'train_samples_per_second': 3.4, 'train_loss': 0.7}",
            {"train_runtime": 9.1, "samples/s": 3.4, "train_loss": 0.7},
        ),
        (
            "[INFO] [logging.py:123:log_dist] [Rank 0] step=2, skipped=0, lr=[0.001], mom=[(0.9, 0.999)]",
            {"step": 2, "skipped": 0, "lr": 0.001},
        ),
        (
            "epoch=0/micro_step=4/global_step=2, RunningAvgSamplesPerSec=134.0, CurrSamplesPerSec=133.4",
            {"step": 2, "epoch": 0, "samples/s": 133.4},
        ),
        (
            " iteration      10/     100 | consumed samples: 80 | learning rate: 1.500E-04 | lm loss: 7.1E+00 | loss scale: 1.0 |",
            {"step": 10, "steps": 100, "lr": 0.00015, "loss": 7.1, "loss_scale": 1.0},
        ),
        ("iter 10: loss 3.2000, time 12.3ms, mfu 1.25%", {"step": 10, "loss": 3.2, "step_time": 0.0123, "mfu": 0.0125}),
        ("Step: 3,204 | training loss: .5 | 12.1 samples/sec", {"step": 3204, "loss": 0.5, "samples/s": 12.1}),
        ("val loss 2.9 perplexity 18.2", {"eval_loss": 2.9, "perplexity": 18.2}),
        (" 5%|5    | 5/100 [00:03<00:30, 3.02it/s]", {"step": 5, "steps": 100, "steps/s": 3.02}),
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
        ("the loss of 3 ranks", {}),
        ("lossless 3, stepwise 4, already 5", {}),
        ("step inf loss 1.0", {"loss": 1.0}),
        (f"step {'9' * 400} loss 1.0", {"loss": 1.0}),
        (f"step 3/{'9' * 400} loss 1.0", {"step": 3.0, "loss": 1.0}),
        ("", {}),
    ],
)
def test_line_gives_its_numbers(line: str, found: dict[str, float]) -> None:
    assert scan(line) == pytest.approx(found)


@pytest.mark.parametrize(
    ("line", "found"),
    [
        # DeepSpeed: overflow in fp16, with and without hysteresis, in bf16; the pipeline engine; its timer's memory
        (
            "[INFO] [loss_scaler.py:183:update_scale] [deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 65536, reducing to 32768",
            {"overflows": 1, "loss_scale": 32768},
        ),
        (
            "[deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 512, but hysteresis is 2. Reducing hysteresis to 1",
            {"overflows": 1, "loss_scale": 512},
        ),
        ("[deepspeed] OVERFLOW! Skipping step. Gradients are non-finite, weights were not updated.", {"overflows": 1}),
        ("fp16 dynamic loss scale overflow!", {"overflows": 1}),
        (
            "steps: 10 loss: 2.3011 iter time (s): 0.120 samples/sec: 66.667",
            {"step": 10, "loss": 2.3011, "step_time": 0.12, "samples/s": 66.667},
        ),
        (
            " | mem_allocated: 0.5000 GB | max_mem_allocated: 2.0000 GB | cache_allocated: 3.0 GB",
            {"memory": GIB / 2, "memory_peak": 2 * GIB},
        ),
        # Megatron-DeepSpeed: training and validation
        (
            " iteration       10/     500 | consumed samples:  2560 | consumed tokens:  5242880 | elapsed time per iteration (ms): 20345.1 | "
            "learning rate: 1.500E-06 | global batch size:   256 | lm loss: 1.084590E+01 | loss scale: 4096.0 | grad norm: 3.456 | "
            "number of skipped iterations:   0 | samples per second: 12.583 | tokens per gpu per second (tgs): 3221.2 | TFLOPs: 45.67 |",
            {
                **{"step": 10, "steps": 500, "step_time": 20.3451, "lr": 1.5e-6, "loss": 10.8459, "loss_scale": 4096, "grad_norm": 3.456},
                **{"samples/s": 12.583, "tokens/s": 3221.2, "tflops": 45.67},
            },
        ),
        (
            " validation loss at iteration 1000 | lm loss value: 2.345E+00 | lm loss PPL: 1.04E+01 |",
            {"step": 1000, "eval_loss": 2.345, "perplexity": 10.4},
        ),
        # transformers: an evaluation, numbers as strings, a bar with an inverse rate
        (
            "{'eval_loss': 2.1, 'eval_runtime': 1.2, 'eval_samples_per_second': 80.1, 'eval_steps_per_second': 10.0, 'epoch': 1.0}",
            {"eval_loss": 2.1, "eval_runtime": 1.2, "eval_samples_per_second": 80.1, "eval_steps_per_second": 10, "epoch": 1},
        ),
        (
            "{'loss': '2.31', 'grad_norm': 'nan', 'learning_rate': '0', 'epoch': '0.5'}",
            {"loss": 2.31, "grad_norm": math.nan, "lr": 0, "epoch": 0.5},
        ),
        ("100%|#####| 7/7 [00:27<00:00,  3.92s/it]", {"step": 7, "steps": 7, "step_time": 3.92}),
        # examples of accelerate and PEFT
        ("epoch 0: {'accuracy': 0.8431, 'f1': 0.8896}", {"epoch": 0, "accuracy": 0.8431, "f1": 0.8896}),
        ("epoch 1: perplexity: 18.2 eval_loss: 2.9", {"epoch": 1, "perplexity": 18.2, "eval_loss": 2.9}),
        (
            "epoch=4: train_ppl=tensor(1.2031, device='cuda:0') train_epoch_loss=tensor(0.1849, device='cuda:0')",
            {"epoch": 4, "train_perplexity": 1.2031, "epoch_loss": 0.1849},
        ),
        ("accuracy=98.0 % on the train dataset", {"accuracy": 0.98}),
        (
            "Steps:  3%|3    | 15/500 [00:41<22:10,  2.74s/it, lr=1e-5, step_loss=0.0821]",
            {"step": 15, "steps": 500, "step_time": 2.74, "lr": 1e-5, "step_loss": 0.0821},
        ),
        # torchtitan, nanoGPT, PyTorch's MNIST
        (
            "[titan] 2026-01-02 03:04:05 - root - INFO - step: 10  loss:  8.1234  grad_norm:  1.2300  memory: 45.32GiB(47.8%)  tps: 7,123  "
            "tflops: 380.12  mfu: 38.43%",
            {
                **{"step": 10, "loss": 8.1234, "grad_norm": 1.23, "memory": 45.32 * GIB},
                **{"tokens/s": 7123, "tflops": 380.12, "mfu": 0.3843},
            },
        ),
        ("step 250: train loss 2.4021, val loss 2.5310", {"step": 250, "loss": 2.4021, "eval_loss": 2.531}),
        ("Train Epoch: 1 [640/60000 (1%)]\tLoss: 2.123456", {"epoch": 1, "loss": 2.123456}),
        ("Test set: Average loss: 0.0345, Accuracy: 9890/10000 (99%)", {"eval_loss": 0.0345}),
        (
            "Epoch 0:  10%|# | 10/100 [00:01<00:10,  9.90it/s, v_num=0, train_loss_step=2.30]",
            {"step": 10, "steps": 100, "epoch": 0, "steps/s": 9.9, "loss": 2.3},
        ),
        ("Validation: loss 2.5 accuracy 0.5", {"eval_loss": 2.5, "accuracy": 0.5}),
    ],
)
def test_lines_of_well_known_programs_are_understood(line: str, found: dict[str, float]) -> None:
    assert scan(line) == pytest.approx(found, nan_ok=True)


@pytest.mark.parametrize(
    "line",
    [
        # printed configurations: DeepSpeed's, its JSON, the Trainer's, argparse's, Megatron's, an optimizer's
        "[INFO] [config.py:1007:print]   loss_scale ................... 0",
        "[INFO] [config.py:1007:print]   optimizer_params ............. {'lr': 0.001, 'betas': (0.9, 0.999)}",
        "[INFO] [config.py:1007:print]   steps_per_print .............. 10",
        '        "lr": 0.001, ',
        '    "loss_scale": 0, ',
        "learning_rate=5e-05,",
        "Namespace(epochs=3, lr=0.0001, step=1, loss='l2')",
        "  lr .............................................. 0.00015",
        "    lr: 0.001",
        "{'train_micro_batch_size_per_gpu': 4, 'optimizer': {'params': {'lr': 0.001}}, 'fp16': {'loss_scale': 0}}",
        "DeepSpeed using configured LR scheduler = WarmupLR",
        "Detected CUDA files, patching ldflags; Time to load cpu_adam op: 2.31 seconds",
        "--lr 0.00015     --lr-decay-style cosine     --min-lr 1.0e-5     --train-iters 1000",
        # prose, file names, times, progress bars of other work
        "Tokenizing: 5%|5    | 5/100 [00:03<00:30, 3.02it/s]",
        "Loading checkpoint shards:  50%|#####     | 2/4 [00:03<00:03,  1.83s/it]",
        "CUDA out of memory. Tried to allocate 2.93 GiB. Of the allocated memory 130.5 GiB is allocated by PyTorch",
        "this gives a training loss 3 times lower than before",
        "the accuracy 2 ranks reach is the same",
        "saved checkpoint to out/global_step100/loss-2.31.pt",
        "Learning rate schedule: cosine with 100 steps",
        "loss: /tmp/loss.txt",
        "epochs: 3 batches per rank",
        "memory 2 of 4 slots used",
        "time (ms) | fwd_microstep: 24.24 | bwd_microstep: 24.02 | step_microstep: 31.27",
        "[W] torch.distributed: normalize 3.0 lrelu 0.2 steps 4",
    ],
)
def test_lines_that_look_like_measurements_give_no_numbers(line: str) -> None:
    assert scan(line) == {}


@pytest.mark.parametrize(
    "line",
    [
        *("Distributed environment: DistributedType.DEEPSPEED  Backend: nccl", "Num processes: 2", "Process index: 0", "Device: cuda:0"),
        "ds_config: {'bf16': {'enabled': True}, 'gradient_clipping': 1.0, 'gradient_accumulation_steps': 10, 'steps_per_print': inf}",
    ],
)
def test_printed_state_of_accelerates_examples_is_no_measurement(line: str) -> None:
    assert scan(line) == {}


def test_lines_of_pefts_examples_are_understood() -> None:
    epoch = "epoch=4: train_ppl=tensor(1.0705, device='cuda:0') train_epoch_loss=tensor(0.0681, device='cuda:0')"
    assert scan(epoch) == {"epoch": 4, "train_perplexity": 1.0705, "epoch_loss": 0.0681}
    assert scan("100%|#####| 7/7 [00:27<00:00,  3.92s/it]") == {"step": 7, "steps": 7, "step_time": 3.92}
    assert scan("trainable params: 294,912 || all params: 124,734,720 || trainable%: 0.2364") == {"trainable_parameters": 294912}
    table = {
        "GPU Memory before entering the train : 1916": ("memory_begin", 1916),
        "GPU Memory consumed at the end of the train (end-begin): 66": ("memory_consumed", 66),
        "GPU Total Peak Memory consumed during the train (max): 9404": ("memory_peak", 9404),
        "CPU Memory before entering the train : 19411": ("cpu_memory_begin", 19411),
        "CPU Total Peak Memory consumed during the train (max): 19411": ("cpu_memory_peak", 19411),
    }
    assert {line: scan(line) for line in table} == {line: {name: mib * (1 << 20)} for line, (name, mib) in table.items()}
    assert scan("accuracy=100.0")["accuracy"] > 0


def test_numbers_after_prose_are_found() -> None:
    assert scan("epoch 1 step 20 loss 2 saved")["step"] == 20
    assert scan("loss 2 lr 1e-3") == {"loss": 2.0, "lr": 1e-3}
    assert scan("lr: 0.0001") == {"lr": 0.0001}


def test_nan_loss_is_reported() -> None:
    assert math.isnan(scan("step 3 loss nan")["loss"])
    assert scan("loss: -inf") == {"loss": -math.inf}


def test_number_alone_on_its_line_is_found() -> None:
    assert scan("skipped: 3") == {"skipped": 3.0}
    assert scan("MA: 2 GB") == {"memory": 2.0 * (1 << 30)}


MEASURED = [
    "step 10/40 loss 2.7183 1234 tokens/s",
    "[INFO] [engine.py:123:step] worker 3 did forward 0.5",
    "step 3 of the launch is next",
    " 10%|█         | 1/10 [00:01<00:09,  1.0it/s]",
    "a loss 3 times lower",
    "loss 3",
    "'lr': 0.001,",
    "step 99999999999999999",
    "skipped: 0",
]
SPELLINGS = [spelling for pattern in PATTERNS for spelling in (*pattern.words, *pattern.units)]


def test_every_metric_spelling_contains_a_prefilter_text() -> None:
    for spelling in SPELLINGS:
        for text in texts_of(spelling):
            assert re.fullmatch(spelling, text) or "(?" in spelling, "the texts are examples of the expression"
            assert any(hint in text for hint in hints_of(SPELLINGS)), (spelling, text)


def texts_of(spelling: str) -> list[str]:
    """Return every text that a spelling matches, with one example for each class or set, and with the texts that look-behinds need."""
    spelling = re.sub(r"\(\?=[^)]*\)", "", re.sub(r"\(\?<=([^)]*)\)", r"\1", spelling))
    spelling = spelling.replace(r"\(", "\1").replace(r"\)", "\2").replace(r"\d+", "7").replace("[_ ]", "_")
    parts = [
        [*group.split("|"), *([""] if optional == "?" else [])] if group else [letter, *([""] if maybe == "?" else [])]
        for group, optional, letter, maybe in re.findall(r"\(\?:([^()]*)\)(\??)|(.)(\??)", spelling)
    ]
    return ["".join(chosen).replace("\1", "(").replace("\2", ")") for chosen in product(*parts)]


@given(st.lists(st.tuples(st.sampled_from(MEASURED), st.integers(0, 9)), max_size=12))
def test_line_gives_the_same_numbers_after_any_other_lines(drawn: list[tuple[str, int]]) -> None:
    measure = Measure()
    for line, digit in drawn:
        changed = line.translate(str.maketrans(string.digits, string.digits[digit:] + string.digits[:digit]))
        told = [(metric.name, metric.value) for metric in measure(RankView("h"), 0, changed)]
        assert told == [(metric.name, metric.value) for metric in Measure()(RankView("h"), 0, changed)]
