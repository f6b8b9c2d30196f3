"""Which environment variables reach ranks on other hosts; the table is that of real launches."""

from __future__ import annotations

import pytest

from dstui.plan import load
from dstui.render.launch import launch_spec
from dstui.render.reaching import reach_lines, trace_variables
from tests.machines import NO_GPU

SHELL = ("NCCL_DEBUG", "HF_HOME", "MLFLOW_X", "PYTHONPATH", "RANK")
SEEN = {
    "pdsh": {"NCCL_DEBUG": False, "HF_HOME": False, "MLFLOW_X": True, "PYTHONPATH": True, "RANK": False},
    "openmpi": {"NCCL_DEBUG": False, "HF_HOME": False, "MLFLOW_X": True, "PYTHONPATH": True, "RANK": False},
    "mpich": {"NCCL_DEBUG": True, "HF_HOME": True, "MLFLOW_X": True, "PYTHONPATH": True, "RANK": False},
    "slurm": {"NCCL_DEBUG": True, "HF_HOME": True, "MLFLOW_X": True, "PYTHONPATH": True, "RANK": False},
    "ssh": {"NCCL_DEBUG": False, "HF_HOME": False, "MLFLOW_X": False, "PYTHONPATH": False, "RANK": False},
    "torchrun": {"NCCL_DEBUG": False, "HF_HOME": False, "MLFLOW_X": False, "PYTHONPATH": False, "RANK": False},
}


@pytest.mark.parametrize("launcher", SEEN)
def test_variables_that_the_launcher_forwards_reach_the_ranks(launcher: str) -> None:
    plan = load(
        f"version: 1\njob: {{script: t.py}}\ncluster: {{hosts: {{h1: 1, h2: 1}}, launcher: {launcher}, env: {{MINE: x, MASTER_ADDR: y}}}}\n"
    )
    spec = launch_spec(plan, NO_GPU)
    found = {each.name: each.reaches for each in trace_variables(spec, SHELL)}
    assert {name: found[name] for name in SHELL} == SEEN[launcher]
    assert found["MINE"] and found["DSTUI_DS_CONFIG"]
    assert found["MASTER_ADDR"] is (launcher == "openmpi")
    assert {each.name: each.reaches for each in trace_variables(spec, SHELL, gpu_here=True)}["NCCL_DEBUG"] is (
        launcher not in ("ssh", "torchrun")
    )
    assert any(line.startswith("yes  MINE ") for line in reach_lines(trace_variables(spec)))


def test_local_ranks_have_the_shells_environment() -> None:
    spec = launch_spec(load("version: 1\njob: {script: t.py}\ncluster: {env: {MINE: x}}\n"), NO_GPU)
    assert {each.name for each in trace_variables(spec, SHELL) if not each.reaches} == {"RANK"}
