"""The reference: the installed DeepSpeed's own verdict, from a warm child process."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from dstui.check.reference import ReferenceChecker, ReferenceFailure


@pytest.fixture(scope="module")
def reference() -> Iterator[ReferenceChecker]:
    with ReferenceChecker() as one:
        yield one


def test_reference_gives_deepspeeds_verdict_for_the_planned_ranks(reference: ReferenceChecker) -> None:
    assert reference.validate({"train_batch_size": 4}, 4).ok
    refused = reference.validate({"train_batch_size": 4, "train_micro_batch_size_per_gpu": 4}, 4)
    assert (refused.ok, refused.kind) == (False, "AssertionError")
    assert "has to be greater than 0" in refused.message
    assert refused.version.count(".") == 2


def test_warm_child_answers_many_questions(reference: ReferenceChecker) -> None:
    start = time.perf_counter()
    with ReferenceChecker() as cold:
        cold.validate({"train_batch_size": 1})
    one_start = time.perf_counter() - start
    reference.validate({"train_batch_size": 1})
    start = time.perf_counter()
    for stage in range(200):
        reference.validate({"train_batch_size": 1, "zero_optimization": {"stage": stage % 5}})
    assert time.perf_counter() - start < 20 * one_start, "a child for each would take 200 times as long"


def test_reference_reads_a_file_as_deepspeed_does_and_reports_warnings(reference: ReferenceChecker) -> None:
    assert reference.validate("{train_batch_size: 2 # a comment\n}", 2).ok
    twice = reference.validate('{"train_batch_size": 2, "train_batch_size": 2}', 2)
    assert "Duplicate keys" in twice.message
    old = reference.validate({"train_batch_size": 2, "zero_optimization": {"stage": 1, "cpu_offload": True}}, 2)
    assert old.ok and any("deprecated" in said for said in old.warnings)


def test_python_without_deepspeed_gives_a_message(tmp_path: Path) -> None:
    empty = tmp_path / "python"
    empty.write_text(f'#!/bin/sh\nexec {sys.executable} -S -E "$@"\n')
    empty.chmod(0o755)
    with ReferenceChecker(str(empty)) as one, pytest.raises(ReferenceFailure, match="no DeepSpeed that can be imported"):
        one.validate({"train_batch_size": 1})
    with pytest.raises(ReferenceFailure, match="cannot be started"):
        ReferenceChecker(str(tmp_path / "nosuch"))


def test_initialize_is_called_on_cpu_ranks() -> None:
    adam = {"type": "AdamW", "params": {"lr": 1e-3, "torch_adam": True}}
    with ReferenceChecker(how="initialize") as engine:
        fine = engine.validate({"train_micro_batch_size_per_gpu": 4, "optimizer": adam, "zero_optimization": {"stage": 1}}, 2, steps=1)
        assert fine.ok, fine.message
        unknown = engine.validate({"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "sgd"}}, 1)
        assert (unknown.when, unknown.message) == ("initialize", "sgd is not a supported DeepSpeed Optimizer")
        refused = engine.validate({"train_micro_batch_size_per_gpu": 0, "optimizer": adam}, 1)
        assert refused.when == "parse"


@pytest.mark.parametrize(("compiles", "kind"), [(True, None), (False, "NoAnswer")])
def test_rank_that_compiles_has_longer_to_answer(compiles: bool, kind: str | None, tmp_path: Path) -> None:
    held = "held = open(sys.argv[1], 'w')" if compiles else "pass"
    program = f"""
import json, sys, time
from dstui.reference import initialize
def train(request, moment):
    {held}
    time.sleep(1.5)
initialize.train, initialize.DEADLINE, initialize.POLL = train, 0.5, 0.1
print(json.dumps(initialize.validate({{"id": 1}})))
"""
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path / "lock")], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["kind"] == kind, done.stdout
