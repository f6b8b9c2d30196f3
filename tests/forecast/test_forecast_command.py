"""`dstui forecast` for people and scripts."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from targets import EIGHT_H100, ONE_4090, PLAN

from dstui.base.files import FileProblem
from dstui.commands.forecast import bytes_of
from dstui.forecast.part_words import PART_WORDS
from dstui.machine.snapshot import Machine
from tests import command


def dstui(*words: str | Path, home: Path) -> subprocess.CompletedProcess[str]:
    return command.dstui(*words, cwd=home, env={"HF_HOME": str(home), "XDG_CACHE_HOME": str(home)})


def saved(machine: Machine, folder: Path) -> Path:
    path = folder / "machine.json"
    path.write_text(json.dumps(machine.to_json()))
    return path


def written(folder: Path, **changes: Any) -> Path:
    values = {"model": "meta-llama/Llama-2-7b-hf", "sequence": 2048, "cluster": "{}", "micro": 1, "steps": 8, "stage": 2, **changes}
    path = folder / "plan.yaml"
    path.write_text(PLAN.format(**values))
    return path


def test_text_has_verdict_parts_moments_and_unknowns(tmp_path: Path) -> None:
    done = dstui("forecast", written(tmp_path), "--machine", saved(EIGHT_H100, tmp_path), "--recommend", home=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    for expected in (
        "demo: 6.74B parameters, all trained; 8 ranks, ZeRO-2, bf16, micro-batch 1 of 2048 tokens, accumulated 8 times",
        ": fits",
        "GPU, by part, at the peak (forward and backward)",
        "optimizer states",
        "a checkpoint    87.9 GB on disk",
        "tokens/s",
        "Not known",
        "model.activation_checkpointing is not given",
        "candidates with the same samples in a step",
        "the second against the first: 2% faster, which is within the forecast's error, but less simple; it needs 10.4 GB less",
        "not searched: tensor and pipeline parallelism",
    ):
        assert expected in done.stdout, done.stdout


def test_ram_of_a_named_machine_is_shown_as_typed_and_its_absence_is_reported(tmp_path: Path) -> None:
    without, with_ram = (
        dstui("forecast", written(tmp_path), "--gpu", "4xA100-80", *more, home=tmp_path).stdout for more in ((), ("--ram", "64GB"))
    )
    assert "the RAM of such a node is not known (--ram SIZE)" in without
    assert "is not known (--ram" not in with_ram and " of 64 GB" in with_ram, with_ram


def test_status_is_1_if_it_does_not_fit_and_json_has_alternatives(tmp_path: Path) -> None:
    machine = saved(ONE_4090, tmp_path)
    done = dstui("forecast", written(tmp_path), "--machine", machine, "--recommend", "--json", home=tmp_path)
    assert done.returncode == 1
    data = json.loads(done.stdout)
    assert (data["version"], data["fits"], data["verdict"], data["recommended"]) == (1, False, "too big", [])
    assert data["candidates"] > 100 and "GPUs instead of 1" in data["ways_out"][0]
    assert data["gpu_bytes_range"][0] < data["gpu_bytes"] == sum(data["parts"]["gpu"].values()) < data["gpu_bytes_range"][1]


def test_memory_size_can_replace_a_machine(tmp_path: Path) -> None:
    done = dstui("forecast", written(tmp_path, cluster="{hosts: {a: 8, b: 8}}"), "--gpu-memory", "80GB", "--json", home=tmp_path)
    data = json.loads(done.stdout)
    assert done.returncode == 0
    assert (data["gpu_capacity_bytes"], data["fits"], data["step_seconds"]) == (80 * 2**30, True, None)


def test_hole_of_the_model_is_filled_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, size = written(tmp_path, model="'meta-llama/Llama-${SIZE}'"), ["--gpu-memory", "80GB"]
    assert "the model is known once the hole is filled" in dstui("forecast", path, *size, home=tmp_path).stdout
    monkeypatch.setenv("SIZE", "2-7b-hf")
    assert "6.74B parameters" in dstui("forecast", path, *size, home=tmp_path).stdout


def test_plan_without_its_hostfile_is_forecast_for_one_machine_as_deepspeed_trains_it(tmp_path: Path) -> None:
    machine = saved(EIGHT_H100, tmp_path)
    here, absent = (
        dstui("forecast", written(tmp_path, cluster=cluster), "--machine", machine, "--json", home=tmp_path)
        for cluster in ("{}", "{hostfile: absent}")
    )
    assert absent.stdout == here.stdout and "absent does not exist: DeepSpeed trains on one machine without it" in absent.stderr


def test_row_of_the_json_applies_as_a_json_patch(tmp_path: Path) -> None:
    from dstui.documents.plan_files import read_plan

    path = written(tmp_path, stage=0)
    done = dstui("forecast", path, "--machine", saved(EIGHT_H100, tmp_path), "--recommend", "--json", home=tmp_path)
    row = json.loads(done.stdout)["recommended"][0]
    assert set(row) >= {"verdict", "gpu_bytes", "headroom", "tokens_per_second", "why", "patch"}
    assert read_plan(path).patch(row["patch"]).get("deepspeed.zero_optimization.stage") in (1, 2, 3)


@pytest.mark.parametrize(
    ("model", "says"),
    [("no/such-model", "hf download no/such-model"), ("./nowhere", "there is no ./nowhere"), ("'x y'", "there is no x y")],
)
def test_unknown_model_gives_a_message_and_no_failure(tmp_path: Path, model: str, says: str) -> None:
    done = dstui("forecast", written(tmp_path, model=model), "--gpu-memory", "80GB", "--recommend", home=tmp_path)
    assert done.returncode == 0
    assert done.stdout.startswith("No forecast: ") and says in done.stdout


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("missing.yaml",), "missing.yaml"),
        (("plan.yaml", "--gpu-memory", "large"), "a size is a number with a unit"),
        (("plan.yaml", "--machine", "missing.json"), "missing.json"),
        (("plan.yaml", "--calibrate", "--gpu-memory", "80GB"), "--calibrate measures this machine"),
        (("plan.yaml", "--gpu-memory", "80GB", "--set", "model.params=-1"), "model.params"),
    ],
)
def test_unreadable_file_gives_a_message_and_status_2(tmp_path: Path, words: tuple[str, ...], says: str) -> None:
    written(tmp_path)
    done = dstui("forecast", *words, home=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("dstui: ") and says in done.stderr and "Traceback" not in done.stderr


def test_size_suffixes_have_their_units() -> None:
    assert (bytes_of("80GB"), bytes_of("24GiB"), bytes_of("16000 mb"), bytes_of("1.5t")) == (80 << 30, 24 << 30, 16000 << 20, 1536 << 30)
    for text in ("", "GB", "-1GB", "0GB", "80 apples", "1e9"):
        with pytest.raises(FileProblem):
            bytes_of(text)


def test_check_and_headless_report_a_misfit_before_launch(tmp_path: Path) -> None:
    plan, machine = written(tmp_path, stage=0, micro=4), saved(EIGHT_H100, tmp_path)
    (tmp_path / "train.py").write_text("import deepspeed\ndeepspeed.add_config_arguments\n")
    done = dstui("check", plan, "--machine", machine, "--json", home=tmp_path)
    finding = next(f for f in json.loads(done.stdout)["files"][0]["diagnostics"] if f["code"] == "FC001")
    assert finding["fix"]["patch"]
    dry = dstui("--headless", plan, "--dry-run", "--machine", machine, home=tmp_path)
    assert "FC001" in dry.stderr and dry.returncode == 0


def test_measured_rates_of_this_machine_are_remembered_and_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from dstui.facts import measured
    from dstui.forecast.rates import Rates, with_measured

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    child = tmp_path / "rates.py"
    child.write_text('print(\'["flops", 5e14]\\n["cpu_adam", 2e9]\\n["done", null]\')')
    monkeypatch.setattr(measured, "CHILD", child)
    assert measured.read_rates() == {}
    assert measured.calibrate(EIGHT_H100) == {"flops": 5e14, "cpu_adam": 2e9}
    assert measured.read_rates()[measured.machine_key(EIGHT_H100)] == {"flops": 5e14, "cpu_adam": 2e9}
    assert measured.machine_key(ONE_4090) not in measured.read_rates()
    rates = with_measured(
        Rates(), measured.read_rates()[measured.machine_key(EIGHT_H100)] | {"inside": "fast", "memory": -1, "unheard_of": 3}
    )
    assert (rates.flops, rates.cpu_adam, rates.inside, rates.measured) == (5e14, 2e9, Rates().inside, ("cpu_adam", "flops"))
    child.write_text("raise SystemExit('no torch here')")
    with pytest.raises(FileProblem, match="no torch here"):
        measured.calibrate(EIGHT_H100)


def test_every_part_is_explained_and_every_line_of_them_fits_in_80_columns(tmp_path: Path) -> None:
    machine, parts = saved(EIGHT_H100, tmp_path), set()
    for changes in ({"stage": 0}, {"stage": 2}, {"stage": 3}):
        found = dstui("forecast", written(tmp_path, **changes), "--machine", machine, home=tmp_path).stdout
        listed = [line for line in found.splitlines() if re.match(r"  [a-z ]+ [\d.]+ [KMGT]B", line)]
        assert listed and all(len(line) <= 80 for line in listed), found
        parts |= {line[2:23].strip() for line in listed if not line[45:].strip()}
    assert parts == set(), "without an explanation"
    assert max(map(len, PART_WORDS.values())) <= 33


def test_head_tells_lora_and_recomputation_and_a_plan_too_big_tells_of_the_search(tmp_path: Path) -> None:
    place = (written(tmp_path), "--gpu", "1xRTX-4090", "--set", "model.activation_checkpointing=true")
    found = dstui("forecast", *place, "--set", "model.lora.r=8", home=tmp_path).stdout
    assert "trained (LoRA, r 8); 1 rank" in found and "activations recomputed\n" in found, found
    assert "too big" not in found and "--recommend" not in found
    found = dstui("forecast", *place, home=tmp_path).stdout
    assert ": too big" in found and "--recommend searches the plans that fit here" in found, found
    found = dstui("forecast", written(tmp_path, micro=8, stage=3), "--gpu", "8xA100-80", home=tmp_path).stdout
    assert ": probably too big" in found and "the ranges begin with it on" in found, found
