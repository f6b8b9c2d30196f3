"""The resource use of a job's ranks: kept by its supervisor in a file of limited size, and read back whoever wrote it."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path

import pytest

from dstui.jobs.watch import usage_history
from dstui.jobs.watch.usage import Usage
from dstui.jobs.watch.usage_history import SHOWN, USAGE_HISTORY, History, Sample, UsageHistory, read_history, read_later

BUSY = Usage("GPU", 97, 1 << 30, 612.5, 4, capacity=80 << 30, temperature=67, throttle=("power cap",))


def test_kept_values_are_read_and_unknown_ranks_are_absent(tmp_path: Path) -> None:
    kept = UsageHistory(tmp_path)
    kept.add(1000.0, {0: BUSY, 1: Usage("GPU", why="NVML is not there")}, "GPU unknown: NVML is not there")
    found = read_history(tmp_path)
    assert found.samples == {0: [Sample(1000.0, "GPU", 97, 1 << 30, 80 << 30, 67, 612.5, 4, ("power cap",))]}
    assert found.note == "GPU unknown: NVML is not there"


def test_file_stays_small_and_keeps_the_newest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(usage_history, "LARGEST", 20_000)
    kept = UsageHistory(tmp_path)
    for n in range(1000):
        kept.add(float(n), {0: BUSY}, "")
    assert (tmp_path / USAGE_HISTORY).stat().st_size <= 20_200
    times = [sample.t for sample in read_history(tmp_path).samples[0]]
    assert times[-1] == 999.0 and times == [*map(float, range(int(times[0]), 1000))]


def test_only_the_last_minutes_are_read(tmp_path: Path) -> None:
    kept = UsageHistory(tmp_path)
    for t in (0.0, 500.0, 500.0 + SHOWN):
        kept.add(t, {0: BUSY}, "")
    assert [sample.t for sample in read_history(tmp_path).samples[0]] == [500.0, 500.0 + SHOWN]


def test_later_samples_come_one_look_at_a_time_and_none_twice(tmp_path: Path) -> None:
    kept = UsageHistory(tmp_path)
    for t in (10.0, 20.0, 30.0):
        kept.add(t, {0: BUSY, 1: BUSY}, "a note")
    for after, expected in ((0.0, [10.0, 20.0, 30.0]), (20.0, [30.0]), (30.0, [])):
        looks = [*read_later(tmp_path, after)]
        assert [{rank: [sample.t for sample in samples] for rank, samples in look.samples.items()} for look in looks] == [
            {0: [t], 1: [t]} for t in expected
        ]


def test_later_samples_take_little_more_memory_than_their_file(tmp_path: Path) -> None:
    kept = UsageHistory(tmp_path)
    for t in range(120):
        kept.add(float(t), dict.fromkeys(range(64), BUSY), "")
    size = (tmp_path / USAGE_HISTORY).stat().st_size
    tracemalloc.start()
    try:
        count = sum(len(look.samples) for look in read_later(tmp_path, 0.0))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert count == 64 * 119
    assert peak < 4 * size


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"{",
        b"[1]",
        b'{"t": "now", "ranks": {}}',
        b'{"t": 1, "ranks": {"0": 1, "-1": [], "x": ["GPU"]}}',
        b'{"t": NaN, "ranks": {}}',
        b'{"t": 1, "ranks": {"0": ["\\u001b[2J", 1, 1, 1, 1, 1, 1, []]}}',
        b"\0" * 5000,
        b"[" * 5000,
    ],
)
def test_invalid_line_is_skipped(tmp_path: Path, line: bytes) -> None:
    (tmp_path / USAGE_HISTORY).write_bytes(line + b"\n")
    assert not read_history(tmp_path).samples
    UsageHistory(tmp_path).add(2.0, {3: BUSY}, "")
    assert list(read_history(tmp_path).samples) == [3]


def test_values_are_bounded(tmp_path: Path) -> None:
    packed = ["GPU", 1e300, -1, "much", True, None, 1 << 70, ["\x1b[2Jhot" * 20, 7] * 50]
    (tmp_path / USAGE_HISTORY).write_text(json.dumps({"t": 1, "ranks": {"0": packed}, "note": "\x1b]0;x\x07" * 500}) + "\n")
    found = read_history(tmp_path)
    sample = found.samples[0][0]
    assert sample[2:8] == (None,) * 6
    assert len(sample.throttle) <= 8 and all(len(word) <= 40 and "\x1b" not in word for word in sample.throttle)
    assert len(found.note) <= 200 and "\x1b" not in found.note


def test_folder_without_a_history_has_none(tmp_path: Path) -> None:
    assert read_history(tmp_path) == History()
