"""Run dstui's command line, for tests of what a command prints and does.

Each command is forked from one interpreter per test process that has already imported dstui, because starting an interpreter costs several
times what a command does. tests/test_bad_input.py tests that a forked command and a fresh interpreter give the same answer; what a fresh
interpreter imports and inherits is tested in tests/test_cli.py and tests/e2e.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

from tests.hostile.forked import Forked

NO_LIMIT, DEADLINE = 1 << 46, 120.0
"""Address space in bytes, which the ranks of a job inherit, and the time limit in seconds."""


FORKED = Forked(memory=NO_LIMIT, cpu=int(DEADLINE), deadline=DEADLINE)


def dstui(
    *words: object, cwd: Path | None = None, env: Mapping[str, str] | None = None, given: bytes | str = b""
) -> subprocess.CompletedProcess[str]:
    """Run `dstui WORDS` in a folder, with `env` added to the current environment and `given` piped to it."""
    argv = [str(word) for word in words]
    ran = FORKED.run(argv, cwd or Path.cwd(), env, given=given.encode() if isinstance(given, str) else given)
    return subprocess.CompletedProcess(argv, ran.status, ran.out.decode(errors="replace"), ran.err.decode(errors="replace"))
