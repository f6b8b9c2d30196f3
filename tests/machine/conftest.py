"""A machine with the GPUs that a test asks for: NVIDIA's library is a stand-in, everything else is the real thing."""

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
    """The folder of a stand-in for a current driver's library."""
    return fakenvml.current(tmp_path_factory)


@pytest.fixture
def look(library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Look:
    """Probe a system of systems.json, with further lines of the profile before its own: errors, delays, other answers."""

    def probe_host(system: str, *lines: str, deadline: float = 20.0, driver: Path = library, serials: bool = False) -> Machine:
        profile = tmp_path / "profile"
        profile.write_text("".join(f"{line}\n" for line in lines) + (fakenvml.profile(system) if system else ""))
        monkeypatch.setenv("LD_LIBRARY_PATH", str(driver))
        monkeypatch.setenv("FAKENVML_PROFILE", str(profile))
        return probe(deadline, serials=serials)

    monkeypatch.setattr("dstui.machine.probe.run_lookup", _lines_of)
    return probe_host


def _lines_of(program: str, deadline: float, *args: str, **more: Any) -> list[Line]:
    """The tests with GPUs are about NVML: what else there is to find is looked up once."""
    return child.run_lookup(program, deadline, *args, **more) if program == "nvml" else _beside_nvml(program)


@cache
def _beside_nvml(program: str) -> list[Line]:
    return child.run_lookup(program, 20.0)
