"""Cost of the forecast at every keystroke, and of the recommendation's search. `python tests/bench/bench_forecast.py`.

The claims: a forecast under 1 ms, the table of the stage step under 3 ms, a search of at least 10,000 candidates under 100 ms, the closest
plan that fits under 8 ms; numpy is imported by the first search, torch never.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "forecast"))
from targets import EIGHT_H100, ONE_4090, TWO_NODES, facts, plan

from dstui.forecast.choices import table
from dstui.forecast.findings import findings_of
from dstui.forecast.forecast import forecast
from dstui.forecast.recommend import recommend


def best(work: Callable[[], object], rounds: int) -> float:
    """Return the shortest of many rounds in milliseconds of CPU time, which a busy machine does not change."""
    times = []
    for _ in range(rounds):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return min(times) * 1e3


def main() -> int:
    """Measure; return 1 if a claim does not hold."""
    known, given = facts(), plan(stage=3, micro=4)
    large, too_big = plan(stage=3, micro=24, steps=105, nodes=2), plan(stage=0, micro=8, sequence=4096)
    huge = facts("meta-llama/Llama-2-70b-hf")
    count = recommend(large, known, TWO_NODES).candidates
    claims = {
        "a forecast": (best(lambda: forecast(given, known, EIGHT_H100), 300), 1.0),
        "the table of stages and offloads": (best(lambda: table(given, known, EIGHT_H100), 100), 3.0),
        f"a search of {count:,} candidates": (best(lambda: recommend(large, known, TWO_NODES), 10), 100.0),
        "what does not fit, with the nearest plan that does": (best(lambda: findings_of(too_big, known, EIGHT_H100), 50), 8.0),
        "what does not fit, and nothing does": (best(lambda: findings_of(too_big, huge, ONE_4090), 20), 8.0),
    }
    for name, (took, limit) in claims.items():
        print(f"{name:<52} {took:7.2f} ms  (claim: under {limit:g})")
    heavy = {"torch", "transformers", "deepspeed"} & set(sys.modules)
    print(f"imported: {', '.join(sorted(heavy)) or 'none of torch, transformers, deepspeed'}")
    return 0 if count >= 10_000 and not heavy and all(took < limit for took, limit in claims.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
