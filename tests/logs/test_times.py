"""The arrivals index records every byte of every log once, despite killed supervisors, full disks and damaged indexes."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dstui.jobs.store.folder import JobFolder
from dstui.logs.arrival_index import ATTEMPT, HEADER, LAUNCHER, RECORD, Arrivals, ArrivalWriter


@pytest.fixture
def folder(tmp_path: Path) -> JobFolder:
    made = JobFolder(tmp_path / "job")
    made.path.mkdir()
    made.prepare(1)
    return made


def grow(path: Path, size: int) -> None:
    with path.open("ab") as file:
        file.write(b"x" * size)


def records(folder: JobFolder) -> list[tuple[float, int, int, int]]:
    return [tuple(record) for record in Arrivals(folder.arrivals_file).forth()]  # type: ignore[misc]


def test_only_growth_is_recorded(folder: JobFolder) -> None:
    notes = ArrivalWriter(folder)
    grow(folder.log(0), 10)
    grow(folder.log(11), 7)
    notes.update(100.0, 1)
    grow(folder.log(11), 5)
    grow(folder.launcher_log, 3)
    notes.update(101.0, 1)
    notes.update(102.0, 1)
    assert sorted(records(folder)) == sorted(
        [(100.0, ATTEMPT, 10, 10), (100.0, ATTEMPT + 11, 7, 7), (101.0, ATTEMPT + 11, 5, 12), (101.0, LAUNCHER, 3, 3)]
    )


@given(
    looks=st.lists(st.tuples(st.dictionaries(st.integers(0, 3), st.integers(1, 50), max_size=3), st.booleans(), st.binary(max_size=23))),
)
def test_new_supervisor_continues_after_a_killed_one(
    tmp_path_factory: pytest.TempPathFactory, looks: list[tuple[dict[int, int], bool, bytes]]
) -> None:
    folder = JobFolder(tmp_path_factory.mktemp("job"))
    folder.prepare(1)
    notes, sizes = ArrivalWriter(folder), dict[int, int]()
    for time, (grown, killed, torn) in enumerate(looks):
        for rank, size in grown.items():
            grow(folder.log(rank), size)
            sizes[rank] = sizes.get(rank, 0) + size
        notes.update(float(time), 1)
        if killed:
            with folder.arrivals_file.open("ab") as file:
                file.write(torn)  # a partially written record
            notes = ArrivalWriter(folder)
    notes.update(1e9, 1)
    covered = dict.fromkeys(sizes, 0)
    for _, log, more, size in records(folder):
        assert covered[log - ATTEMPT] + more == size
        covered[log - ATTEMPT] = size
    assert covered == sizes
    assert list(Arrivals(folder.arrivals_file).back()) == list(Arrivals(folder.arrivals_file).forth())[::-1]


def test_attempt_has_its_own_logs(folder: JobFolder) -> None:
    notes = ArrivalWriter(folder)
    grow(folder.log(0), 10)
    notes.update(1.0, 1)
    folder.prepare(2)
    grow(folder.log(0, 2), 4)
    notes.update(2.0, 2)
    assert records(folder) == [(1.0, ATTEMPT, 10, 10), (2.0, 2 * ATTEMPT, 4, 4)]


def test_index_of_another_version_is_neither_read_nor_written(folder: JobFolder) -> None:
    foreign = b"dstui arrivals 9\n".ljust(len(HEADER)) + RECORD.pack(1.0, ATTEMPT, 5, 5)
    folder.arrivals_file.write_bytes(foreign)
    grow(folder.log(0), 10)
    ArrivalWriter(folder).update(1.0, 1)
    assert folder.arrivals_file.read_bytes() == foreign
    assert records(folder) == []


def test_full_disk_loses_only_the_time_of_a_record(folder: JobFolder) -> None:
    grow(folder.log(0), 10)
    folder.arrivals_file.symlink_to("/dev/full")
    notes = ArrivalWriter(folder)
    notes.update(1.0, 1)
    folder.arrivals_file.unlink()
    notes.update(2.0, 1)
    assert records(folder) == [(2.0, ATTEMPT, 10, 10)]
