"""Failures from real logs that no signature knew, and harmless lines that were taken for the end."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.diagnosis.crash_texts import SAMPLES, diagnose_lines, ended, fallout, spawned, traceback

WELL = [f"[2026-03-01 10:01:00,000] [INFO] [launch.py:285:main] Process {pid} exits successfully." for pid in (700, 701)]


@pytest.mark.parametrize(
    "lines",
    [
        ["Could not override 'optimiser.lr'.", "To append to your config use +optimiser.lr=1e-4", "Key 'optimiser' is not in struct"],
        ["In 'config': Could not find 'model/seven_b'"],
        ["Primary config directory not found."],
        ["You must specify 'model', e.g, model=<OPTION>"],
        ["Missing mandatory value: data.path"],
    ],
)
def test_hydra_message_from_all_ranks_is_the_cause_and_no_rank_left_early(tmp_path: Path, lines: list[str]) -> None:
    whole = [*lines, "", "Set the environment variable HYDRA_FULL_ERROR=1 for a complete stack trace."]
    found = diagnose_lines(tmp_path / "log", [*spawned(4), *(line for _ in range(4) for line in whole), *ended(4, 1)])
    assert (found.cause, found.kind, found.first_failing_rank) == ("HYDRA-CONFIG", "failure", None)
    plain = diagnose_lines(tmp_path / "log", [*traceback(None, "ValueError: odd"), "", whole[-1]])
    assert plain.cause == "USER-PY", "Hydra prints this for every exception"


@pytest.mark.parametrize("function", ["set_device", "_lazy_init"])
def test_no_memory_at_the_first_call_is_a_gpu_used_by_others(tmp_path: Path, function: str) -> None:
    lines = traceback(1, "RuntimeError: CUDA error: out of memory")
    lines.insert(-1, f'[rank1]:   File "/opt/env/lib/python3.11/site-packages/torch/cuda/__init__.py", line 408, in {function}')
    found = diagnose_lines(tmp_path / "log", [*spawned(2), *lines, *fallout(0), *ended(2, 1)])
    assert (found.cause, found.first_failing_rank) == ("GPU-BUSY", 1)
    later = diagnose_lines(tmp_path / "log", [*spawned(2), *traceback(1, "RuntimeError: CUDA error: out of memory"), *ended(2, 1)])
    assert later.cause == "OOM-GPU"


def test_taken_port_belongs_to_rank_0(tmp_path: Path) -> None:
    found = diagnose_lines(tmp_path / "log", [*spawned(2), *traceback(None, SAMPLES["PORT-IN-USE"][0]), *ended(2, 1)])
    assert (found.cause, found.first_failing_rank) == ("PORT-IN-USE", 0)
    agent = "/opt/env/lib/python3.11/site-packages/torch/distributed/run.py"
    assert diagnose_lines(tmp_path / "log", traceback(None, SAMPLES["PORT-IN-USE"][0], agent)).first_failing_rank is None


@pytest.mark.parametrize(
    "line",
    [
        '  "stage3_gather_16bit_weights_on_model_save": false,',
        "[INFO] [config.py:1003:print]   zero_config ... stage=3 stage3_gather_16bit_weights_on_model_save=False use_all_reduce=True",
        "n1:77:81 [0] NCCL INFO NET/Plugin: Could not find: libnccl-net.so. dlerror=libnccl-net.so: cannot open shared object file: No such file",
        "Some weights of Net were not initialized from the model checkpoint and are newly initialized: ['score.weight']",
    ],
)
def test_harmless_line_is_never_the_end(tmp_path: Path, line: str) -> None:
    assert diagnose_lines(tmp_path / "a", [*spawned(2), line, "step 1", *WELL]).cause == "SUCCESS"
    failed = diagnose_lines(tmp_path / "b", [*spawned(2), line, *traceback(1, "KeyError: 'labels'"), *fallout(0), *ended(2, 1)])
    assert (failed.cause, failed.first_failing_rank, failed.others) == ("USER-PY", 1, ())
    assert diagnose_lines(tmp_path / "c", [*spawned(2), line, *ended(2, 1)]).cause is None
