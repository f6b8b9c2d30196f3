"""`dstui --plain` from its first prompt to a trained model, by a script that only reads and writes lines.

python -m pytest -q tests/long/test_plain.py        half a minute on two cores
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import IO

import pytest

from dstui.jobs.store.folder import JobFolder


class Reader:
    """Reads lines until one asks for something, and answers it."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.lines: list[str] = []
        self._process = process

    def until(self, beginning: str, *asked: str) -> str:
        """Read up to a line with this beginning and return it."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.lines.append(line.rstrip("\n"))
            if self.lines[-1].lstrip(" 0123456789.").startswith((beginning, *asked)):
                return self.lines[-1]
        raise AssertionError(f"no line begins with {beginning!r}:\n" + "\n".join(self.lines))

    def answer(self, line: str) -> None:
        """Write a line."""
        stdin: IO[str] | None = self._process.stdin
        assert stdin is not None
        stdin.write(line + "\n")
        stdin.flush()


@pytest.mark.launcher
def test_script_trains_a_model_by_reading_and_writing_lines(tmp_path: Path) -> None:
    environment = {**os.environ, "ACCESSIBLE": "1", "XDG_STATE_HOME": str(tmp_path / "state")}
    with subprocess.Popen(
        [sys.executable, "-m", "dstui"], cwd=tmp_path, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        user = Reader(process)
        user.answer(user.until("the shipped Plan quickstart").split(".")[0].strip())
        for prompt in ("Machine:", "Job:"):
            user.until(f"{prompt} a number")
            user.answer("")
        user.answer(user.until("ZeRO stage: 2").split(".")[0].strip())
        user.answer(user.until("3  + parameters", "+ parameters").split(".")[0].strip())
        user.until("ZeRO stage: 3")
        for prompt in ("ZeRO stage:", "Offload:", "Precision:", "Batch & optimizer:", "Cluster:"):
            user.until(f"{prompt} a number")
            user.answer("")
        user.until("Findings: ")
        user.until("Forecast: ")
        user.answer("save")
        user.until("Save as")
        user.answer("trained.yaml")
        user.until("Saved ")
        user.answer("launch")
        folder = JobFolder(Path(user.until("Job folder ").removeprefix("Job folder ")))
        assert "last loss" in user.until("succeeded after", "failed after")
        user.answer("q")
        assert process.wait() == 0
    status = folder.read_status()
    assert status is not None
    assert (status.state, status.exit_code, len(status.ranks)) == ("succeeded", 0, 2)
    assert "stage: 3" in (tmp_path / "trained.yaml").read_text()
