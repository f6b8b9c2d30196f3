"""Statements about ZenFlow hold for each release: its own `deepspeed.initialize` and two steps, with its CPU Adam compiled first."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "check"))

from zenflow import FLOWS, MOMENTS

from dstui.check.reference import ReferenceChecker
from tests.releases import installed

COMPILE = "from deepspeed.ops.op_builder import CPUAdamBuilder; CPUAdamBuilder().load()"


@pytest.fixture(scope="module", params=MOMENTS)
def release(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, ReferenceChecker]]:
    """Yield a release and its `initialize`. The compiled Adam differs between releases, so each has a separate folder for it."""
    path = installed(request.param)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path_factory.mktemp("ops")))
        patch.setenv("DS_ACCELERATOR", "cpu")
        subprocess.run([sys.executable, "-c", COMPILE], env={**os.environ, "PYTHONPATH": path}, check=True, capture_output=True)
        with ReferenceChecker(how="initialize", path=path) as reference:
            yield request.param, reference


@pytest.mark.parametrize("name", FLOWS)
def test_zenflow_fails_when_dstui_says_so(name: str, release: tuple[str, ReferenceChecker]) -> None:
    version, reference = release
    died = reference.validate(FLOWS[name], 1, steps=2)
    assert (died.when, died.ok) == (MOMENTS[version][name], MOMENTS[version][name] is None), died
