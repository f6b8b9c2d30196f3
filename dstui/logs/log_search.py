"""Search a log in slices, from the newest line back, so that the screen stays responsive with gigabytes of log."""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left, bisect_right
from time import monotonic

from dstui.logs.decode import decode_lines, has_long_line, is_plain, is_unadorned, strip_colours
from dstui.logs.grep import compile_search, matching_lines
from dstui.logs.line_query import has_no_capitals
from dstui.logs.log_rows import LogRows
from dstui.plan.patterns import Expression, compile_pattern

PROBLEM = (
    r"\b\w*(error|exception|traceback|fatal|failed|failure|abort|aborted|killed|out of memory|segfault|timed out|timeout|time out|nan"
    r"|terminate called)\b"
)
"""Expression for lines that report an error. Plain words as alternatives make the search ten times as fast."""
WARNING = r"\b\w*(warning|warnings|warn)\b|\[w[\d\]]"
"""Expression for lines that report a warning. Its last alternative is the [W] of glog and torch."""


def ignores_case(pattern: str, *, regex: bool, own: bool = False) -> bool:
    """Return whether case is ignored: in a text or expression without capitals, and in an expression of dstui's own."""
    return own or (has_no_capitals(pattern) if regex else pattern == pattern.lower())


def expression_of(pattern: str, *, regex: bool, own: bool) -> Expression:
    """Compile a search. `own`: a regular expression of dstui's own. Raises ValueError if a user's expression is invalid."""
    if regex and not own:
        return compile_pattern(pattern, ignore_case=ignores_case(pattern, regex=True))
    return re.compile(pattern if regex else re.escape(pattern), re.IGNORECASE if ignores_case(pattern, regex=regex, own=own) else 0)


class Search:
    """The numbers of the matching rows of all visible ranks."""

    def __init__(self, pattern: str, lines: LogRows, *, regex: bool = False, own: bool = False, name: str = "") -> None:
        """Prepare a search for `pattern`: plain text unless `regex`, dstui's own if `own`. `name`: its name for the user."""
        self.pattern, self.regex, self.own, self.name = pattern, regex, own, name or f"/{pattern}"
        self.expression = expression_of(pattern, regex=regex, own=own)
        self.lines = lines
        self._wanted = compile_search(pattern, regex=regex, own=own, ignore_case=ignores_case(pattern, regex=regex, own=own))
        self._by_block: dict[int, array[int]] = {}
        self._low = self._high = lines.blocks.stop  # the blocks that were searched
        self._rows = 0  # rows of the newest block when it was searched
        self._found: array[int] | None = None  # all matches, made at the first request
        self.count = 0
        """The number of matches so far."""

    @property
    def found(self) -> array[int]:
        """The matching rows in order."""
        if self._found is None:
            self._found = array("q")
            for block in sorted(self._by_block):
                self._found += self._by_block[block]
        return self._found

    @property
    def complete(self) -> bool:
        """Return whether every line so far was searched."""
        return self.lines.complete and not self.waiting

    @property
    def waiting(self) -> int:
        """The number of blocks that were not searched, or only in part."""
        blocks = self.lines.blocks
        return max(self._low - blocks.start, 0) + blocks.stop - self._high + self._grown

    @property
    def _grown(self) -> bool:
        """Return whether the newest block has more rows than when it was searched."""
        blocks = self.lines.blocks
        return self._low < self._high == blocks.stop and self.lines.rows_of(blocks[-1]) != self._rows

    def advance(self, seconds: float = 0.02, *, reach: bool = True) -> bool:
        """Search for about `seconds`. Return whether the matches changed. If `reach`, also search lines that were not read yet."""
        before, deadline = self.count, monotonic() + seconds
        blocks = self.lines.blocks
        for gone in [block for block in self._by_block if block < blocks.start]:
            self._keep(gone, array("q"))
        self._high -= self._grown
        for block in range(max(self._high, blocks.start), blocks.stop):
            self._scan(block)
            self._high = block + 1
            if monotonic() >= deadline:
                break
        while monotonic() < deadline and (self._low > self.lines.blocks.start or (reach and self.lines.reach())):
            self._low -= 1
            self._scan(self._low)
        return self.count != before

    def _scan(self, block: int) -> None:
        start = self.lines.start(block)
        self._rows = self.lines.rows_of(block) if block + 1 == self.lines.blocks.stop else self._rows
        if self._wanted is not None and not self.lines.may_match(block, self._wanted):
            return self._keep(block, array("q"))
        raw = self.lines.raw(block)
        numbers = matching_lines(strip_colours(raw), self._wanted) if self._wanted else list(range(self.lines.rows_of(block)))
        self._keep(block, array("q", [start + n for n in self._shown_matches(raw, numbers)]))

    def _keep(self, block: int, found: array[int]) -> None:
        """Record the matches in a block."""
        before = self._by_block.pop(block, None)
        if found or before:
            self.count += len(found) - len(before or ())
            self._found = None
        if found:
            self._by_block[block] = found

    def _shown_matches(self, raw: bytes, numbers: list[int]) -> list[int]:
        """Return the matching lines that also match in their displayed form."""
        if not numbers or (self._wanted and is_unadorned(raw) and not has_long_line(raw)):
            return numbers
        lines = raw.split(b"\n")
        matching = b"\n".join([lines[n] for n in numbers])
        if self._wanted and is_plain(matching):
            return numbers
        return [n for n, text in zip(numbers, decode_lines(matching), strict=True) if self.expression.search(text)]

    def neighbour(self, number: int, by: int) -> int | None:
        """Return the next match after (or before) a row, wrapping around; None if there are none."""
        if not self.count:
            return None
        at = bisect_right(self.found, number) if by > 0 else bisect_left(self.found, number) - 1
        return self.found[at % len(self.found)]

    def place(self, number: int) -> int:
        """Return the position of a match, counted from 1."""
        return bisect_right(self.found, number)
