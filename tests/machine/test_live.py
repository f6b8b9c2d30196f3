"""The stream of GPU states, over the fake driver library."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import fakenvml
import psutil
import pytest
from fakenvml import Look

from dstui.machine.live import GpuState, Live, update_states
from dstui.machine.snapshot import Unknown
from tests.waiting import wait_for

MIB = 1 << 20


@pytest.fixture
def environment(library: Path, tmp_path: Path) -> dict[str, str]:
    (tmp_path / "live").write_text(fakenvml.profile("rtx3090-pair"))
    return {**os.environ, "LD_LIBRARY_PATH": str(library), "FAKENVML_PROFILE": str(tmp_path / "live")}


@pytest.fixture
def live(environment: dict[str, str]) -> Iterator[Live]:
    with Live(0.05, environment) as stream:
        yield stream


def test_states_arrive_and_refresh_the_machine(live: Live, probe_system: Look) -> None:
    machine = probe_system("rtx3090-pair", "= nvmlDeviceGetTemperature - - 99")
    states = wait_for(live.poll)
    assert isinstance(states, dict) and sorted(states) == [0, 1]
    assert isinstance(states[1], GpuState) and states[1].memory_used == 601 * MIB and states[1].power == 87.5
    again = update_states(machine, states)
    assert (machine.gpus[0].temperature, again.gpus[0].temperature) == (99, 35)
    assert again.gpus[0].name == machine.gpus[0].name and again.links == machine.links
    assert wait_for(live.poll), "the stream is endless"
    assert live.problem is None


def test_failing_driver_is_reported(environment: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "live").write_text("! nvmlInitWithFlags - - 9\n")
    with Live(0.05, environment) as stream:
        wait_for(lambda: stream.problem == Unknown("NVML is not there"))
        assert stream.poll() == {}


@pytest.mark.deadline
def test_hanging_driver_is_detected(environment: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "live").write_text("~ nvmlDeviceGetPowerUsage 1 - 600000\n" + fakenvml.profile("rtx3090-pair"))
    with Live(0.05, environment) as stream:
        wait_for(lambda: stream.problem is not None)
        problem = stream.problem
        assert isinstance(problem, Unknown) and "has not answered" in problem.reason
        began = time.monotonic()
    assert time.monotonic() - began < 60, "closing does not wait for the driver"


def test_child_ends_with_its_parent(environment: dict[str, str]) -> None:
    code = "import time\nfrom dstui.machine.live import Live\nlive = Live(0.05)\nprint(live.pid, flush=True)\ntime.sleep(600)"
    owner = subprocess.Popen([sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE, text=True)
    assert owner.stdout
    child = psutil.Process(int(owner.stdout.readline()))
    owner.send_signal(signal.SIGKILL)
    owner.wait()
    wait_for(lambda: not child.is_running() or child.status() == psutil.STATUS_ZOMBIE)
    owner.stdout.close()
