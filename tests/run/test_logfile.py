"""Logs by line number: any file, any growth, the same lines as a plain split gives."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dstui.run import logfile
from dstui.run.logfile import BLOCK, LogFile, pattern, plain
from dstui.run.text import decode


def indexed(path: Path) -> LogFile:
    log = LogFile(path)
    log.poll()
    while not log.complete:
        log.poll()
    return log


def lines_of(raw: bytes) -> list[str]:
    lines = raw.split(b"\n")
    return [decode(line) for line in (lines if lines[-1] else lines[:-1])]


@settings(max_examples=60, deadline=None)
@given(
    pieces=st.lists(st.binary(max_size=90) | st.sampled_from([b"\n", b"\n\n", b"x" * 70, b"a\rb\n"]), max_size=40),
    block=st.sampled_from([1, 7, 64]),
    budget=st.integers(1, 200),
)
def test_a_growing_file_has_the_same_lines_by_number_as_by_splitting(
    tmp_path_factory: pytest.TempPathFactory, pieces: list[bytes], block: int, budget: int
) -> None:
    path = tmp_path_factory.mktemp("log") / "log"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(logfile, "BLOCK", block)
        log, written = LogFile(path), b""
        for piece in pieces:
            written += piece
            path.write_bytes(written)
            log.poll(budget)
            for number in range(log.lines - 1):
                assert log.line(number) == lines_of(written)[number]
        while not log.complete:
            log.poll(budget)
        assert [log.line(number) for number in range(log.lines)] == lines_of(written)


@settings(max_examples=60, deadline=None)
@given(
    text=st.text("abA\n", max_size=300),
    needle=st.text("abA", min_size=1, max_size=3),
    block=st.sampled_from([1, 7, 64]),
    budget=st.integers(1, 99),
)
def test_a_search_finds_the_same_lines_as_a_look_at_every_line(
    tmp_path_factory: pytest.TempPathFactory, text: str, needle: str, block: int, budget: int
) -> None:
    path = tmp_path_factory.mktemp("log") / "log"
    path.write_text(text)
    finders: dict[Any, Any] = {
        plain(needle): lambda line: needle in line,
        plain(needle, ignore_case=True): lambda line: needle.lower() in line.lower(),
        pattern(re.compile(b"^" + needle.encode() + b"$", re.MULTILINE)): lambda line: line == needle,
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(logfile, "BLOCK", block)
        patch.setattr(logfile, "CHUNK", 2 * block)
        log = indexed(path)
        for place, matches in finders.items():
            found, at = [], 0
            while at < log.lines:
                before = at
                some, at = log.grep(place, at, budget)
                found += some
                assert at > before
            assert found == [number for number in range(log.lines) if matches(log.line(number))]


def test_the_end_of_a_large_log_is_there_before_anything_is_indexed(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"".join(b"line %d\n" % number for number in range(1_000_000)))
    log = LogFile(path)
    assert log.lines == 0
    assert log.tail(3) == ["line 999997", "line 999998", "line 999999"]


def test_lines_of_any_length_and_none_at_all_have_their_number(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"first\n" + b"\n" * 3 + b"z" * (5 * BLOCK) + b"\nlast")
    log = indexed(path)
    assert log.lines == 6
    assert [log.line(0), log.line(3), log.line(5)] == ["first", "", "last"]
    assert log.line(4).startswith("zzz") and log.line(4).endswith("(a line of 327,680 bytes)")
    with pytest.raises(IndexError):
        log.line(6)


def test_an_unfinished_line_counts_and_grows(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"one\nstep")
    log = indexed(path)
    assert (log.lines, log.line(1)) == (2, "step")
    with path.open("ab") as file:
        file.write(b" 7\n")
    assert log.poll()
    assert (log.lines, log.line(1)) == (2, "step 7")
    assert not log.poll()


@pytest.mark.parametrize("how", ["truncate", "replace"])
def test_a_log_that_is_truncated_or_replaced_under_us_starts_anew(tmp_path: Path, how: str) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"old\n" * 1000)
    log = indexed(path)
    if how == "truncate":
        path.write_bytes(b"new\n")
    else:
        (tmp_path / "other").write_bytes(b"new\n" * 2000)
        (tmp_path / "other").replace(path)
    while log.poll():
        pass
    assert log.line(0) == "new"
    assert log.lines == (1 if how == "truncate" else 2000)


def test_a_log_may_come_later_and_go_away(tmp_path: Path) -> None:
    path = tmp_path / "log"
    log = LogFile(path)
    assert not log.poll() and log.lines == 0 and log.tail(5) == []
    path.write_bytes(b"here\n")
    assert log.poll() and log.line(0) == "here"
    path.unlink()
    log.poll()
    assert log.line(0) == "here"
