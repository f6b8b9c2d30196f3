"""Each NVML call fails in documented ways on each GPU: nothing crashes, and only the facts of that call are lost.

DSTUI_NVML_CODES=all tries all 29 codes; the quick suite those that drivers return most often.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import fakenvml
import pytest

from dstui.machine.codec import encode
from dstui.machine.probe import machine_from
from dstui.machine.snapshot import Machine

DIRECT, SWITCHED = "rtx3090-pair", "gb200-tray"
"""Two ways to be connected; together they give every function that the probe calls an answer."""
GPUS = 2
SOME = "1 3 4 6 9 10 15 999"
"""Uninitialized, not supported, no permission, not found, driver not loaded, timeout, GPU is lost, unknown."""
CODES = "" if os.environ.get("DSTUI_NVML_CODES") == "all" else SOME
BLINDING = {"nvmlInitWithFlags", "nvmlDeviceGetCount_v2"}
"""Without these no GPU can be listed."""
WHOLE_GPU = {"nvmlDeviceGetHandleByIndex_v2"}
"""Without this the GPU has no facts; any other call costs at most the two facts that it gives."""


def cases(system: str, library: Path, tmp_path: Path) -> Iterator[tuple[str, int, str, list[object]]]:
    profile = tmp_path / "profile"
    profile.write_text(f"= nvmlDeviceGetCount_v2 - - {GPUS}\n" + fakenvml.profile(system))
    environment = {"LD_LIBRARY_PATH": str(library), "FAKENVML_PROFILE": str(tmp_path / "now"), "GPUS": str(GPUS), "CODES": CODES}
    command = [sys.executable, str(Path(__file__).with_name("fuzz_nvml.py")), str(profile), *fakenvml.FUNCTIONS, "field:90", "field:91"]
    with subprocess.Popen(command, env={**os.environ, **environment}, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout
        for line in child.stdout:
            function, code, gpu, lines = json.loads(line)
            yield function, code, gpu, lines
    assert child.returncode == 0


def machine_of(lines: list[object]) -> Machine:
    return machine_from([(kind, value) for kind, value in lines], [], [], "the fuzz")


def changed(machine: Machine, healthy: Machine, gpu: int) -> set[str]:
    """Return the names of the facts of a GPU that differ."""
    now, before = encode(machine.gpus[gpu]), encode(healthy.gpus[gpu])
    return {name for name in before if now[name] != before[name]}


@pytest.mark.parametrize("system", [DIRECT, SWITCHED])
def test_any_call_may_fail_in_any_way_on_any_gpu(system: str, library: Path, tmp_path: Path) -> None:
    found = cases(system, library, tmp_path)
    _, _, _, lines = next(found)
    healthy = machine_of(lines)
    assert healthy.islands[0].gpus == (0, 1)
    count = 0
    for function, code, gpu, lines in found:
        case = f"{function} fails with {code} on GPU {gpu}"
        assert not any(isinstance(line, str) for line in lines), f"{case}: {lines[-1]}"
        assert lines[-1] == ["done", None], case
        machine = machine_of(lines)
        if function in BLINDING:
            assert machine.gpus == () and not machine.driver.state, case
        else:
            assert len(machine.gpus) == GPUS, case
        if gpu != "-":
            assert changed(machine, healthy, 1 - int(gpu)) <= {"nvlink"}, f"{case}: the other GPU changed"
            assert function in WHOLE_GPU or len(changed(machine, healthy, int(gpu))) <= 2, case
        count += 1
    assert count > (500 if CODES else 2000)


@pytest.mark.deadline
@pytest.mark.parametrize(
    "function", ["nvmlDeviceGetName", "nvmlDeviceGetPciInfo_v3", "nvmlDeviceGetNvLinkState", "nvmlDeviceGetFieldValues"]
)
def test_call_that_hangs_on_one_gpu_keeps_earlier_facts(probe_system: fakenvml.Look, function: str) -> None:
    machine = probe_system(DIRECT, f"~ {function} 1 - 600000", deadline=3)
    assert not machine.driver.state
    assert machine.driver.version == "570.172.08"
    assert [gpu.index for gpu in machine.gpus] == ([] if "Pci" in function else [0])
