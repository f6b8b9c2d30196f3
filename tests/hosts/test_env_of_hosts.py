"""A .deepspeed_env reaches the ranks of dstui's launches as it reaches those of a plain `deepspeed`."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from farm import Farm
from remote_job import RemoteJob

from tests.launcher_path import BARE_LAUNCHER

SCRIPT = """\
import os
found = " ".join(f"{name}={os.environ.get(name)}" for name in ("OF_HOME", "OF_BOTH"))
os.write(1, f"FOUND {os.environ['RANK']} {found}\\n".encode())
"""


@pytest.fixture
def remote_job(farm: Farm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RemoteJob]:
    """Return a job whose working folder and home each have a .deepspeed_env."""
    home, folder = tmp_path / "home", tmp_path / "job"
    home.mkdir()
    folder.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("DS_ENV_FILE", raising=False)
    (home / ".deepspeed_env").write_text("OF_HOME=1\nOF_BOTH=home\n")
    (folder / ".deepspeed_env").write_text(f"OF_BOTH=folder\nPYTHONPATH={BARE_LAUNCHER}\n")
    (folder / "rank.py").write_text(SCRIPT)
    (folder / "hosts").write_text("h1 slots=1\nh2 slots=1\n")
    yield RemoteJob(farm, folder)


def found(text: str) -> list[str]:
    return sorted(re.findall(r"FOUND (.*)", text))


@pytest.mark.deadline
@pytest.mark.parametrize("launcher", ["ssh", "pdsh"])
def test_ranks_get_the_variables_that_plain_deepspeed_gives(remote_job: RemoteJob, launcher: str) -> None:
    if not shutil.which("pdsh"):
        pytest.skip("needs pdsh, which .ci/run installs")
    words = ["--hostfile", "hosts", "--launcher", "pdsh", "--master_addr", "h1", "rank.py"]
    command = f'cd "{remote_job.path}" && DS_ACCELERATOR=cpu {sys.executable} -m deepspeed.launcher.runner {" ".join(words)}'
    plain = remote_job.farm.run("login", "sh", "-c", command, timeout=120)
    assert found(plain.stdout) == [f"{rank} OF_HOME=1 OF_BOTH=folder" for rank in (0, 1)], plain.stdout + plain.stderr
    remote_job.start(cluster=f"launcher: {launcher}", job=f"{{script: rank.py, args: [], workdir: '{remote_job.path}'}}")
    code, out, err = remote_job.wait()
    assert (code, found(out)) == (0, found(plain.stdout)), out + err + remote_job.words()
    assert f"{remote_job.path}/.deepspeed_env: every rank gets OF_HOME, OF_BOTH, PYTHONPATH" in err
