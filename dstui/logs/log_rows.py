"""The log as numbered rows: lines of all or some ranks in order of arrival, folded and filtered.

The text of a log is not held in memory. A block knows its ranges of bytes and its number of rows. Its rows are read, folded and filtered
again when they are shown, and a few blocks are cached. Rows are numbered from where the view was opened: earlier ones have negative numbers
and are counted in slices, from the end back, as far as needed.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator
from math import isfinite, isnan, nan
from time import monotonic, time

from dstui.logs import grep
from dstui.logs.colours import colour_runs
from dstui.logs.decode import LONGEST, decode, is_unadorned, strip_colours
from dstui.logs.dedup import Batch
from dstui.logs.levels import ALL, may_have_level, ranged
from dstui.logs.line_query import Texts
from dstui.logs.log_blocks import BlockRows, LogBlock, LogLine, bits
from dstui.logs.log_file import LogFile
from dstui.logs.timeline import Part, Slice, Timeline, cut

BLOCK = 256 * 1024
"""Bytes of logs in a block."""
KEPT, KEPT_LINES = 2 << 20, 40_000
"""Bytes of logs whose rows are cached, and lines in them; two blocks in any case. A line takes 200 bytes."""
KEPT_MATCHES = 20_000
"""Cached rows of a log in which few lines pass the filter: a screen of them comes from many blocks."""
EMPTY = 10
"""Rows that take as much memory as a cached block without any."""
WORKED = 64 * 1024
"""Bytes of logs in a block whose lines are folded or filtered: that is done for whole blocks, and must not be felt."""
MEMORY = 64 << 20
"""Bytes of memory for all blocks: enough for a gigabyte of logs if 64 ranks write a line each second, for tens if they write much."""
BETWEEN = b"  "
"""Separator between the lines of a row by shape when they are searched together."""
BEHIND = 1 << 20
"""Bytes that may wait to be folded. If more arrive, they are shown line by line."""
EAGER = 16
"""Blocks that are counted before they are needed."""


class LogRows:
    """Rows by number, from `first` to before `end`. `least`: the level that a line must have; `only`: the text that it must contain.

    `cutoff`: lines before this time are not shown, nor read; NaN for no limit. `shape`: lines of several ranks that differ only in numbers
    are one row (line_shapes.py).
    """

    def __init__(  # noqa: PLR0913 - all but the first are named
        self,
        timeline: Timeline,
        *,
        dedup: bool = True,
        shape: bool = False,
        least: int = ALL,
        only: Texts | None = None,
        cutoff: float = nan,
    ) -> None:
        self.timeline, self.dedup, self.shape, self.least, self.only, self.cutoff = timeline, dedup, shape, least, only, cutoff
        self.left_out = False
        """True if lines at the beginning were dropped to save memory."""
        self.wanted = EAGER
        """The number of further existing blocks to count."""
        self.lines = 0
        """The number of lines in the rows, visible or not."""
        self.hidden = 0
        """The number of lines that do not pass the filter, of those tested."""
        self._narrow = only is not None or not isnan(cutoff) or least != ALL
        self._size = size = WORKED if dedup or self._narrow else BLOCK
        # not `self._size` inside: with a cycle, a view that was closed would keep its cached rows until the next collection
        self._back: Iterator[Slice] | None = (part for each in timeline.back() for part in cut(each, back=True, most=size))
        self._blocks: deque[LogBlock] = deque()
        self._oldest = 0  # the number of the first block
        self._memory = 0
        self._growing = False  # whether the last block receives new lines
        self._open: BlockRows | None = None  # its rows, unless they are simply its lines
        self._coming: deque[Slice] = deque()
        self._waiting = 0  # bytes of them
        self._kept: OrderedDict[int, BlockRows] = OrderedDict()
        self._live = ""
        self._last: tuple[LogBlock, bytes] | None = None

    @property
    def first(self) -> int:
        """The lowest known number."""
        return self._blocks[0].first if self._blocks else 0

    @property
    def end(self) -> int:
        """The highest number plus one."""
        return self._settled + bool(self._live)

    @property
    def _settled(self) -> int:
        return self._blocks[-1].first + self._blocks[-1].rows if self._blocks else 0

    @property
    def complete(self) -> bool:
        """Return whether everything written so far has a number."""
        return self._back is None and not self._coming

    @property
    def behind(self) -> bool:
        """Return whether new lines wait to be added."""
        return bool(self._coming)

    @property
    def blocks(self) -> range:
        """The numbers of the blocks."""
        return range(self._oldest, self._oldest + len(self._blocks))

    # Adding lines

    def poll(self, seconds: float = 0.015, *, ended: bool = False) -> bool:
        """Add new lines, and count earlier ones if needed, for about `seconds`. Return whether anything changed."""
        before = self.first, self.end, self.lines, self._live
        self._take(self.timeline.poll(time()))
        if ended:
            self._take(self.timeline.finish(time()))
        deadline = monotonic() + seconds
        while self._coming:
            chunk = self._coming.popleft()
            self._append(chunk, dedup=self.dedup and self._waiting <= BEHIND)
            self._waiting -= chunk.size
            if monotonic() >= deadline:
                break
        while self.wanted > 0 and (monotonic() < deadline or not self._blocks) and self.reach():
            self.wanted -= 1
        self._live = self._unfinished()
        return before != (self.first, self.end, self.lines, self._live)

    def _take(self, slices: Iterable[Slice]) -> None:
        """Take over new slices, in pieces that are quick to fold and filter."""
        for each in slices:
            self._coming += cut(each, most=self._size)
            self._waiting += each.size

    def _append(self, chunk: Slice, *, dedup: bool) -> None:
        """Add a slice to the last block, and count its rows.

        For a plain block (every line is a row) it is enough to count newlines. Any other is kept open (`_open`): its rows are made as its
        lines arrive, since the rows depend on earlier lines.
        """
        block = self._last_block(dedup=dedup)
        self._memory -= block.memory
        block.add(chunk)
        self._memory += block.memory
        lines = block.lines
        if self._open is None:
            block.lines += grep.count_lines(self.timeline.text(chunk.parts))
            block.rows = block.lines
            self._kept.pop(self.blocks[-1], None)  # it has grown
        else:
            self._open.add(chunk.time if chunk.known else nan, self._batches(chunk.parts))
            self.hidden += self._open.hidden - block.hidden
            block.rows, block.lines, block.hidden = len(self._open.picked), self._open.rows.lines, self._open.hidden
        self.lines += block.lines - lines

    def _last_block(self, *, dedup: bool) -> LogBlock:
        """Return the growing block, or a new one if it is full, there is none, or deduplication was switched."""
        block = self._blocks[-1] if self._growing else None
        if block is None or block.bytes >= self._size or block.dedup != dedup:
            if self._open is not None:  # it is in view while more arrives
                self._open.finish(narrow=self._narrow)
                self._keep(self.blocks[-1], self._open)
            block = LogBlock(dedup=dedup)
            block.first = self._settled
            self._blocks.append(block)
            self._growing = True
            self._open = None if self._plain(block) else self._new_rows(block)
            self._shrink()
        return block

    def _shrink(self) -> None:
        """Drop the oldest blocks if memory is short. The log of a single rank takes far less."""
        while self._memory > MEMORY and len(self._blocks) > 1:
            gone = self._blocks.popleft()
            self._memory -= gone.memory
            self.lines -= gone.lines
            self.hidden -= gone.hidden
            self._oldest += 1
            self._back, self.left_out = None, True

    def reach(self) -> bool:
        """Count the block before the first one. Return False if there is none."""
        if self._back is None:
            return False
        block, chunks, size = LogBlock(dedup=self.dedup), [], 0
        for chunk in self._back or ():
            chunks.append(chunk)
            size += chunk.size
            if size >= self._size:
                break
        else:
            self._back = None
        for chunk in reversed(chunks):
            block.add(chunk)
        self._count(block)
        block.first = self.first - block.rows
        self._blocks.appendleft(block)
        self._oldest -= 1
        self._memory += block.memory
        self.lines += block.lines
        self.hidden += block.hidden
        if block.since < self.cutoff:
            self._back = None  # earlier lines are not shown
        if self._memory > MEMORY and self._back is not None:
            self._back, self.left_out = None, True
        return True

    def _count(self, block: LogBlock) -> None:
        """Count the lines and rows of a block, at the speed of memory if each line is a row."""
        if self._plain(block):
            block.rows = block.lines = grep.count_lines(self._text(block))
        elif self._has_no_match(block):
            block.lines = block.hidden = grep.count_lines(self._text(block))
        else:
            shown = self._show(block)
            block.rows, block.lines, block.hidden = len(shown.picked), shown.rows.lines, shown.hidden
            self._keep(self._oldest - 1, shown)

    def _has_no_match(self, block: LogBlock) -> bool:
        """Return True if the whole text shows that no line passes: a hundred times as fast as line by line."""
        texts = self.only is not None and bool(self.only.needed)
        if not texts and self.least == ALL:
            return False
        text = self._text(block)
        if not is_unadorned(text):
            return False
        return (self.least != ALL and not may_have_level(text)) or (self.only is not None and not self.only.may_match(text))

    def _plain(self, block: LogBlock) -> bool:
        """Return whether each line is a row."""
        return not block.dedup and self.least == ALL and self.only is None and isnan(self.cutoff)

    def _text(self, block: LogBlock) -> bytes:
        """Return the text of a block. The last one is cached, since a search reads what was just counted."""
        if self._last is None or self._last[0] is not block or (self._blocks and block is self._blocks[-1]):
            self._last = block, self.timeline.text(part for _, parts in block.chunks() for part in parts)
        return self._last[1]

    def _unfinished(self) -> str:
        """Return the incomplete line of a single rank, such as its progress bar."""
        file = self.timeline.sources[-1].file
        alone = len(self.timeline.ranks or ()) == 1 and self.least == ALL and self.only is None and isnan(self.cutoff) and not self._coming
        return file.unfinished() if alone and isinstance(file, LogFile) and self.timeline.taken[-1] < file.size else ""

    # Reading rows

    def line(self, number: int) -> LogLine:
        """Return the row with this number."""
        if number == self._settled and self._live:
            return LogLine(self._source_rank(len(self.timeline.sources) - 1), self._live)
        try:
            shown, at = self._find(number)
        except IndexError:
            return LogLine(None, "")  # the log was truncated in the meantime
        rows = shown.rows
        log, raw = rows.log[at], rows.raw[at]
        if rows.shape and len(rows.members[at]) > 1:
            text = ranged(tuple(rows.members[at].values()))
            return LogLine(self._source_rank(log), text, False, rows.time[at], rows.log_mask[at].bit_count())
        return LogLine(
            self._source_rank(log),
            decode(raw),
            log == 0,
            rows.time[at],
            rows.log_mask[at].bit_count(),
            colour_runs(raw) if b"\x1b" in raw else (),
        )

    def is_made(self, number: int) -> bool:
        """Return whether a row can be read at once; else the rows of its block must be made."""
        block = self._oldest + bisect_right(self._blocks, number, key=lambda block: block.first) - 1
        return block in self._kept or number >= self._settled or (self._open is not None and block == self.blocks[-1])

    def ranks_of(self, number: int) -> list[int]:
        """Return the ranks that wrote the line of a row."""
        if number >= self._settled:
            return []
        try:
            shown, at = self._find(number)
        except IndexError:
            return []
        ranks = (self._source_rank(log) for log in bits(shown.rows.log_mask[at]))
        return sorted(rank for rank in ranks if rank is not None)

    def members(self, number: int) -> list[LogLine]:
        """Return the lines of a row by shape, by rank; none if it is a single line or they are all equal."""
        try:
            shown, at = self._find(number)
        except IndexError:
            return []
        rows = shown.rows
        if not rows.shape or len(set(rows.members[at].values())) < 2:
            return []
        found = [LogLine(self._source_rank(log), decode(raw), False, rows.time[at]) for log, raw in rows.members[at].items()]
        return sorted(found, key=lambda line: -1 if line.rank is None else line.rank)

    def raw(self, block: int) -> bytes:
        """Return the rows of a block as written, one per line, to be searched."""
        made = self._blocks[block - self._oldest]
        if self._plain(made):
            return self._text(made)
        shown = self._shown(block)
        if shown.rows.shape:
            return b"\n".join([BETWEEN.join(shown.rows.members[n].values()) for n in shown.picked])
        return b"\n".join([shown.rows.raw[n] for n in shown.picked])

    def may_match(self, block: int, wanted: grep.LineSearch) -> bool:
        """Return False if no line of a block matches: its text is searched, which is a hundred times as fast as making its rows."""
        made = self._blocks[block - self._oldest]
        return self._plain(made) or bool(grep.matching_lines(strip_colours(self._text(made)), wanted))

    def start(self, block: int) -> int:
        """Return the number of the first row of a block."""
        return self._blocks[block - self._oldest].first

    def rows_of(self, block: int) -> int:
        """Return the number of rows in a block."""
        return self._blocks[block - self._oldest].rows

    def at(self, moment: float) -> int | None:
        """Return the first row at a time or later; None if there is none."""
        for block in self.blocks[::-1]:
            if self._blocks[block - self._oldest].since <= moment or block == self._oldest:
                for later in range(block, self.blocks.stop):
                    shown = self._shown(later)
                    for n, at in enumerate(shown.picked):
                        if shown.rows.time[at] >= moment:
                            return self.start(later) + n
                return None
        return None

    @property
    def since(self) -> float:
        """The earliest known time; NaN if there is none."""
        return next((block.since for block in self._blocks if isfinite(block.since)), nan)

    def _find(self, number: int) -> tuple[BlockRows, int]:
        index = bisect_right(self._blocks, number, key=lambda block: block.first) - 1
        shown = self._shown(self._oldest + index)
        return shown, shown.picked[number - self._blocks[index].first]

    def _source_rank(self, log: int) -> int | None:
        return self.timeline.sources[log].rank

    def _shown(self, number: int) -> BlockRows:
        """Return the rows of a block."""
        block = self._blocks[number - self._oldest]
        if self._open is not None and block is self._blocks[-1]:
            return self._open
        shown = self._kept.get(number)
        if shown is None:
            shown = self._show(block)
            self._keep(number, shown)
        else:
            self._kept.move_to_end(number)
        return shown

    def _keep(self, number: int, shown: BlockRows) -> None:
        self._kept[number] = shown
        while len(self._kept) > 2 and not self._may_keep():
            self._kept.popitem(last=False)

    def _may_keep(self) -> bool:
        if self._narrow:
            return sum(EMPTY + len(kept.rows) for kept in self._kept.values()) <= KEPT_MATCHES
        return len(self._kept) <= KEPT // self._size and sum(kept.rows.lines for kept in self._kept.values()) <= KEPT_LINES

    def _show(self, block: LogBlock) -> BlockRows:
        shown = self._new_rows(block)
        for moment, parts in block.chunks():
            shown.add(moment, self._batches(parts))
        shown.finish(narrow=self._narrow)
        return shown

    def _new_rows(self, block: LogBlock) -> BlockRows:
        return BlockRows(dedup=block.dedup, least=self.least, only=self.only, cutoff=self.cutoff, shape=self.shape)

    def _batches(self, parts: list[Part]) -> list[Batch]:
        return [Batch(log, rank, _short(lines)) for log, rank, lines in self.timeline.read(parts)]


def _short(lines: list[bytes]) -> list[bytes]:
    """Cut overlong lines to the part that is displayed."""
    if max(map(len, lines), default=0) <= LONGEST:
        return lines
    return [line if len(line) <= LONGEST else decode(line).encode() for line in lines]
