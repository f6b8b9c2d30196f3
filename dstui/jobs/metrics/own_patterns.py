"""Search lines with the Plan's own patterns (`run.metrics`), within a limit of CPU time."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING

from dstui.base.text import sanitise

if TYPE_CHECKING:
    from dstui.plan.patterns import Expression

ALLOWED, PER_LINE = 0.2, 0.0005
"""Seconds of CPU time for the Plan's patterns: initially, and per line."""
LONGEST_LINE = 1000
"""Characters of a line that they search: the time grows with them."""
MAX_PATTERNS = 100
"""Patterns that are used, as many as a Plan may have."""


class OwnPatterns:
    """The Plan's own patterns (`run.metrics`). They come from a job folder, which is not trusted."""

    def __init__(self, patterns: Mapping[str, str]) -> None:
        self.reported: list[str] = []
        """Messages: invalid patterns, and those that were too slow."""
        self._patterns: dict[str, Expression] = {}
        self._spent: dict[str, float] = {}
        """Seconds that each pattern took."""
        self._allowed = ALLOWED
        if patterns:
            self._compile(dict(islice(patterns.items(), MAX_PATTERNS)))

    def _compile(self, patterns: Mapping[str, str]) -> None:
        from dstui.plan.patterns import compile_pattern, metric_problem

        for name, text in patterns.items():
            if problem := metric_problem(name, text):
                self.reported.append(sanitise(f"run.metrics.{name} is not used: {problem}"))
            else:
                self._patterns[name] = compile_pattern(text, in_bytes=True)
        self._spent = dict.fromkeys(self._patterns, 0.0)

    def __bool__(self) -> bool:
        return bool(self._patterns)

    @property
    def names(self) -> Collection[str]:
        """The names of the metrics."""
        return self._patterns.keys()

    def scan(self, line: str) -> dict[str, float]:
        """Return what these patterns find in a line. A match that is not a number is ignored."""
        found: dict[str, float] = {}
        if not self._patterns:
            return found
        text, then = line[:LONGEST_LINE].encode("utf-8", "replace"), time.thread_time()
        for name, pattern in self._patterns.items():
            match = pattern.search(text)
            now = time.thread_time()
            self._spent[name] += now - then
            then = now
            with suppress(ValueError, AttributeError):  # not a number, or a group that did not take part
                if match:
                    found[name] = float(match[1].decode().replace(",", ""))
        self._allowed += PER_LINE
        if sum(self._spent.values()) > self._allowed:
            self._give_up_the_slowest()
        return found

    def _give_up_the_slowest(self) -> None:
        """Drop the patterns that took more than the mean."""
        mean = sum(self._spent.values()) / len(self._spent)
        for name in [name for name, spent in self._spent.items() if spent >= mean]:
            self.reported.append(f"run.metrics.{name} took {self._spent[name]:.1f} s: it is no longer used")
            del self._patterns[name]
        self._spent, self._allowed = dict.fromkeys(self._patterns, 0.0), ALLOWED
