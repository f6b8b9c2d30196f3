"""Reading logs by byte ranges: wherever a file is split, each line is read once, as a plain split gives it."""

from __future__ import annotations

import os
import resource
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dstui.logs.log_file import LogFile


def lines_of(raw: bytes) -> list[bytes]:
    lines = raw.split(b"\n")
    return lines if lines[-1] else lines[:-1]


@given(
    raw=st.lists(st.binary(max_size=90) | st.sampled_from([b"\n", b"\n\n", b"x" * 5000, b"a\rb\n"]), max_size=40).map(b"".join),
    cuts=st.lists(st.integers(0, 9000), max_size=12),
)
def test_each_line_is_in_one_piece_wherever_a_file_is_split(tmp_path_factory: pytest.TempPathFactory, raw: bytes, cuts: list[int]) -> None:
    path = tmp_path_factory.mktemp("log") / "log"
    path.write_bytes(raw)
    log = LogFile(path)
    assert log.poll()
    edges = sorted({0, *(cut for cut in cuts if cut < log.size), log.size + 1})
    assert [line for start, end in pairwise(edges) for line in log.read(start, end)] == lines_of(raw)
    finished = raw[: raw.rfind(b"\n") + 1]
    assert (log.ended, log.size) == (len(finished), len(raw))
    assert log.read(0, log.ended) == lines_of(finished)
    log.close()


@given(pieces=st.lists(st.binary(max_size=20) | st.sampled_from([b"\n", b"x\n"]), max_size=30))
def test_finished_lines_of_a_growing_file_are_read_once(tmp_path_factory: pytest.TempPathFactory, pieces: list[bytes]) -> None:
    path = tmp_path_factory.mktemp("log") / "log"
    log, told, taken = LogFile(path), list[bytes](), 0
    for piece in pieces:
        with path.open("ab") as file:
            file.write(piece)
        assert log.poll()
        told += log.read(taken, log.ended)
        taken = log.ended
    raw = b"".join(pieces)
    assert told == lines_of(raw[: raw.rfind(b"\n") + 1])
    log.close()


def test_last_lines_of_a_large_log_are_read_alone(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"".join(b"line %d\n" % number for number in range(1_000_000)))
    assert LogFile(path).tail(3) == ["line 999997", "line 999998", "line 999999"]


def test_unfinished_line_is_no_line_but_visible(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"one\n 10%\r 20%")
    log = LogFile(path)
    log.poll()
    assert (log.read(0, log.ended), log.unfinished()) == ([b"one"], " 20%")


@pytest.mark.parametrize("how", ["truncate", "replace"])
def test_truncated_or_replaced_log_is_another_file(tmp_path: Path, how: str) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"old\n" * 1000)
    log = LogFile(path)
    assert log.poll()
    if how == "truncate":
        path.write_bytes(b"new\n")
    else:
        (tmp_path / "other").write_bytes(b"new\n" * 2000)
        (tmp_path / "other").replace(path)
    assert not log.poll()


def test_log_may_appear_later_and_disappear(tmp_path: Path) -> None:
    path = tmp_path / "log"
    log = LogFile(path)
    assert log.poll()
    assert (log.size, log.tail(5)) == (0, [])
    path.write_bytes(b"here\n")
    assert log.poll()
    path.unlink()
    assert log.poll()
    assert log.read(0, log.ended) == [b"here"]


def test_more_logs_than_file_descriptors_are_read(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    logs = []
    others = len(list(Path("/proc/self/fd").iterdir()))  # open files of other tests of this process
    resource.setrlimit(resource.RLIMIT_NOFILE, (256 + others, hard))
    try:
        for number in range(400 + others):
            (tmp_path / f"{number}").write_bytes(b"line %d\n" % number)
            logs.append(LogFile(tmp_path / f"{number}"))
            assert logs[-1].poll()
        assert [log.read(0, log.ended) for log in logs] == [[b"line %d" % number] for number in range(400 + others)]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for log in logs:
            log.close()


def test_special_file_is_never_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    for name in ("pipe", "folder"):
        log = LogFile(tmp_path / name)
        assert log.poll()
        assert (log.size, log.tail(3)) == (0, [])
