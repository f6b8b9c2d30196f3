"""Cost of the checks at every keystroke: all rules on a typical Plan, and reading a file. `python tests/bench/bench_check.py`."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from dstui.adopt.dsconfig import read_dsconfig
from dstui.check import check_plan
from dstui.check.rules.all_rules import RULES
from dstui.machine.snapshot import Gpu, Machine
from dstui.plan import load
from dstui.render.jsontext import json_lines
from dstui.render.target import Target

PLAN = Path(__file__).parent.parent.parent / "configs" / "quickstart.yaml"
LIMIT = 0.002


def best(work: Callable[[], object], rounds: int = 200) -> float:
    """Return the shortest of many rounds in seconds, the time without interference."""
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def test_all_rules_on_a_typical_plan_take_less_than_two_milliseconds() -> None:
    plan = load(PLAN.read_text())
    machine = Machine(
        source="a test", gpus=tuple(Gpu(index=i, name="H100", compute_capability="9.0", memory_total=80 << 30) for i in range(8))
    )
    alone, with_machine = best(lambda: check_plan(Target(plan))), best(lambda: check_plan(Target(plan, machine)))
    print(f"{len(RULES)} rules: {alone * 1000:.2f} ms, with a machine {with_machine * 1000:.2f} ms")
    assert with_machine < LIMIT


def test_reading_and_checking_a_file_takes_less_than_two_milliseconds() -> None:
    text = "\n".join(line.text for line in json_lines(dict(load(PLAN.read_text()).deepspeed)))
    took = best(lambda: read_dsconfig(text))
    print(f"a ds_config.json of {len(text)} bytes: {took * 1000:.2f} ms")
    assert took < LIMIT


if __name__ == "__main__":
    test_all_rules_on_a_typical_plan_take_less_than_two_milliseconds()
    test_reading_and_checking_a_file_takes_less_than_two_milliseconds()
