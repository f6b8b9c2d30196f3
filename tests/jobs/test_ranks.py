"""Conclusions from the ranks' records: which ranks live, which failed first, and the job's exit status."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from dstui.jobs.store.folder import JobFolder
from dstui.jobs.store.processes import find
from dstui.jobs.store.ranks import Ranks

HERE = os.uname().nodename
NOW = 2000.0


@pytest.fixture
def folder(tmp_path: Path) -> JobFolder:
    folder = JobFolder(tmp_path)
    folder.prepare(1)
    return folder


def record(folder: JobFolder, rank: int, code: int | None = None, ended: float | None = None, **more: Any) -> None:
    """Write a rank's record as its shim does; the shim is this process unless given."""
    me = find(os.getpid())
    assert me is not None
    facts = {"rank": rank, "host": HERE, "pid": 1, "shim": me.pid, "ticks": me.ticks, "started": 1000.0, "exit_code": code, "ended": ended}
    folder.record(rank).write_text(json.dumps({**facts, **more}).ljust(1024))


def last_alive(folder: JobFolder, hosts: int = 2) -> Ranks:
    ranks = Ranks.expected(folder, dict.fromkeys(range(hosts), HERE))
    ranks.update(NOW)
    return ranks


def test_exit_status_is_that_of_the_first_failure(folder: JobFolder) -> None:
    record(folder, 0, 1, 1002.0)
    record(folder, 1, 3, 1001.0)
    ranks = last_alive(folder)
    assert (ranks.first_failure, ranks.exit_code(), ranks.over) == (1, 3, True)


def test_exit_status_is_0_only_if_every_rank_exited_with_0(folder: JobFolder) -> None:
    record(folder, 0, 0, 1001.0)
    assert (last_alive(folder).exit_code(), last_alive(folder).over, last_alive(folder).waiting) == (1, False, [1])
    record(folder, 1, 0, 1002.0)
    assert (last_alive(folder).exit_code(), last_alive(folder).over) == (0, True)


def test_vanished_rank_was_killed_before_its_peers_noticed(folder: JobFolder) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    record(folder, 0, 1, NOW + 0.1)  # the connection to its peer broke
    record(folder, 1, shim=gone.pid, ticks=1)
    ranks = last_alive(folder)
    assert (ranks.ranks[1].state, ranks.first_failure, ranks.exit_code()) == ("lost", 1, 137)


def test_reused_pid_is_not_the_rank(folder: JobFolder) -> None:
    record(folder, 0, ticks=1)  # our own pid with another start time
    assert last_alive(folder, 1).ranks[0].state == "lost"


def test_rank_of_another_host_is_not_judged_by_local_processes(folder: JobFolder) -> None:
    record(folder, 0, host="elsewhere", ticks=1)
    assert last_alive(folder, 1).living == [0]


def test_record_has_the_world_size(folder: JobFolder) -> None:
    record(folder, 0, world_size=4)
    ranks = Ranks.expected(folder, {})
    assert ranks.update(NOW) == [0, 1, 2, 3]
    assert (ranks.living, ranks.waiting, ranks.over) == ([0], [1, 2, 3], False)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"pid": "1", "shim": 2, "ticks": 3}', "\0" * 1024])
def test_torn_record_counts_as_missing(folder: JobFolder, text: str) -> None:
    folder.record(0).write_text(text)
    (folder.record(0).parent / "rank_x.json").write_text("{}")
    assert last_alive(folder, 1).waiting == [0]


@pytest.mark.parametrize(
    ("codes", "victims"),
    [
        ((3, 143), {1: 0}),
        ((1, 137), {1: 0}),
        ((137, 143), {1: 0}),
        ((137, 137), {}),  # the order of the two says little
        ((143, 137), {}),  # somebody ends them, one by one
        ((3, 1), {}),
        ((0, 143), {}),
    ],
)
def test_rank_ended_by_a_signal_after_another_failure_is_no_culprit(
    folder: JobFolder, codes: tuple[int, int], victims: dict[int, int]
) -> None:
    for rank, code in enumerate(codes):
        record(folder, rank, code, ended=1000.0 + rank)
    statuses = last_alive(folder).statuses()
    assert {rank: status.killed_after for rank, status in statuses.items() if status.killed_after is not None} == victims
