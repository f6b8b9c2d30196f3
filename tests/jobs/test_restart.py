"""Which checkpoint a further attempt resumes from."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dstui.jobs.store.records import LaunchRecord, RestartPolicy
from dstui.jobs.supervisor.restart import restart_arguments


def checkpoint(folder: Path, written: float, mark: str = "latest") -> Path:
    folder.mkdir(parents=True)
    (folder / mark).touch()
    os.utime(folder / mark, (written, written))
    return folder


def launch(workdir: Path, *args: str, more: tuple[str, ...] = ("--resume={checkpoint}",)) -> LaunchRecord:
    return LaunchRecord(workdir=str(workdir), args=args, restarts=RestartPolicy(args=more))


def test_latest_complete_checkpoint_is_used(tmp_path: Path) -> None:
    checkpoint(tmp_path / "out" / "checkpoint-500", 500, "trainer_state.json")
    newest = checkpoint(tmp_path / "out" / "checkpoint-1000", 1000)
    assert restart_arguments(launch(tmp_path), since=100) == ([f"--resume={newest}"], f"from {newest}")


def test_checkpoint_of_an_earlier_job_is_not_used(tmp_path: Path) -> None:
    checkpoint(tmp_path / "out", 500)
    assert restart_arguments(launch(tmp_path), since=600) == ([], "from the beginning: there is no checkpoint yet")


@pytest.mark.parametrize("word", ["--output_dir={0}", "{0}"])
def test_folder_named_by_an_argument_is_searched(tmp_path: Path, word: str) -> None:
    elsewhere = checkpoint(tmp_path / "elsewhere" / "save", 1000)
    workdir = tmp_path / "work"
    workdir.mkdir()
    words, _ = restart_arguments(launch(workdir, word.format(elsewhere.parent), more=("--load", "{checkpoint}")), since=1)
    assert words == ["--load", str(elsewhere)]


def test_arguments_without_a_checkpoint_are_appended_unchanged(tmp_path: Path) -> None:
    assert restart_arguments(launch(tmp_path, more=("--resume",)), since=1) == (["--resume"], "with --resume")
    assert restart_arguments(launch(tmp_path, more=()), since=1) == ([], "as before")
