"""No text makes a diagnosis slow, neither texts built from its own patterns nor deeply nested brackets."""

from __future__ import annotations

import os
import random
import re
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import pytest

from dstui.base.text import LINE_CAP
from dstui.diagnosis import diagnose
from dstui.diagnosis.reading import log_reader
from dstui.diagnosis.recognition.scan import Scanner
from dstui.diagnosis.recognition.shapes import FACTS, Shapes
from dstui.diagnosis.signature import Sign, Signature
from dstui.diagnosis.signatures import ALL
from dstui.logs.decode import LONGEST
from tests.diagnosis.crash_texts import traceback

LENGTH = LINE_CAP
"""Characters of a line that are examined."""
MOST = 40
"""Allowed cost as a multiple of an ordinary log's."""
QUICK = 0.001
"""Seconds too short to measure."""
FILLERS = (" ", "a", "A", "1", "a.", "a/", ": ", "(", "[", "'", '{"a":', "-", "|", "Error", "1/", "] ")
ALL_LINES = os.environ.get("DSTUI_LINES") == "all"
"""Combine every beginning with every filler: sixteen times as many lines."""
LITERAL = re.compile(r"(?:\\[^\w\s]|[\w :,'`=/-])+")
"""Parts of a regular expression that match themselves."""
ORDINARY = [
    "[rank1]: Traceback (most recent call last):",
    '[rank1]:   File "/opt/env/lib/python3.11/site-packages/torch/nn/modules/module.py", line 1739, in _wrapped_call_impl',
    "[rank1]: RuntimeError: CUDA error: unknown error, loss: inf, at step 17 of 2000 (epoch 3), while it was saved to /data/out",
]


def literals(sign: Sign) -> Iterator[str]:
    """Yield beginnings of a sign's line: its text, and the literal parts of its regular expression joined one after another."""
    yield sign.text
    if sign.regex is not None:
        before = ""
        for part in LITERAL.findall(sign.regex.pattern):
            before += re.sub(r"\\(.)", r"\1", part) + "a"
            yield before
            yield f"{before} {sign.text}"


def some_of(fillers: Sequence[str], number: int) -> Sequence[str]:
    """Return a sixteenth of them, different for each number; or all of them."""
    return fillers if ALL_LINES else fillers[number % 16 :: 16]


def hostile(sign: Sign) -> Iterator[tuple[str, str]]:
    """Yield beginnings of lines and what to repeat after them: each beginning with some of the fillers, or with all."""
    for number, beginning in enumerate(dict.fromkeys(literals(sign))):
        yield "", beginning
        yield from ((beginning, filler) for filler in some_of(FILLERS, number))


def line_of(length: int, beginning: str, repeated: str) -> str:
    return (beginning + repeated * (length // len(repeated) + 1))[:length] + "\0"


def scanned(line: str) -> None:
    """Run everything that a new line goes through."""
    scanner = Scanner()
    scanner.begin("log", None)
    if (shape := scanner.shapes.match(line.encode())) is not None:
        scanner.feed(1, line, shape)


def matched(line: bytes) -> None:
    Shapes().match(line)


def seconds(work: Callable[[], object], tries: int = 1) -> float:
    """Return CPU seconds."""
    found = []
    for _ in range(tries):
        began = time.process_time()
        work()
        found.append(time.process_time() - began)
    return min(found)


@pytest.fixture(scope="session")
def typical_seconds() -> float:
    """Return the seconds for as many characters of an ordinary traceback as a long line has."""
    return sum(seconds(partial(scanned, line), 50) for line in ORDINARY) * LENGTH / sum(map(len, ORDINARY))


def check(work: Callable[[], object], typical_seconds: float, what: object) -> None:
    """Assert that the work costs no more than a few ordinary lines; measures again before failing."""
    if seconds(work) > MOST * typical_seconds:
        assert seconds(work, 5) < MOST * typical_seconds, what


@pytest.mark.parametrize("signature", [one for one in ALL if any(sign.regex for sign in one.all_signs())], ids=lambda one: one.id)
def test_lines_that_signatures_look_for_are_matched_quickly(signature: Signature, typical_seconds: float) -> None:
    for sign in signature.all_signs():
        for line in (line_of(LENGTH, *parts) for parts in hostile(sign)) if sign.regex else ():
            check(partial(sign.matches, line), typical_seconds, (sign, line[:300]))


@pytest.mark.parametrize(("number", "text"), list(enumerate(FACTS)), ids=FACTS)
def test_lines_that_other_patterns_look_for_are_matched_quickly(number: int, text: str, typical_seconds: float) -> None:
    for repeated in (text, text + "a", text + ": ", *some_of(FILLERS, number)):
        for beginning in ("", f"[rank1]: {text}"):
            line = line_of(LENGTH, beginning, repeated)
            check(partial(scanned, line), typical_seconds, line[:300])


def test_line_of_twice_the_length_takes_about_twice_as_long() -> None:
    for filler in FILLERS:
        work = [partial(matched, line_of(length, "", filler).encode()) for length in (LONGEST // 2, LONGEST)]
        half, whole = (seconds(one, 5) for one in work)
        assert whole < 3 * half + QUICK, filler


def test_error_amid_non_recurring_lines_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such lines cost 50 times as much as those of a loop, so after many of them only lines near a failure are examined."""
    rng = random.Random(5)
    samples = ["sample: " + "".join(rng.choices("abcdefghij ", k=100)) for _ in range(6_000)]
    error = traceback(1, "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 160.00 MiB.")
    waits = (
        "[rank0]:[E1127 10:11:12.345 ProcessGroupNCCL.cpp:616] [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=8)"
    )
    answers = []
    for most in (500, 1_000_000):
        monkeypatch.setattr(log_reader, "MAX_NEW", most)
        for rank, lines in ((0, [*samples[:1_500], waits]), (1, [*samples[1_500:4_500], *error, *samples[4_500:]])):
            (tmp_path / f"rank_{rank}.log").write_text("\n".join(lines) + "\n")
        found = diagnose([tmp_path])
        answers.append((found.cause, found.first_failing_rank, found.confidence, [one.line for one in found.evidence]))
    assert answers[0] == answers[1]
    assert answers[0][:2] == ("OOM-GPU", 1)
