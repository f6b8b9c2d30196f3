"""The log of one job: which of its lines are visible, the search in them, and navigation."""

from __future__ import annotations

from asyncio import sleep
from collections.abc import Mapping
from dataclasses import replace
from math import isnan
from time import monotonic
from typing import Any

from dstui.jobs.store.folder import JobFolder
from dstui.logs import grep
from dstui.logs.line_query import parse_line_query
from dstui.logs.log_blocks import EmptyLog
from dstui.logs.log_filter import Filter
from dstui.logs.log_rows import LogRows
from dstui.logs.log_search import PROBLEM, Search
from dstui.tui.kit.tools import label
from dstui.tui.run.host_lines import short_names
from dstui.tui.run.log_marks import draw_marks
from dstui.tui.run.log_view import LogView

NEW_LOGS = 1.0
"""Seconds between two searches for logs of further ranks and attempts."""
MAX_COPIED = 100_000
"""Lines that are copied at once, the last ones."""
SPELL = 0.012
"""Seconds of work in one callback, however much there is to do: lines are added in one, and searched in another."""

BETWEEN = 0.02
"""Seconds from a callback that has left lines waiting to the next one: enough for keys and painting."""


class JobLog:
    """The lines of a job, filtered, and the view that shows them."""

    def __init__(self) -> None:
        self.view = LogView()
        self.folder: JobFolder | None = None
        self.filter = Filter()
        self.typed_error = ""
        """The reason why the typed text is not a valid filter or expression; "" if it is."""
        self.hosts: Mapping[int, str] = {}
        self._goal: float | None = None  # the time to go to, as soon as it is found
        self._sought: tuple[int, int] | None = None
        """The match to go to as soon as the search finds one: rows from the one that is read, and the direction."""
        self._looked = self._marked = 0.0
        self._catching_up = False

    def attach(self, folder: JobFolder | None) -> None:
        """Show another job's log, or none."""
        if folder is not None:
            draw_marks(self.view.vertical_scrollbar, self._marked_cells, self.view.style_named)
        self.folder, self.filter, self.view.search, self._goal = folder, Filter(), None, None
        self.typed_error = ""
        self._open()

    def _marked_cells(self, height: int) -> dict[int, str]:
        lines = self.view.lines
        return self.view.marks.cells(lines.first, lines.end, height, self.view.search)

    def show_hosts(self, hosts: Mapping[int, str]) -> None:
        """Set the host of each rank; with several hosts, each line names its own."""
        if hosts != self.hosts:
            before, self.hosts = self.filter.folds_shapes(self.hosts), hosts
            if self.filter.folds_shapes(hosts) != before:
                self._open()
            several = len(set(hosts.values())) > 1
            self.view.show_hosts(short_names(hosts) if several else {})

    def choose(self, **changes: Any) -> None:
        """Show other lines; the search and the position in time are kept."""
        moment = self.moment if not self.view.follow else None
        self.filter = replace(self.filter, **changes)
        self._open()
        if moment is not None:
            self.go_to_time(moment)

    def filter_by(self, text: str, latest: float) -> None:
        """Show only lines that match the filter; "" shows all. An invalid filter changes nothing, and the frame says why."""
        try:
            query = parse_line_query(text, latest)
        except ValueError as error:
            self.typed_error = str(error)
            return
        self.typed_error = ""
        if query.text != self.filter.query.text:
            grep.load_soon()
            self.choose(query=query)

    def _open(self) -> None:
        self._open_lines()
        if self.view.search is not None:
            search = self.view.search
            self._search_for(search.pattern, regex=search.regex, own=search.own, name=search.name)

    def _open_lines(self) -> None:
        if isinstance(self.view.lines, LogRows):
            self.view.lines.timeline.close()
        if self.folder is None:
            self.view.lines = EmptyLog()
            self.view.shown.begin(self.view.lines)
            return
        lines = self.filter.open(self.folder, self.hosts)
        lines.poll(SPELL)
        self.view.show_lines(lines)

    # Events

    @property
    def busy(self) -> bool:
        """Return whether there is something to do: existing lines to read, search or go to."""
        lines, search = self.view.lines, self.view.search
        if not isinstance(lines, LogRows):
            return False
        searching = (search is not None and not search.complete) or self.view.marks.waiting
        return searching or self._goal is not None or _waits(lines)

    def tick(self, *, ended: bool) -> bool:
        """Take over new lines. Return whether there were any. `ended`: incomplete lines count."""
        lines, now = self.view.lines, monotonic()
        if not isinstance(lines, LogRows):
            return False
        if now - self._looked >= NEW_LOGS:
            self._looked = now
            lines.timeline.find()
        if grown := lines.poll(SPELL, ended=ended):
            self.view.refresh()
        if lines.timeline.replaced:
            self._open()
        self._approach()
        self.view.sync()
        self._catch_up_later(lines)
        if self._searches_on:
            self.view.call_later(self._search_on)
        return grown

    def _catch_up_later(self, lines: LogRows) -> None:
        """Add lines that wait before the next tick too: new ones that come faster than one callback may add them, and earlier ones."""
        if _waits(lines) and not self._catching_up:
            self._catching_up = True
            self.view.set_timer(BETWEEN, self._catch_up)

    def _catch_up(self) -> None:
        self._catching_up = False
        if not isinstance(lines := self.view.lines, LogRows):
            return
        if _waits(lines) and lines.poll(SPELL):
            self._approach()
            self.view.sync()
            self.view.refresh()
        self._catch_up_later(lines)

    @property
    def _searches_on(self) -> bool:
        """Return whether there is something to search now. The marks are in no hurry."""
        search = self.view.search
        return (search is not None and not search.complete) or (self.view.marks.waiting and monotonic() - self._marked >= NEW_LOGS)

    def _search_on(self) -> None:
        """Continue the search, then the marks of the scroll bar."""
        deadline, search, changed = monotonic() + SPELL, self.view.search, False
        if search is not None and not search.complete:
            changed = search.advance(SPELL)
            self._seek()
            if changed:
                self.view.refresh()
        if (left := deadline - monotonic()) > 0 and monotonic() - self._marked >= NEW_LOGS:
            changed |= self.view.marks.advance(left)
            self._marked = monotonic()
        if changed:
            self.view.vertical_scrollbar.refresh()

    def add_notice(self, time: float, text: str) -> None:
        """Add a line of dstui's own."""
        if isinstance(self.view.lines, LogRows) and self.view.lines.timeline.ranks is None:
            self.view.lines.timeline.notices.add(time, text)

    # Search and navigation

    def search_by(self, text: str, *, regex: bool, jump: bool) -> None:
        """Highlight matches of the typed text; with `jump`, go to the last one. The frame reports an invalid expression."""
        try:
            self.find(text, regex=regex, jump=jump)
        except ValueError as error:
            self.find("")
            self.typed_error = str(error)
        else:
            self.typed_error = ""

    def find(self, pattern: str, *, regex: bool = False, own: bool = False, name: str = "", jump: bool = True) -> None:
        """Search the shown lines for a text; "" ends the search. `own`: a regular expression made by dstui."""
        self._search_for(pattern, regex=regex, own=own, name=name, jump=jump)

    def _search_for(self, pattern: str, *, regex: bool, own: bool, name: str, jump: bool = False) -> None:
        lines = self.view.lines
        found = Search(pattern, lines, regex=regex, own=own, name=name) if pattern and isinstance(lines, LogRows) else None
        self.view.search = found
        if self.view.search is not None:
            grep.load_soon()
            self.view.search.advance(SPELL / 4)
        self._sought = (1, -1) if jump else None  # the last one before the current position
        self._seek()
        self.view.refresh()
        self.view.vertical_scrollbar.refresh()

    def _seek(self) -> None:
        """Go to the match that is sought, if the search has found it."""
        search = self.view.search
        if search is None or self._sought is None:
            return
        rows, by = self._sought
        found = search.neighbour(self.view.reading + rows, by)
        if found is not None:
            self.view.go_to(found)
        if found is not None or search.complete:
            self._sought = None

    def match(self, by: int) -> bool:
        """Go to the next match of the search, as soon as it is found. Return False if nothing matches."""
        search = self.view.search
        if search is None or (search.complete and not search.count):
            return False
        self._sought = (0, by)
        self._seek()
        return True

    def problem(self, by: int, pattern: str = PROBLEM) -> bool:
        """Go to the next line about an error, or with WARNING about a warning. Return False if there is none."""
        if self.view.search is None or self.view.search.pattern != pattern:
            self.find(pattern, regex=True, own=True, name="errors" if pattern == PROBLEM else "warnings", jump=False)
        return self.match(by)

    def go_to_time(self, moment: float) -> None:
        """Go to the first line of that time or later, as soon as the log has been read back so far."""
        self._goal, self.view.follow = moment, False
        self._approach()

    def _approach(self) -> None:
        lines = self.view.lines
        if self._goal is None or not isinstance(lines, LogRows):
            return
        if lines.complete or lines.since <= self._goal:
            found = lines.at(self._goal)
            if found is not None:
                self.view.go_to(found)
            elif lines.end > lines.first:
                self.view.follow_end()
            self._goal = None
        else:
            lines.wanted = max(lines.wanted, 4)

    @property
    def moment(self) -> float | None:
        """Return the time of the line at the current position; None if unknown."""
        top = self.view.at if self.view.at is not None else self.view.wrapping.top
        time = self.view.lines.line(top).time if self.view.lines.first <= top < self.view.lines.end else float("nan")
        return None if isnan(time) else time

    def to_copy(self) -> tuple[str, str]:
        """Return a text for the clipboard, and what it is: the line that was jumped to or clicked, else the lines in view."""
        if self.view.at is not None and self.view.has_row(self.view.at):
            return self.view.lines.line(self.view.at).text, "the line"
        return "\n".join(self.view.lines.line(n).text for n in self.view.wrapping.in_view), "the lines in view"

    async def all_text(self) -> str:
        """Return every visible line, the last `MAX_COPIED` of them. The screen stays responsive."""
        lines, since = self.view.lines, monotonic()
        while isinstance(lines, LogRows) and not lines.complete and lines.end - lines.first < MAX_COPIED:
            lines.reach()
            since = await _breathe(since)
        texts = []
        for number in range(max(lines.first, lines.end - MAX_COPIED), lines.end):
            texts.append(lines.line(number).text)
            since = await _breathe(since)
        return "\n".join(texts)

    # Frame

    def draw(self) -> None:
        """Draw the frame of the view."""
        shapes = isinstance(self.view.lines, LogRows) and self.view.lines.shape
        label(self.view, self.filter.title(shapes=shapes), self.subtitle)

    @property
    def subtitle(self) -> str:
        """Return the number of lines, the search result, and whether the end is followed."""
        where = "following" if self.view.follow else f"▼ {self.view.unseen:,} new, f follows" if self.view.unseen else "f follows"
        return "  ".join(filter(None, (self.typed_error and f"✖ {self.typed_error}", self._count_words(), self._search_words(), where)))

    def _count_words(self) -> str:
        lines = self.view.lines
        more = " (older ones left out)" if lines.left_out else "" if lines.complete else "+"
        shown = lines.end - lines.first
        all_of_them = f"{lines.lines:,}{more} line{'s' * (lines.lines != 1)}"
        if self.filter.is_narrow:
            return f"{shown:,} of {all_of_them}, {lines.hidden:,} hidden"
        return f"{shown:,} rows, {all_of_them}" if shown < lines.lines else all_of_them

    def _search_words(self) -> str:
        search = self.view.search
        if search is None:
            return ""
        more = "" if search.complete else "…"
        found = f"{search.count:,}{more}"
        if self.view.at is not None:
            return f"{search.name} {search.place(self.view.at):,} of {found}"
        return f"{search.name}: {found}" if search.count or more else f"{search.name}: no match"


def _waits(lines: LogRows) -> bool:
    """Return whether new lines wait to be added, or earlier ones, that somebody wants to see, to be counted."""
    return lines.behind or (lines.wanted > 0 and not lines.complete)


async def _breathe(since: float) -> float:
    """Yield to the drawing of the screen after a while of work. Return when the work resumed."""
    if monotonic() - since < SPELL:
        return since
    await sleep(0)
    return monotonic()
