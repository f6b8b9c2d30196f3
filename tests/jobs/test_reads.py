"""Detect that a file has been read, as far as the file system tells."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from dstui.base.files import was_read, watch_reads


def test_first_read_after_the_watch_began_is_seen(tmp_path: Path) -> None:
    file = tmp_path / "ds_config.json"
    file.write_text("{}")
    written = file.stat().st_mtime_ns
    watch_reads(file)
    if was_read(file) is None:
        pytest.skip("this disk records no access times")
    assert (was_read(file), file.stat().st_mtime_ns) == (False, written)
    assert file.read_text() == "{}"
    assert was_read(file) is True


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small file system needs root")
def test_nothing_is_claimed_if_reads_leave_no_trace(tmp_path: Path) -> None:
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


def test_missing_file_is_unknown(tmp_path: Path) -> None:
    watch_reads(tmp_path / "nothing")
    assert was_read(tmp_path / "nothing") is None
