"""The log as numbered rows, for a screen or a test: the lines of all ranks or some in the order of their arrival, folded and filtered.

Nothing that a log says is held in memory. A block knows which bytes of which logs it is made of and how many rows they come to; its rows
are read, folded and filtered again whenever somebody looks at them, and a few blocks are kept. Rows are numbered from where the view was
opened: those that came before have negative numbers, and are counted in slices, from the end, as far back as somebody looks.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict, deque
from collections.abc import Iterator
from math import isfinite, isnan, nan
from time import monotonic, time

from dstui.logs import newlines
from dstui.logs.colours import colour_runs
from dstui.logs.decode import LONGEST, decode, is_unadorned
from dstui.logs.dedup import Batch
from dstui.logs.levels import ALL, may_have_level
from dstui.logs.line_query import Texts
from dstui.logs.line_shapes import ranged
from dstui.logs.log_blocks import BlockRows, LogBlock, LogLine
from dstui.logs.log_file import LogFile
from dstui.logs.timeline import Part, Slice, Timeline, cut

BLOCK = 256 * 1024
"""Bytes of logs in a block."""
KEPT = 8
"""Blocks whose rows are kept."""
KEPT_MATCHES = 20_000
"""Rows that are kept of a log in which few lines pass: a screen of them comes from many blocks."""
NARROW = 4
"""A block of a log that is filtered by what is typed is so many times smaller: its lines are looked at one by one."""
MEMORY = 64 << 20
"""Bytes that blocks may take in all: a gigabyte of logs where 64 ranks write a line each second, tens where they write much."""
BETWEEN = b"  "
"""Between the lines of a row by shape where they are searched together."""
BEHIND = 2 << 20
"""Bytes that may wait to be folded; a flood that is faster is shown as it comes, line by line."""
EAGER = 16
"""Blocks that are looked at before anybody asks for them."""


class LogRows:
    """Rows by number: from `first` to before `end`. `least`: the level that a line must have; `only`: what it must hold.

    `cutoff`: the time before which no line is shown, and no log is read; NaN without one. `shape`: lines of several ranks that differ only
    in numbers are one row, too (line_shapes.py).
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
        """Lines at the beginning have no place in memory."""
        self.wanted = EAGER
        """How many further blocks of what was there are to be looked at."""
        self.lines = 0
        """How many lines the rows come from, shown or not."""
        self.hidden = 0
        """How many lines do not pass the filter, as far as was looked."""
        narrow = only is not None or not isnan(cutoff) or least != ALL
        back = timeline.back()
        self._back: Iterator[Slice] | None = (
            back if not narrow else (part for each in back for part in cut(each, back=True, most=BLOCK // NARROW))
        )
        self._blocks: deque[LogBlock] = deque()
        self._oldest = 0  # the number of the first block
        self._memory = 0
        self._growing = False  # the last block is one that new lines go to
        self._open: BlockRows | None = None  # its rows, where they are not just its lines
        self._coming: deque[Slice] = deque()
        self._kept: OrderedDict[int, BlockRows] = OrderedDict()
        self._narrow = narrow
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
    def blocks(self) -> range:
        """The numbers of the blocks."""
        return range(self._oldest, self._oldest + len(self._blocks))

    # Growing

    def poll(self, seconds: float = 0.015, *, ended: bool = False) -> bool:
        """Take over what came, and look further back where that is wanted, for about so long. True where anything changed."""
        before = self.first, self.end, self.lines, self._live
        self._coming += self.timeline.poll(time())
        if ended:
            self._coming += self.timeline.finish(time())
        waiting, deadline = sum(chunk.size for chunk in self._coming), monotonic() + seconds
        while self._coming:
            chunk = self._coming.popleft()
            self._append(chunk, dedup=self.dedup and waiting <= BEHIND)
            waiting -= chunk.size
            if waiting <= BEHIND and monotonic() >= deadline:
                break
        while self.wanted > 0 and (monotonic() < deadline or not self._blocks) and self.reach():
            self.wanted -= 1
        self._live = self._unfinished()
        return before != (self.first, self.end, self.lines, self._live)

    def _append(self, chunk: Slice, *, dedup: bool) -> None:
        """Put what has come into the last block, and count its rows.

        A plain block (every line is a row) needs no more than a count of its newlines. Any other is kept open (`_open`): its rows are made
        as its lines come, since which lines are one row depends on those before.
        """
        block = self._last_block(dedup=dedup)
        self._memory -= block.memory
        block.add(chunk)
        self._memory += block.memory
        lines = block.lines
        if self._open is None:
            block.lines += newlines.count_lines(self.timeline.text(chunk.parts))
            block.rows = block.lines
            self._kept.pop(self.blocks[-1], None)  # it has grown
        else:
            self._open.add(chunk.time if chunk.known else nan, self._batches(chunk.parts))
            self.hidden += self._open.hidden - block.hidden
            block.rows, block.lines, block.hidden = len(self._open.picked), self._open.rows.lines, self._open.hidden
        self.lines += block.lines - lines

    def _last_block(self, *, dedup: bool) -> LogBlock:
        """Return the growing block; a new one where it is full, none grows, or deduplication was switched."""
        block = self._blocks[-1] if self._growing else None
        if block is None or block.bytes >= BLOCK or block.dedup != dedup:
            block = LogBlock(dedup=dedup)
            block.first = self._settled
            self._blocks.append(block)
            self._growing = True
            self._open = None if self._plain(block) else self._new_rows(block)
            self._shrink()
        return block

    def _shrink(self) -> None:
        """Drop the oldest blocks where memory is short; a rank's own log takes far less."""
        while self._memory > MEMORY and len(self._blocks) > 1:
            gone = self._blocks.popleft()
            self._memory -= gone.memory
            self.lines -= gone.lines
            self.hidden -= gone.hidden
            self._oldest += 1
            self._back, self.left_out = None, True

    def reach(self) -> bool:
        """Count the block before the first. False where there is none."""
        if self._back is None:
            return False
        block, chunks, size = LogBlock(dedup=self.dedup), [], 0
        most = BLOCK // NARROW if self._narrow else BLOCK
        for chunk in self._back or ():
            chunks.append(chunk)
            size += chunk.size
            if size >= most:
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
            self._back = None  # what is older is not shown
        if self._memory > MEMORY and self._back is not None:
            self._back, self.left_out = None, True
        return True

    def _count(self, block: LogBlock) -> None:
        """Count the lines and rows of a block: at the speed of memory where each line is a row."""
        if self._plain(block):
            block.rows = block.lines = newlines.count_lines(self._text(block))
        elif self._has_no_match(block):
            block.lines = block.hidden = newlines.count_lines(self._text(block))
        else:
            shown = self._show(block)
            block.rows, block.lines, block.hidden = len(shown.picked), shown.rows.lines, shown.hidden
            self._keep(self._oldest - 1, shown)

    def _has_no_match(self, block: LogBlock) -> bool:
        """Return True where the whole text shows that no line passes: a hundred times as fast as line by line."""
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
        """Return the unfinished line of a single rank, such as its progress bar."""
        file = self.timeline.sources[-1].file
        alone = len(self.timeline.ranks or ()) == 1 and self.least == ALL and self.only is None and isnan(self.cutoff) and not self._coming
        return file.unfinished() if alone and isinstance(file, LogFile) and self.timeline.taken[-1] < file.size else ""

    # Looking

    def line(self, number: int) -> LogLine:
        """Return the row with this number."""
        if number == self._settled and self._live:
            return LogLine(self._source_rank(len(self.timeline.sources) - 1), self._live)
        try:
            shown, at = self._find(number)
        except IndexError:
            return LogLine(None, "")  # its log was cut short just now
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

    def ranks_of(self, number: int) -> list[int]:
        """Return the ranks that wrote the line of a row."""
        if number >= self._settled:
            return []
        try:
            shown, at = self._find(number)
        except IndexError:
            return []
        ranks = (self._source_rank(log) for log in _bits(shown.rows.log_mask[at]))
        return sorted(rank for rank in ranks if rank is not None)

    def members(self, number: int) -> list[LogLine]:
        """Return the lines that a row by shape stands for, by rank; none where it is one line, or they are the same."""
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
        """Return the rows of a block as written, one per line, for a search."""
        made = self._blocks[block - self._oldest]
        if self._plain(made):
            return self._text(made)
        shown = self._shown(block)
        if shown.rows.shape:
            return b"\n".join([BETWEEN.join(shown.rows.members[n].values()) for n in shown.picked])
        return b"\n".join([shown.rows.raw[n] for n in shown.picked])

    def start(self, block: int) -> int:
        """Return the number of the first row of a block."""
        return self._blocks[block - self._oldest].first

    def rows_of(self, block: int) -> int:
        """Return the number of rows in a block."""
        return self._blocks[block - self._oldest].rows

    def at(self, moment: float) -> int | None:
        """Return the first row at a time or later; None where there is none."""
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
        """The earliest known time; NaN where none is known."""
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
        while len(self._kept) > KEPT and not (self._narrow and sum(len(kept.rows) for kept in self._kept.values()) <= KEPT_MATCHES):
            self._kept.popitem(last=False)

    def _show(self, block: LogBlock) -> BlockRows:
        shown = self._new_rows(block)
        for moment, parts in block.chunks():
            shown.add(moment, self._batches(parts))
        if self._narrow:
            shown.compact()
        return shown

    def _new_rows(self, block: LogBlock) -> BlockRows:
        return BlockRows(dedup=block.dedup, least=self.least, only=self.only, cutoff=self.cutoff, shape=self.shape)

    def _batches(self, parts: list[Part]) -> list[Batch]:
        return [Batch(log, rank, _short(lines)) for log, rank, lines in self.timeline.read(parts)]


def _short(lines: list[bytes]) -> list[bytes]:
    """Cut lines that are too long to keep to what is shown of them."""
    if max(map(len, lines), default=0) <= LONGEST:
        return lines
    return [line if len(line) <= LONGEST else decode(line).encode() for line in lines]


def _bits(number: int) -> Iterator[int]:
    """Yield the set bits from the highest."""
    while number:
        highest = number.bit_length() - 1
        yield highest
        number ^= 1 << highest
