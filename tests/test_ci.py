"""`.ci/run` on CI does not depend on what an earlier run left in the home folder."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

RUN = Path(__file__).parent.parent / ".ci" / "run"
README = '<!-- test -->\n```sh\nenv > "$PWD/seen" && touch ~/left && exit 7\n```\n'


@pytest.mark.parametrize("home", ["there", "not-there"])
def test_ci_uses_a_temporary_home_and_keeps_pip_downloads(home: str, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "apt-get").write_text("#!/bin/sh\n")  # this test installs nothing
    (tmp_path / "bin" / "apt-get").chmod(0o755)
    (tmp_path / ".ci").mkdir()
    shutil.copy(RUN, tmp_path / ".ci" / "run")
    (tmp_path / "README.md").write_text(README)
    env = {name: value for name, value in os.environ.items() if name not in ("PIP_CACHE_DIR", "XDG_CACHE_HOME")}
    env |= {"CI": "true", "HOME": str(tmp_path / home), "XDG_DATA_HOME": str(tmp_path), "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"}
    done = subprocess.run([tmp_path / ".ci" / "run"], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 7, done.stderr
    seen = dict(line.split("=", 1) for line in (tmp_path / "seen").read_text().splitlines() if "=" in line)
    assert f"HOME={seen['HOME']}" in done.stdout and not Path(seen["HOME"]).exists(), "it is removed at the end"
    assert not Path(seen["HOME"]).is_relative_to(tmp_path) and not [name for name in seen if name.startswith("XDG_")]
    assert seen.get("PIP_CACHE_DIR") == (str(tmp_path / "there/.cache/pip") if home == "there" else None)
    assert list((tmp_path / "there").iterdir()) == []
