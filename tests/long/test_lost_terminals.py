"""Hundreds of sessions in every screen and dialog lose their terminals: all end within five seconds, and no edit is lost.

DSTUI_LOST=500 python -m pytest -s tests/long/test_lost_terminals.py
"""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

from tests.lost_terminals import PLACES, WAYS, lose

COUNT = int(os.environ.get("DSTUI_LOST", "60"))
FIRST = int(os.environ.get("DSTUI_LOST_FIRST", "0"))
"""Index of the first session, to run the series in parts."""
AT_ONCE = 6
LIMIT = 5.0
"""Seconds; the session's own deadline is three."""


def test_no_session_outlives_its_terminal(tmp_path: Path) -> None:
    places, ways = list(PLACES), list(WAYS)
    seconds, left, unsaved = [], {}, []
    for first in range(FIRST, FIRST + COUNT, AT_ONCE):
        numbers = range(first, min(first + AT_ONCE, FIRST + COUNT))
        names = {n: f"{n}: {places[n % len(places)]}, {ways[n % len(ways)]}" for n in numbers}
        batch = [(names[n], partial(WAYS[ways[n % len(ways)]], tmp_path / str(n), PLACES[places[n % len(places)]])) for n in numbers]
        lost = lose(batch, LIMIT, busy=os.cpu_count() or 1)
        seconds += lost.seconds.values()
        left |= lost.remaining
        unsaved += lost.unsaved
        print(f"{numbers.stop - FIRST} sessions, {len(left)} left, slowest {max(seconds, default=0):.2f} s", flush=True)
    print(f"{COUNT} sessions lost their terminals; left after {LIMIT:.0f} s: {left or 'none'}; edits lost: {unsaved or 'none'}")
    print(f"median {sorted(seconds)[len(seconds) // 2]:.2f} s, slowest {max(seconds):.2f} s")
    assert not left and not unsaved
