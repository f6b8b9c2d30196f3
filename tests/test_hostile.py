"""Commands on generated, hostile input (a sample of tests/long/test_commands.py), and proof that the checks detect violations."""

from __future__ import annotations

import signal
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from tests.hostile.forked import UNCAUGHT, CommandResult, Forked
from tests.hostile.runner import MEMORY, SECONDS, result_violations, run_many, side_effects, unrelated_process
from tests.hostile.words import prepare

WELL = CommandResult(status=0, out=b"a\tb\n", err="✔ é\n".encode(), seconds=0.1, cpu=0.1, memory=30 << 20)


def test_hostile_input_neither_crashes_a_command_nor_makes_it_act(tmp_path: Path) -> None:
    outcome = run_many(range(1, 121), tmp_path)
    assert not outcome.failures, "".join(outcome.failures)


def test_same_seed_gives_the_same_input(tmp_path: Path) -> None:
    def generated(seed: int) -> tuple[list[str], list[tuple[str, bytes]]]:
        place = tmp_path / "place"
        place.mkdir()
        words, _ = prepare(seed, place, tmp_path / "canary", {"pid": 1, "host": "h", "ticks": 1})
        found = sorted((str(path), path.read_bytes()) for path in place.rglob("*") if path.is_file() and not path.is_symlink())
        subprocess.run(["rm", "-r", place, f"{place}-state"], check=True)
        return words, found

    assert [generated(seed) for seed in range(20)] == [generated(seed) for seed in range(20)]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"status": UNCAUGHT}, "a traceback"),
        ({"err": b"Exception in thread Thread-1\n"}, "a traceback"),
        ({"status": -11}, "a signal"),
        ({"status": 3}, "a status that means nothing"),
        ({"out": b"\x1b[31m"}, "a raw"),
        ({"err": "\u202e".encode()}, "a raw"),
        ({"out": b"\xc2\x9b"}, "a raw"),
        ({"cpu": SECONDS + 1}, "of CPU"),
        ({"memory": MEMORY + 1}, "MB"),
    ],
)
def test_violations_by_a_command_are_detected(wrong: dict[str, object], said: str) -> None:
    assert not list(result_violations(["check"], WELL))
    (found,) = result_violations(["check"], replace(WELL, **wrong))
    assert said in found


def test_started_or_signalled_process_is_detected(tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    with unrelated_process() as victim:
        assert not list(side_effects(["check"], canary, victim, False))
        assert list(side_effects(["check"], canary, victim, True)) == ["it wrote into a folder that it was to look at"]
        canary.touch()
        victim.terminate()
        victim.wait()
        assert len(list(side_effects(["check"], canary, victim, False))) == 2


def test_command_past_its_deadline_is_killed_and_detected(tmp_path: Path) -> None:
    ended = Forked(deadline=0.01).run(["machine"], tmp_path)  # it waits for its probes
    assert ended.status == -signal.SIGALRM
    assert list(result_violations(["machine"], ended)) == ["a signal"]
