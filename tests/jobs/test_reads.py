"""Whether somebody has read a file is told by the file system, or not at all."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from dstui.base.files import was_read, watch_reads


def test_the_first_read_after_the_watch_began_is_seen(tmp_path: Path) -> None:
    file = tmp_path / "ds_config.json"
    file.write_text("{}")
    written = file.stat().st_mtime_ns
    watch_reads(file)
    if was_read(file) is None:
        pytest.skip("this disk keeps no times of access")
    assert (was_read(file), file.stat().st_mtime_ns) == (False, written)
    assert file.read_text() == "{}"
    assert was_read(file) is True


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small file system needs root")
def test_where_reading_leaves_no_trace_nothing_is_claimed(tmp_path: Path) -> None:
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k,noatime", "none", str(tmp_path)], capture_output=True, check=False
    ).returncode:
        pytest.skip("mount is not permitted here")
    try:
        file = tmp_path / "ds_config.json"
        file.write_text("{}")
        watch_reads(file)
        assert was_read(file) is None
        file.read_text()
        assert was_read(file) is None
    finally:
        subprocess.run(["umount", str(tmp_path)], check=False)


def test_what_is_not_there_is_not_known(tmp_path: Path) -> None:
    watch_reads(tmp_path / "nothing")
    assert was_read(tmp_path / "nothing") is None
