"""Run the commands of many seeds and check how they end."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dstui.jobs.store.processes import find
from dstui.jobs.store.records import ProcessRecord
from tests.hostile.forked import UNCAUGHT, CommandResult, Forked
from tests.hostile.words import prepare

MEMORY = 1 << 30
SECONDS = 10.0
"""CPU seconds allowed; on a busy machine the wall time may be several times as long."""
PATIENCE = 120.0
RAW = re.compile(rb"[\x00-\x08\x0b-\x1f\x7f]|\xc2[\x80-\x9f]|\xe2\x80[\x8e\x8f\xa8-\xae]|\xe2\x81[\xa6-\xa9]|\xef\xbb\xbf")
"""Control characters except newline and tab, and bidirectional overrides, as UTF-8."""
IN_A_THREAD = (b"Exception in thread", b"Exception ignored in")
REAL = 100
"""Every REAL-th command runs in an interpreter of its own."""
READ_ONLY = ("check", "runs", "logs", "diagnose", "stacks", "attach")
"""Commands that must not write to their working folder."""


@dataclass
class Outcome:
    """The results of many commands."""

    ran: Counter[str] = field(default_factory=Counter)
    """Command and exit status -> count."""
    failures: list[str] = field(default_factory=list)
    most: dict[str, tuple[float, int]] = field(default_factory=lambda: {"CPU seconds": (0.0, 0), "MB": (0.0, 0)})
    """The largest resource use of a command, and its seed."""

    def __str__(self) -> str:
        used = ", ".join(f"{value:.1f} {name} (seed {seed})" for name, (value, seed) in self.most.items())
        return f"{sum(self.ran.values())} commands: {dict(sorted(self.ran.items()))}; at most {used}; {len(self.failures)} failures"


def run_many(seeds: Iterable[int], folder: Path, tell: Callable[[str], Any] = lambda _text: None) -> Outcome:
    """Run the command of each seed in a separate folder. `tell` is called with each failure and its seed."""
    outcome = Outcome()
    forked = Forked(memory=2 * MEMORY, cpu=int(2 * SECONDS), deadline=PATIENCE)
    with unrelated_process() as victim:
        known = find(victim.pid)
        assert known is not None
        for seed in seeds:
            place, canary = folder / f"{seed}", folder / f"canary-{seed}"
            place.mkdir()
            words, env = prepare(seed, place, canary, ProcessRecord.of(known).as_json())
            before = listing(place)
            ran = forked.run(words, place, env, own=seed % REAL == 0)
            wrong = [*result_violations(words, ran), *side_effects(words, canary, victim, before != listing(place))]
            note(outcome, seed, words, ran)
            if wrong:
                failure = f"\nseed {seed}: dstui {shlex.join(words)[:500]!a}\n  {'; '.join(wrong)}\n  status {ran.status}: {ran.output[-900:]!a}\n"
                outcome.failures.append(failure)
                tell(failure)
            shutil.rmtree(place)
            shutil.rmtree(folder / f"{seed}-state")
    return outcome


def result_violations(words: list[str], ran: CommandResult) -> Iterator[str]:
    """Yield what is wrong with a command's result."""
    if ran.status == UNCAUGHT or any(sign in ran.err for sign in IN_A_THREAD):
        yield "a traceback"
    elif ran.status not in (0, 1, 2):
        yield "a signal" if ran.status < 0 else "a status that means nothing"
    if found := RAW.search(ran.out + ran.err):
        yield f"a raw {found[0]!r}"
    if ran.cpu > SECONDS or ran.seconds > PATIENCE:
        yield f"{ran.cpu:.0f} s of CPU, {ran.seconds:.0f} s"
    if ran.memory > MEMORY:
        yield f"{ran.memory >> 20} MB"
    if (
        "--json" in words
        and ran.status in (0, 1)
        and ran.out
        and words[0] != "--headless"
        and "--help" not in words
        and not _is_json(ran.out)
    ):
        yield "no JSON"


def side_effects(words: list[str], canary: Path, victim: subprocess.Popen[bytes], wrote: bool) -> Iterator[str]:
    """Yield forbidden side effects of a command."""
    if canary.exists():
        yield "it started what it was to look at"
    if victim.poll() is not None:
        yield "it signalled a process that is not the job's"
    if wrote and words[:1] and words[0] in READ_ONLY:
        yield "it wrote into a folder that it was to look at"


def listing(folder: Path) -> list[tuple[str, int, int]]:
    """Return every path below a folder, with its size and modification time."""
    found = []
    for place, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = Path(place, name)
            facts = path.lstat()
            found.append((str(path), facts.st_size, facts.st_mtime_ns))
    return sorted(found)


def note(outcome: Outcome, seed: int, words: list[str], ran: CommandResult) -> None:
    """Count a command."""
    outcome.ran[
        f"{words[0] if words[:1] and words[0] in (*READ_ONLY, '--headless', 'render', 'machine', 'bundle', 'stop', 'doctor') else 'else'} {ran.status}"
    ] += 1
    for name, used in (("CPU seconds", ran.cpu), ("MB", ran.memory / (1 << 20))):
        outcome.most[name] = max(outcome.most[name], (used, seed))


def _is_json(raw: bytes) -> bool:
    try:
        json.loads(raw)
    except ValueError:
        return False
    return True


@contextmanager
def unrelated_process() -> Iterator[subprocess.Popen[bytes]]:
    """Start an unrelated process of this user, which must survive."""
    process = subprocess.Popen(["sleep", "100000"])
    try:
        yield process
    finally:
        process.kill()
        process.wait()
