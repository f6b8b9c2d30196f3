"""A machine with the GPUs that a test needs: only NVIDIA's library is replaced."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import fakenvml
import pytest
from fakenvml import Look

from dstui.machine import child
from dstui.machine.child import Line
from dstui.machine.probe import probe
from dstui.machine.snapshot import Machine


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the fake library of a current driver."""
    return fakenvml.current(tmp_path_factory)


@pytest.fixture
def probe_system(library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Look:
    """Return a function that probes a system of systems.json, with profile lines that precede its own: errors, delays, other answers."""

    def probe_host(system: str, *lines: str, deadline: float = 20.0, driver: Path = library, serials: bool = False) -> Machine:
        profile = tmp_path / "profile"
        profile.write_text("".join(f"{line}\n" for line in lines) + (fakenvml.profile(system) if system else ""))
        monkeypatch.setenv("LD_LIBRARY_PATH", str(driver))
        monkeypatch.setenv("FAKENVML_PROFILE", str(profile))
        return probe(deadline, serials=serials)

    monkeypatch.setattr("dstui.machine.probe.run_lookup", _lines_of)
    return probe_host


def _lines_of(program: str, deadline: float, *args: str, **more: Any) -> list[Line]:
    """Cache all probes but NVML's, which the tests with GPUs are about."""
    return child.run_lookup(program, deadline, *args, **more) if program == "nvml" else _beside_nvml(program)


@cache
def _beside_nvml(program: str) -> list[Line]:
    return child.run_lookup(program, 20.0)
