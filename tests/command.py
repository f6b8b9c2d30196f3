"""dstui's command line, for tests of what a command says and does.

Each command is forked from one interpreter for each test process, which has imported dstui: to start one for each would cost several times what the
commands themselves do. That both answer alike is tests/test_bad_input.py's; what an interpreter of its own imports and inherits is tested
where it matters (tests/test_cli.py, tests/e2e).
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

from tests.hostile.forked import Forked

NO_LIMIT, DEADLINE = 1 << 46, 120.0
"""Bytes of address space, which the ranks of a job inherit; seconds."""


FORKED = Forked(memory=NO_LIMIT, cpu=int(DEADLINE), deadline=DEADLINE)


def dstui(*words: object, cwd: Path | None = None, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """`dstui WORDS` in a folder; the environment is ours with `env` on top, and there is nothing on its standard input."""
    argv = [str(word) for word in words]
    ran = FORKED.run(argv, cwd or Path.cwd(), env)
    return subprocess.CompletedProcess(argv, ran.status, ran.out.decode(errors="replace"), ran.err.decode(errors="replace"))
