"""Builds of ops by torch's own loader with a real ninja: reported only while something is compiled."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path
from select import select

import pytest

from dstui.jobs.store.cleanup import OpBuilds
from tests.waiting import wait_for

BUILDS = """
import os, sys
from torch.utils.cpp_extension import load
for _ in sys.stdin:
    if (rank := os.fork()) == 0:
        load("op", [sys.argv[1] + "/op.cpp"], build_directory=sys.argv[1] + "/op", is_python_module=False)
        os._exit(0)
    print(rank, flush=True)
    os.waitpid(rank, 0)
    print("loaded", flush=True)
"""
COMPILER = """#!/bin/sh
case " $* " in *" -c "*) while ! test -e {go}; do sleep 0.05; done; touch {compiled};; esac
exec c++ "$@"
"""


def test_build_by_torch_is_reported_while_it_compiles_and_not_if_the_op_exists(tmp_path: Path) -> None:
    if not (shutil.which("ninja") and shutil.which("c++")):
        pytest.skip("torch compiles with ninja and c++, which .ci/run installs")
    go, compiled, compiler = tmp_path / "go", tmp_path / "compiled", tmp_path / "compiler"
    compiler.write_text(COMPILER.format(go=go, compiled=compiled))
    compiler.chmod(0o755)
    (tmp_path / "op.cpp").write_text("int seven() { return 7; }")
    (tmp_path / "op").mkdir()
    builds, said = OpBuilds(tmp_path), []
    with subprocess.Popen(
        [sys.executable, "-c", BUILDS, str(tmp_path)],
        env={**os.environ, "CXX": str(compiler)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as forks:
        assert forks.stdin and forks.stdout
        for _ in range(2):  # the second rank finds it built
            forks.stdin.write(b"\n")
            forks.stdin.flush()
            rank = int(forks.stdout.readline())
            if not go.exists():
                said += wait_for(partial(builds.poll, {0: rank}))
                assert builds.poll({0: rank}) == []
                go.touch()
            while not select([forks.stdout], [], [], 0.01)[0]:
                said += builds.poll({0: rank})
            said += builds.poll({0: rank})
            assert forks.stdout.readline() == b"loaded\n"
        forks.stdin.close()
    assert compiled.exists()
    assert [news.text.partition(" in ")[0] for news in said] == [
        "rank 0 is compiling op of DeepSpeed, a minute or more, once on this machine; the ranks wait",
        "op was compiled",
    ]
    assert [news.lasts for news in said] == [True, False]
