"""Machines by name: the catalogue, what people type, and what is refused."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dstui.forecast.hardware import HardwareProblem, chip_of, chips, named_chip, named_machine
from dstui.forecast.rates import rates_of
from tests.command import dstui

PLAN = """\
version: 1
name: demo
job: {script: t.py}
model: {source: meta-llama/Llama-2-13b-hf, sequence_length: 4096, activation_checkpointing: true}
cluster: {hosts: {w1: 4, w2: 4}}
deepspeed: {train_micro_batch_size_per_gpu: 1, bf16: {enabled: true}, zero_optimization: {stage: 3}, optimizer: {type: AdamW, params: {lr: 1e-4}}}
"""


def test_catalogue_has_some_forty_gpus_with_sources() -> None:
    assert len(chips()) >= 40
    assert all(chip.source and chip.memory > 1 << 33 and chip.bandwidth > 1e11 and chip.fp16 >= chip.fp32 for chip in chips())
    assert len({chip.name for chip in chips()}) == len(chips())


def test_each_catalogue_figure_has_a_source_or_is_marked_unverified() -> None:
    for chip in chips():
        figures = {"memory", "bandwidth", "bf16", "fp32"} | ({"nvlink"} if chip.nvlink else set())
        found = {word for part in re.findall(r"\(([a-z0-9, ]+)\)", chip.source) for word in part.split(", ")}
        unverified = set(filter(None, chip.unverified.split(", ")))
        assert found & figures | unverified == figures and not found & unverified, chip.name
    assert "no published source was found for its bf16, on which the speed depends" in named_machine("8xGB10").source
    assert "no published source" not in named_machine("8xH100-80").source


def test_measured_multiplications_have_a_source_and_are_near_the_data_sheet() -> None:
    measured = [chip for chip in chips() if chip.matmul]
    assert {"RTX-3090", "RTX-4090", "RTX-5090", "L40S"} <= {chip.name for chip in measured}
    for chip in measured:
        assert "(matmul, matmul32)" in chip.source, chip.name
        assert 0.7 < chip.matmul / chip.bf16 < 1.2 and 0.5 < chip.matmul32 / chip.fp32 < 0.8, chip.name
        rates = rates_of(named_machine(f"1x{chip.name}"), (0,))
        assert (rates.flops, rates.slow_flops, rates.sustained) == (chip.matmul, chip.matmul32, 1.0)


def test_machine_of_named_gpus_has_their_speed() -> None:
    assert [chip.name for chip in chips() if chip_of(named_machine(f"1x{chip.name}").gpus[0].name) != chip] == []


def test_name_with_its_size_says_the_size_once() -> None:
    shown = {name: named_machine(f"1x{name}").gpus[0].short_name for name in ("H100-80", "A100-PCIe-40", "H200-141", "RTX-4090", "A10")}
    assert shown == {
        "H100-80": "H100 80GB",
        "A100-PCIe-40": "A100 40GB",
        "H200-141": "H200 140GB",
        "RTX-4090": "RTX 4090 24GB",
        "A10": "A10 22GB",
    }


def test_every_short_name_is_found() -> None:
    for chip in chips():
        assert named_chip(chip.name) is chip
        assert named_chip(f"NVIDIA {chip.name.lower()}") is chip


@pytest.mark.parametrize(
    ("driver", "name"),
    [
        ("NVIDIA A100-SXM4-40GB", "A100-40"),
        ("NVIDIA A100-SXM4-80GB", "A100-80"),
        ("NVIDIA A100 80GB PCIe", "A100-PCIe-80"),
        ("NVIDIA H100 80GB HBM3", "H100-80"),
        ("NVIDIA H100 PCIe", "H100-PCIe"),
        ("NVIDIA GeForce RTX 4090", "RTX-4090"),
        ("NVIDIA RTX 6000 Ada Generation", "RTX-6000-Ada"),
        ("Tesla V100-SXM2-32GB", "V100-32"),
        ("Tesla T4", "T4"),
        ("NVIDIA GH200 480GB", "GH200-96"),
    ],
)
def test_driver_names_are_found(driver: str, name: str) -> None:
    found = chip_of(driver)
    assert found and found.name == name


@pytest.mark.parametrize(
    ("gpus", "nodes", "link", "says"),
    [
        ("8xH10", 1, None, "did you mean H100"),
        ("8xA100", 1, None, "A100-40 or A100-80"),
        ("8xABACUS", 1, None, "known are"),
        ("0xH100-80", 1, None, "1 to 64"),
        ("", 1, None, "8xH100-80"),
        ("8xH100-80", 0, None, "0 nodes"),
        ("8xH100-80", 2, "wire-9", "ib-400"),
        ("8xH100-80", 2, "ib-0", "ib-400"),
    ],
)
def test_impossible_hardware_gives_a_message(gpus: str, nodes: int, link: str | None, says: str) -> None:
    with pytest.raises(HardwareProblem, match=says):
        named_machine(gpus, nodes, link)


def test_network_has_an_adapter_per_gpu_unless_given() -> None:
    rails, one, ethernet = (rates_of(named_machine("8xH100-80", 2, link), range(8), 2).between for link in ("ib-400", "ib-1x400", "eth-25"))
    assert rails == 8 * one == 8 * 16 * ethernet


def test_forecast_for_named_hardware_uses_its_ranks_instead_of_the_plans(tmp_path: Path) -> None:
    (tmp_path / "plan.yaml").write_text(PLAN)
    found = dstui("forecast", "plan.yaml", "--gpu", "8xH100-80", "--nodes", "4", "--link", "ib-400", cwd=tmp_path)
    assert found.returncode == 0, found.stderr
    assert "32 ranks on 4 nodes" in found.stdout and "8 x H100-80 a node, 8 x 400 Gbit/s" in found.stdout
    wrong = dstui("forecast", "plan.yaml", "--nodes", "4", cwd=tmp_path)
    assert wrong.returncode == 2 and "--gpu 8xH100-80" in wrong.stderr
