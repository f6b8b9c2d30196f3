"""Which progress bar is the training's: chosen by the text of the lines, by the loss written over it, else by length."""

from __future__ import annotations

from pathlib import Path

import pytest

from dstui.jobs.watch.follow import Follower
from tests.jobs.made import make_job


def bar(done: int, total: int, clock: str = "00:05", name: str = "", more: str = "") -> str:
    return f"\r{name}{100 * done // total:3}%|###   | {done}/{total} [{clock}<00:09,  1.00it/s{more}]"


def trainer(done: int, total: int, clock: str = "00:05") -> str:
    """Return the Trainer's line, written over its bar."""
    return bar(done, total, clock) + "\r" + " " * 40 + "\r{'loss': 2.5, 'learning_rate': 1e-05}\n" + bar(done, total, clock)


WORDS = "".join(f"step {n} loss 2.0\n" for n in range(560, 582))
LOGS = {
    "epochs beside steps in words": (WORDS + bar(17, 30) + "\nstep 581 loss 2.0\n", (581, None)),
    "an evaluation between steps in words": (WORDS + bar(7, 7) + "\n", (581, None)),
    "micro-batches beside steps in words": ("step 5 loss 2\n" + bar(20, 120) + "\nstep 6 loss 2\n" + bar(24, 120) + "\n", (6, None)),
    "the bar that agrees with the words": (bar(57, 90) + "\nstep 58 loss 2\n" + bar(60, 90) + "\n", (60, 90)),
    "a bar that agreed by chance": (bar(7, 7) + "\nstep 7 loss 2\nstep 8 loss 2\n", (8, None)),
    "a bar of each epoch beside words": (bar(99, 100) + "\nstep 99 loss 2\n" + bar(2, 100) + "\nstep 102 loss 2\n", (102, None)),
    "words that say how many": (bar(50_000, 50_000) + "\nstep 10/400 loss 2\n" + bar(3, 7) + "\n", (10, 400)),
    "data before the training": (bar(50_000, 50_000, "00:10") + "\n" + trainer(5, 581), (5, 581)),
    "data before a training without a loss yet": (bar(50_000, 50_000, "00:10") + "\n" + bar(9, 581, "00:30") + "\n", (9, 581)),
    "an evaluation within the training": (trainer(20, 100, "00:20") + bar(250, 500, "00:30") + "\n", (20, 100)),
    "an evaluation at the end": (trainer(100, 100, "10:00") + bar(3, 7, "00:03") + "\n", (100, 100)),
    "a loss on an evaluation's bar": (trainer(20, 100, "00:20") + bar(3, 7, "00:30", more=", loss=3.1") + "\n", (20, 100)),
    "a second, longer training": (trainer(10, 10, "00:09") + "\n" + trainer(3, 50, "00:03"), (10, 10)),
    "a second training that has run longer": (trainer(10, 10, "00:09") + "\n" + trainer(3, 50, "00:10"), (3, 50)),
    "bars that name their epoch": (bar(10, 10, name="Epoch 0: ") + "\n" + bar(1, 10, "00:01", name="Epoch 1: ") + "\n", (11, 20)),
    "a bar of other work": (bar(3, 9, name="Tokenizing: ") + "\n", (None, None)),
    "nothing to count up to": ("\r  0%|      | 0/0 [00:00<?, ?it/s]\n", (None, None)),
}


@pytest.mark.parametrize("what", LOGS)
def test_step_and_total_are_the_trainings(tmp_path: Path, what: str) -> None:
    log, (step, steps) = LOGS[what]
    follower = Follower(make_job(tmp_path / "job", logs={0: log}, state="running", ended=None))
    for _ in range(3):
        follower.poll()
    assert (follower.ranks[0].step, follower.ranks[0].steps) == (step, steps)
    assert follower.progress == ((step, steps) if steps else None)
    assert follower.remaining is None or follower.remaining >= 0
