"""`dstui doctor --deep`: all hosts meet in a real all-reduce over gloo."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "hosts"))
import farm as farming

from dstui.doctor.deep import all_reduce as all_reduce_of
from dstui.doctor.gather import gather_cases
from tests.machines import gpus

PLAN = "version: 1\njob: {script: train.py, args: [--deepspeed_config, '{ds_config}']}\ncluster: {hosts: {h1: 1, h2: 1}, env: {GLOO_SOCKET_IFNAME: eth0}}\n"


def all_reduce(farm: farming.Farm, folder: Path) -> dict[str, str]:
    (folder / "train.py").write_text("pass\n")
    (folder / "plan.yaml").write_text(PLAN)
    words = [sys.executable, "-m", "dstui", "doctor", str(folder / "plan.yaml"), "--deep", "--json"]
    ran = farm.run("login", *words, timeout=240)
    assert ran.stderr == "", ran.stderr
    found: dict[str, str] = next(check for check in json.loads(ran.stdout)["checks"] if check["id"] == "all-reduce")
    return found


def test_two_hosts_add_a_number_together(farm: farming.Farm, tmp_path: Path) -> None:
    found = all_reduce(farm, tmp_path)
    assert found["verdict"] == "ok", found
    assert found["seen"].startswith("2 ranks in ")


def test_unreachable_host_prevents_the_others_attempt(farm: farming.Farm, tmp_path: Path) -> None:
    farm.cable("h2", plugged=False)
    try:
        found = all_reduce(farm, tmp_path)
    finally:
        farm.cable("h2", plugged=True)
    assert found["verdict"] == "fail" and "h2 cannot be reached" in found["seen"]


def test_all_reduce_is_repeated_over_nccl_on_gpus() -> None:
    """A torch for CPUs has no nccl and says so, which is all that can be tested without GPUs."""
    job, found = gather_cases(None)
    with_gpus = [replace(case, machine=replace(case.machine, gpus=gpus(2))) for case in found]
    (case,) = all_reduce_of(job, with_gpus)
    assert case.deep and case.deep["ranks"] == 2, case.deep
    import torch

    if torch.cuda.is_available():
        pytest.skip("torch has GPUs here, and what follows is the answer of a torch without nccl")
    assert "NCCL" in case.deep["nccl"]["problem"], case.deep
    (without,) = all_reduce_of(job, found)
    assert without.deep and "nccl" not in without.deep
