"""What follows from the records of the ranks: who lives, who failed first, and with which status the job ends."""

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
    """As the shim of a rank writes it; the shim is this process unless said otherwise."""
    me = find(os.getpid())
    assert me is not None
    facts = {"rank": rank, "host": HERE, "pid": 1, "shim": me.pid, "ticks": me.ticks, "started": 1000.0, "exit_code": code, "ended": ended}
    folder.record(rank).write_text(json.dumps({**facts, **more}).ljust(1024))


def last_alive(folder: JobFolder, hosts: int = 2) -> Ranks:
    ranks = Ranks.expected(folder, dict.fromkeys(range(hosts), HERE))
    ranks.update(NOW)
    return ranks


def test_the_first_to_fail_by_time_gives_the_exit_status(folder: JobFolder) -> None:
    record(folder, 0, 1, 1002.0)
    record(folder, 1, 3, 1001.0)
    ranks = last_alive(folder)
    assert (ranks.first_failure, ranks.exit_code(), ranks.over) == (1, 3, True)


def test_0_only_where_every_rank_ended_with_0(folder: JobFolder) -> None:
    record(folder, 0, 0, 1001.0)
    assert (last_alive(folder).exit_code(), last_alive(folder).over, last_alive(folder).waiting) == (1, False, [1])
    record(folder, 1, 0, 1002.0)
    assert (last_alive(folder).exit_code(), last_alive(folder).over) == (0, True)


def test_a_rank_that_is_gone_without_a_word_was_killed_before_its_peers_could_notice(folder: JobFolder) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    record(folder, 0, 1, NOW + 0.1)  # the peer's connection broke
    record(folder, 1, shim=gone.pid, ticks=1)
    ranks = last_alive(folder)
    assert (ranks.ranks[1].state, ranks.first_failure, ranks.exit_code()) == ("lost", 1, 137)


def test_a_pid_that_was_given_to_somebody_else_is_not_the_rank(folder: JobFolder) -> None:
    record(folder, 0, ticks=1)  # our own pid, another start
    assert last_alive(folder, 1).ranks[0].state == "lost"


def test_a_rank_of_another_host_is_not_judged_by_our_processes(folder: JobFolder) -> None:
    record(folder, 0, host="elsewhere", ticks=1)
    assert last_alive(folder, 1).living == [0]


def test_a_record_tells_how_many_ranks_there_are(folder: JobFolder) -> None:
    record(folder, 0, world_size=4)
    ranks = Ranks.expected(folder, {})
    assert ranks.update(NOW) == [0, 1, 2, 3]
    assert (ranks.living, ranks.waiting, ranks.over) == ([0], [1, 2, 3], False)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"pid": "1", "shim": 2, "ticks": 3}', "\0" * 1024])
def test_a_record_that_is_torn_is_not_there_yet(folder: JobFolder, text: str) -> None:
    folder.record(0).write_text(text)
    (folder.record(0).parent / "rank_x.json").write_text("{}")
    assert last_alive(folder, 1).waiting == [0]


@pytest.mark.parametrize(
    ("codes", "victims"),
    [
        ((3, 143), {1: 0}),
        ((1, 137), {1: 0}),
        ((137, 143), {1: 0}),
        ((137, 137), {}),  # who of the two was first says little
        ((143, 137), {}),  # somebody ends them, one by one
        ((3, 1), {}),
        ((0, 143), {}),
    ],
)
def test_who_ended_by_a_signal_after_another_had_failed_is_no_culprit(
    folder: JobFolder, codes: tuple[int, int], victims: dict[int, int]
) -> None:
    for rank, code in enumerate(codes):
        record(folder, rank, code, ended=1000.0 + rank)
    statuses = last_alive(folder).statuses()
    assert {rank: status.killed_after for rank, status in statuses.items() if status.killed_after is not None} == victims
