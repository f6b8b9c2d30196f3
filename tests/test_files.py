"""Files are read with clear errors and written atomically."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dstui.base.files import FileProblem, make_folder, read_text, state_on_disk, write_atomic
from dstui.base.regular_files import read_end
from dstui.documents.plan_files import read_plan
from dstui.plan import PlanError


def test_unreadable_file_gives_a_message(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\x7fELF\0\0")
    (tmp_path / "latin").write_bytes(b"version: 1\nname: caf\xe9\n")
    (tmp_path / "large").write_bytes(b"x" * (5 << 20))
    os.mkfifo(tmp_path / "pipe")
    for name, sentence in {
        "none.yaml": "no such file",
        ".": "is a folder",
        "binary": "is a binary file",
        "latin": r"latin:2: not UTF-8 \(byte 0xe9\)",
        "large": "larger than 1 MiB",
        "pipe": "neither a file nor a folder",
    }.items():
        with pytest.raises(FileProblem, match=sentence):
            read_text(tmp_path / name)


def test_different_content_is_replaced_only_on_request(tmp_path: Path) -> None:
    path = tmp_path / "ds_config.json"
    assert (state_on_disk(path, "a"), write_atomic(path, "a")) == ("new", True)
    assert (state_on_disk(path, "a"), write_atomic(path, "a")) == ("same", False)
    assert state_on_disk(path, "b") == "changed"
    with pytest.raises(FileProblem, match="--force"):
        write_atomic(path, "b")
    assert path.read_text() == "a"
    assert write_atomic(path, "b", replace=True)
    assert (path.read_text(), [p.name for p in tmp_path.iterdir()]) == ("b", ["ds_config.json"])


def test_full_disk_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "plan.yaml"
    path.write_text("old")
    import resource
    import signal

    was, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, was[1]))
    try:
        with pytest.raises(FileProblem, match=r"plan\.yaml: "):
            write_atomic(path, "new" * 1000, replace=True)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, was)
        signal.signal(signal.SIGXFSZ, handler)
    assert (path.read_text(), [p.name for p in tmp_path.iterdir()]) == ("old", ["plan.yaml"])


def test_writing_keeps_symbolic_links_and_file_modes(tmp_path: Path) -> None:
    target, link = tmp_path / "target.yaml", tmp_path / "link.yaml"
    target.write_text("old")
    target.chmod(0o640)
    link.symlink_to(target)
    write_atomic(link, "new", replace=True)
    assert (link.is_symlink(), target.read_text(), target.stat().st_mode & 0o777) == (True, "new", 0o640)


def test_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileProblem, match=f"there is no folder {tmp_path}/none"):
        write_atomic(tmp_path / "none" / "plan.yaml", "new")


def test_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(FileProblem, match="file/drafts: a part of this path is a file, not a folder"):
        make_folder(tmp_path / "file" / "drafts")


def test_loop_and_pipe_are_never_replaced(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "loop", tmp_path / "pipe"):
        with pytest.raises(FileProblem, match=r"Too many levels of symbolic links|neither a file nor a folder"):
            write_atomic(path, "new", replace=True)


def test_overrides_are_yaml_and_errors_name_the_override(tmp_path: Path) -> None:
    path = tmp_path / "plan.yaml"
    path.write_text("version: 1\njob: {script: a.py}\n")
    plan = read_plan(path, ["deepspeed.zero_optimization.stage=2", "job.args=[--lr, 1e-4]", "name="])
    assert (plan.get("deepspeed.zero_optimization.stage"), plan.job.args, plan.name) == (2, ("--lr", "1e-4"), "")
    for bad, sentence in {"stage": "it takes PATH=VALUE", "deepspeed.a=[": "deepspeed.a: ", "job.scrpt=a": "did you mean 'script'"}.items():
        with pytest.raises(PlanError, match=sentence):
            read_plan(path, [bad])


def test_quickstart_is_found_by_name_from_any_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert read_plan(Path("quickstart")).name == "quickstart"


def test_end_of_a_huge_log_is_read_alone(tmp_path: Path) -> None:
    log = tmp_path / "rank_0.log"
    with log.open("wb") as file:
        file.truncate(1 << 40)
        file.seek(0, os.SEEK_END)
        file.write(b"\nthe end\n")
    assert read_end(log, 8).splitlines() == [b"the end"]
    log.write_bytes(b"short\n")
    assert read_end(log, 8192) == b"short\n"
