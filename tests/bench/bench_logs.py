"""Logs of gigabytes, opened and searched as on the Run screen, alternating with grep and tail in one run.

    python -m pytest tests/bench/bench_logs.py -s

The claims: a search through 1 GB takes at most twice grep's time, including the first one, which counts the lines (not yet if a million
lines match, nor for the first search of a text that does not occur); a log of 10 GB is open at its end within half a second.
"""

from __future__ import annotations

import os
import random
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dstui.jobs.store.folder import JobFolder
from dstui.logs import grep
from dstui.logs.log_filter import Filter
from dstui.logs.log_rows import LogRows
from dstui.logs.log_search import PROBLEM, Search
from tests.flood import end, running_job

SIZE = int(os.environ.get("DSTUI_LOG_BYTES", str(10**9)))
ROUNDS = 5
WORDS = ("gradient", "step", "forward", "backward", "optimizer", "allreduce", "bucket", "micro", "batch", "epoch", "samples", "memory")
CASES = {
    "nothing": "ZQX",
    "a name": "Needle",
    "several words": "CUDA out of memory",
    "a number": "STEP=19999",
    "any case": "needle",
    "words in any case": "cuda out of memory",
    "errors": PROBLEM,
    "a tenth of all lines": "LOSS: 0.1",
}
*EASY, HARD = CASES


def not_yet(why: str) -> pytest.MarkDecorator:
    """Mark a case that misses the claim by up to three quarters; it is still measured and printed."""
    return pytest.mark.xfail(reason=why, strict=False)


@pytest.fixture(scope="module")
def big(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JobFolder]:
    """Write a job of one rank with a log of a gigabyte, in which some lines match."""
    folder = running_job(tmp_path_factory.mktemp("big") / "job", 1)
    dice = random.Random(1)
    lines = [
        f"2026-01-01 12:{n // 60 % 60:02}:{n % 60:02},{n % 1000:03} [INFO] STEP={n} LOSS: {dice.random():.4f} {' '.join(dice.choices(WORDS, k=n % 9))}"
        for n in range(20_000)
    ]
    text = ("\n".join(lines) + "\n").encode()
    with folder.log(0).open("wb") as log:
        for number in range(SIZE // len(text) + 1):
            log.write(text)
            if number % 50 == 49:
                log.write(b"RuntimeError: CUDA out of memory. A Needle in a haystack\n")
    end(folder)
    yield folder
    folder.log(0).unlink()


@pytest.fixture(scope="module", autouse=True)
def numpy() -> None:
    """Import numpy first, as an earlier search in the session would."""
    grep.load_soon().join()


def opened(folder: JobFolder) -> LogRows:
    view = Filter(rank=0).open(folder, {})
    view.poll()
    return view


def seconds(work: Callable[[], object]) -> tuple[float, object]:
    began = time.perf_counter()
    found = work()
    return time.perf_counter() - began, found


def search(view: LogRows, text: str) -> int:
    found = Search(text, view, regex=text == PROBLEM)
    while not found.complete:
        found.advance()
    return found.count


def test_lines_of_a_log_are_counted_once(big: JobFolder, capsys: pytest.CaptureFixture[str]) -> None:
    def count() -> int:
        view = counted(big)
        view.timeline.close()
        return view.lines

    ours, theirs, ratio = in_turns(count, ["-c", ""], big)
    with capsys.disabled():
        print(f"\ncounting: {ours:.2f} s, {ratio:.2f}x of grep -c's {theirs:.2f} s")


@pytest.mark.parametrize(
    "name", [pytest.param("nothing", marks=not_yet("grep only reads; the lines are counted too")), "a name", "any case"]
)
def test_first_search_takes_at_most_twice_greps_time(name: str, big: JobFolder, capsys: pytest.CaptureFixture[str]) -> None:
    text = CASES[name]

    def first() -> int:
        view = opened(big)
        found = search(view, text)
        view.timeline.close()
        return found

    ours, theirs, ratio = in_turns(first, ["-c", "-Fi" if text == text.lower() else "-F", text], big)
    with capsys.disabled():
        print(f"\nfirst search, {name}: {ours:.2f} s, {ratio:.2f}x of grep's {theirs:.2f} s")
    assert ratio <= 2.0


@pytest.mark.parametrize("name", [*EASY, pytest.param(HARD, marks=not_yet("a million matches are numbered one by one"))])
def test_search_takes_at_most_twice_greps_time(name: str, big: JobFolder, capsys: pytest.CaptureFixture[str]) -> None:
    text = CASES[name]
    how = "-Ei" if text == PROBLEM else "-Fi" if text == text.lower() else "-F"
    view = counted(big)
    ours, theirs, ratio = in_turns(lambda: search(view, text), ["-c", how, text], big)
    view.timeline.close()
    with capsys.disabled():
        print(f"\n{name}: {ours:.2f} s, {ratio:.2f}x of grep {how}'s {theirs:.2f} s")
    assert ratio <= 2.0


def counted(folder: JobFolder) -> LogRows:
    view = opened(folder)
    while view.reach():
        pass
    return view


def in_turns(ours: Callable[[], int], options: list[str], folder: JobFolder) -> tuple[float, float, float]:
    """Return the best seconds of dstui and of grep, and the median ratio of all rounds."""
    times: list[tuple[float, float]] = []
    for _ in range(ROUNDS):
        theirs, count = seconds(
            lambda: subprocess.run(["grep", *options, folder.log(0)], capture_output=True, text=True, check=False).stdout
        )
        mine, found = seconds(ours)
        assert found == int(str(count))
        times.append((mine, theirs))
    return min(t[0] for t in times), min(t[1] for t in times), statistics.median(a / b for a, b in times)


def test_ten_gigabytes_open_at_their_end_within_half_a_second(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = running_job(tmp_path / "job", 1)
    with folder.log(0).open("wb") as log:
        for place in range(0, 10**10, 10**6):
            log.seek(place)
            log.write(b"\na line in the middle of nothing\n")
        log.write(b"".join(b"line %d of the end\n" % number for number in range(100_000)))
    end(folder)

    def last() -> list[str]:
        view = opened(folder)
        lines = [view.line(number).text for number in range(view.end - 50, view.end)]
        view.timeline.close()
        return lines

    ours, theirs = [], []
    for _ in range(ROUNDS):
        took, tail = seconds(lambda: subprocess.run(["tail", "-n50", folder.log(0)], capture_output=True, text=True, check=True).stdout)
        theirs.append(took)
        took, lines = seconds(last)
        ours.append(took)
        assert lines == str(tail).splitlines()
    with capsys.disabled():
        print(f"\n10 GB at the end: {1000 * min(ours):.0f} ms, {statistics.median(ours) / statistics.median(theirs):.1f}x of tail -n50's")
    assert statistics.median(ours) < 0.5
