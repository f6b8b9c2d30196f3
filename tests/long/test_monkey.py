"""Monkey test of the real TUI with a running job: it ends only on request, and undo restores the Plan's bytes.

DSTUI_MONKEY=100000 python -m pytest -n0 -s tests/long/test_monkey.py

Every eighth seed plays in the tour. The folder has a running, a finished and a failed run, a checkpoint, and a script without DeepSpeed.
"""

from __future__ import annotations

import os
from pathlib import Path

from tests.adopt.plain_loops import FUNCTIONS
from tests.checkpoints.conftest import copy_checkpoint
from tests.monkey_session import SCREENS, MonkeySession

COUNT = int(os.environ.get("DSTUI_MONKEY", "5000"))
FIRST = int(os.environ.get("DSTUI_SEED", "0"))
EACH = 2000
"""Inputs per session."""
TOUR = 8
"""One of so many seeds plays in the tour."""
ENDED = """\
version: 1
name: {name}
job: {{script: {name}.py}}
cluster: {{hosts: {{localhost: 2}}, env: {{DS_ACCELERATOR: cpu}}}}
deepspeed: {{train_micro_batch_size_per_gpu: {batch}}}
"""
FINISHED = "for step in range(1, 200):\n    print(f'step {step}/200 loss {3 / step:.4f} lr 1e-4')\n"
FAILED = FINISHED + "raise RuntimeError('CUDA out of memory. Tried to allocate 2.00 GiB')\n"


def furnish(monkey: MonkeySession) -> None:
    """Put what the screens show into the folder."""
    copy_checkpoint(2, monkey.folder / "checkpoints")
    (monkey.folder / "train.py").write_text(FUNCTIONS)
    for batch, (name, script) in enumerate({"finished": FINISHED, "failed": FAILED}.items(), 1):
        (monkey.folder / f"{name}.py").write_text(script)
        (monkey.folder / f"{name}.yaml").write_text(ENDED.format(name=name, batch=batch))
        monkey.command("--headless", f"{name}.yaml")


def test_monkey_ends_no_session_unasked(tmp_path: Path) -> None:
    monkey = MonkeySession(tmp_path / "here")
    furnish(monkey)
    try:
        for seed in range(FIRST, FIRST + max(COUNT // EACH, 1)):
            in_tour = seed % TOUR == TOUR - 1
            monkey.words, monkey.first = (("tour", "--again"), ("Tour 1",)) if in_tour else (("plan.yaml",), ("1 · Machine", "q quit"))
            played = monkey.play(seed, min(COUNT, EACH))
            print(f"seed {seed}: {played.inputs} inputs, left {played.left} times, {len(played.problems)} problems", flush=True)
    finally:
        monkey.close()
    print({name: played.shown[name] for name in SCREENS})
    assert not monkey.played.problems, "\n\n".join(monkey.played.problems)
