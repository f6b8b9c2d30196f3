"""Which metrics are known of each program: those in its lines, those from DeepSpeed's engine, and both together.

The engine's are those of a real training under the hook; the lines are those of tests/jobs/framework_lines.py.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dstui.jobs.store.folder import JobFolder
from dstui.jobs.supervisor.launch_command import HOOK, SHIM
from dstui.jobs.watch.follow import Follower
from tests.jobs.framework_lines import PROGRAMS
from tests.jobs.made import make_job

HERE = Path(__file__).parent
WITHOUT_ENGINE = ("verl", "LAVIS", "torchtitan", "torchtune", "nanoGPT", "timm", "nanotron")
"""Programs that never call deepspeed.initialize: own torch training, FSDP, Megatron."""


@pytest.fixture(scope="module")
def reported(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Return what the hook writes for a training of five steps."""
    folder = tmp_path_factory.mktemp("trained")
    for part in ("logs", "ranks"):
        (folder / part).mkdir()
    env = {**os.environ, "RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29541"}
    words = [sys.executable, SHIM, folder, "tag", f"hook:engine:{HOOK.parent}", HERE / "hooked/odd.py", "kind=plain"]
    subprocess.run(words, env={**env, "DS_ACCELERATOR": "cpu"}, check=True)
    return JobFolder(folder).engine(0).read_bytes()


def known(folder: JobFolder) -> list[set[str]]:
    """Return the names of the metrics that a follower of the job has for each rank."""
    follower = Follower(folder)
    while follower.poll():
        pass
    views = [view for _, view in sorted(follower.ranks.items())]
    follower.close()
    return [{*view.metrics, *(name for name in ("step", "steps") if getattr(view, name) is not None)} for view in views]


def test_table_of_programs(tmp_path: Path, reported: bytes, capsys: pytest.CaptureFixture[str]) -> None:
    programs = [program for program in PROGRAMS if program.name not in WITHOUT_ENGINE]
    assert len(PROGRAMS) - len(programs) == len(WITHOUT_ENGINE)
    printed = dict(enumerate("\n".join(program.lines) + "\n" for program in programs))
    lines, both = make_job(tmp_path / "lines", logs=printed), make_job(tmp_path / "both", logs=printed)
    silent = make_job(tmp_path / "silent", logs=dict.fromkeys(printed, ""))
    for folder in (both, silent):
        folder.engine(0).parent.mkdir()
        for rank in printed:
            folder.engine(rank).write_bytes(reported)
    totals = [0] * 4
    rows = [f"{'program':<34} {'wanted':>6} {'lines':>6} {'engine':>6} {'both':>6}   known in addition, from the engine"]
    for program, by_lines, by_engine, by_both in zip(programs, known(lines), known(silent), known(both), strict=True):
        wanted = set(program.wanted)
        counts = [len(wanted), *(len(wanted & found) for found in (by_lines, by_engine, by_both))]
        totals = [a + b for a, b in zip(totals, counts, strict=True)]
        rows.append(f"{program.name:<34} {' '.join(f'{count:>6}' for count in counts)}   {', '.join(sorted(by_both - by_lines))}")
        assert {"step", "loss", "lr", "step_time", "samples/s"} <= by_engine and wanted <= by_both, program.name
    rows.append(f"{f'{len(programs)} programs with an engine':<34} {' '.join(f'{count:>6}' for count in totals)}")
    with capsys.disabled():
        print("", *rows, sep="\n")
