"""The log of one job: which of its lines are shown, what is searched for in them, and where to go."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import isnan
from time import monotonic
from typing import Any

from dstui.logs import newlines
from dstui.logs.levels import ALL
from dstui.logs.log_filter import Filter
from dstui.logs.log_rows import LogRows, Nothing
from dstui.logs.log_search import PROBLEM, Search, expression_of
from dstui.run.jobs.folder import JobFolder
from dstui.tui.run.log_view import LogView

NEW_LOGS = 1.0
"""Seconds between two looks for logs of further ranks and attempts; of a job that has ended, between two looks at all."""
SPELL = 0.016
"""Seconds that a look may take, and a search as much again, however much there is to do."""


class JobLog(LogView):
    """Lines of a job, filtered."""

    def __init__(self) -> None:
        super().__init__()
        self.folder: JobFolder | None = None
        self.filter = Filter()
        self.hosts: Mapping[int, str] = {}
        self._goal: float | None = None  # the time to go to, as soon as it has been found
        self._seeking = False  # the search has found nothing yet
        self._searched = 0.0

    def attach(self, folder: JobFolder | None) -> None:
        """Another job, or none."""
        self.folder, self.filter, self.search, self._goal = folder, Filter(), None, None
        self._open()

    def choose(self, **changes: Any) -> None:
        """Other lines; what is searched for stays, and so does the moment that is being read."""
        moment = self.moment if not self.follow else None
        self.filter = replace(self.filter, **changes)
        self._open()
        if moment is not None:
            self.go_to_time(moment)

    def show_only_found(self) -> bool:
        """Only the lines that the search finds, or every line again. False where nothing is searched for."""
        if self.search is not None:
            self.choose(only=None if self.filter.only else self.search.expression)
        return self.search is not None

    def _open(self) -> None:
        self._open_lines()
        if self.search is not None:
            self._look_for(self.search.pattern, self.search.regex, self.search.name)

    def _open_lines(self) -> None:
        if isinstance(self.lines, LogRows):
            self.lines.timeline.close()
        if self.folder is None:
            self.lines = Nothing()
            return
        lines = self.filter.open(self.folder, self.hosts)
        lines.poll()
        self.show_lines(lines)

    # What happens

    def tick(self, *, ended: bool) -> None:
        """Take over what came, look for what is looked for. Of a job that has `ended`, once a second where nothing is left to do."""
        lines, now = self.lines, monotonic()
        if not isinstance(lines, LogRows):
            return
        rarely = now - self._searched >= NEW_LOGS
        searching = self.search is not None and not self.search.complete
        if ended and not (rarely or searching or self._goal is not None or (lines.wanted and not lines.complete)):
            return
        if rarely:
            self._searched = now
            lines.timeline.find()
        if lines.poll(SPELL, ended=ended):
            self.refresh()
        if lines.timeline.replaced:
            self._open()
        elif searching and self.search is not None and self.search.advance(SPELL):
            self._seek()
            self.refresh()
        self._approach()
        self.sync()

    def add_notice(self, time: float, text: str) -> None:
        """A line of dstui's own."""
        if isinstance(self.lines, LogRows) and self.lines.timeline.ranks is None:
            self.lines.timeline.notices.add(time, text)

    # What is looked for

    def find(self, pattern: str, *, regex: bool = False, name: str = "", jump: bool = True) -> None:
        """Find a text in the lines that are shown; "" ends the search."""
        if self.filter.only is not None:
            self.filter = replace(self.filter, only=expression_of(pattern, regex=regex) if pattern else None)
            self._open_lines()
        self._look_for(pattern, regex, name, jump=jump)

    def _look_for(self, pattern: str, regex: bool, name: str, *, jump: bool = False) -> None:
        self.search = Search(pattern, self.lines, regex=regex, name=name) if pattern and isinstance(self.lines, LogRows) else None
        if self.search is not None:
            newlines.load_soon()
            self.search.advance(0.1)
        self._seeking = jump
        self._seek()
        self.refresh()

    def _seek(self) -> None:
        """To the first match of a new search, as soon as there is one: the last before what is being read."""
        found = self.search.neighbour(self.reading + 1, -1) if self.search is not None and self._seeking else None
        if found is not None:
            self._seeking = False
            self.go_to(found)

    def match(self, by: int) -> bool:
        """To the next match of the search. False where nothing matches."""
        found = self.search.neighbour(self.reading, by) if self.search is not None else None
        if found is not None:
            self.go_to(found)
        return found is not None

    def problem(self, by: int) -> bool:
        """To the next line that speaks of an error. False where none does."""
        if self.search is None or self.search.pattern != PROBLEM:
            self.find(PROBLEM, regex=True, name="errors", jump=False)
        return self.match(by)

    def go_to_time(self, moment: float) -> None:
        """To the first line that was seen then or later, as soon as the log has been read back so far."""
        self._goal, self.follow = moment, False
        self._approach()

    def _approach(self) -> None:
        lines = self.lines
        if self._goal is None or not isinstance(lines, LogRows):
            return
        if lines.complete or lines.since <= self._goal:
            found = lines.at(self._goal)
            if found is not None:
                self.go_to(found)
            elif lines.end > lines.first:
                self.follow_end()
            self._goal = None
        else:
            lines.wanted = max(lines.wanted, 4)

    @property
    def moment(self) -> float | None:
        """When the line was seen that is being read; None where that is not known."""
        top = self.at if self.at is not None else self.lines.first + self.scroll_offset.y
        time = self.lines.line(top).time if self.lines.first <= top < self.lines.end else float("nan")
        return None if isnan(time) else time

    # What the frame says

    @property
    def subtitle(self) -> str:
        """How many lines, what was found, and whether the end is followed."""
        where = "following" if self.follow else f"▼ {self.unseen:,} new, f follows" if self.unseen else "f follows"
        return "  ".join(filter(None, (self._count_words(), self._search_words(), where)))

    def _count_words(self) -> str:
        lines = self.lines
        more = " (older ones left out)" if lines.left_out else "" if lines.complete else "+"
        shown = lines.end - lines.first
        all_of_them = f"{lines.lines:,}{more} lines"
        if self.filter.least != ALL or self.filter.only:
            return f"{shown:,} of {all_of_them}"
        return f"{shown:,} rows, {all_of_them}" if shown < lines.lines else all_of_them

    def _search_words(self) -> str:
        search = self.search
        if search is None:
            return ""
        more = "" if search.complete else "…"
        found = f"{search.count:,}{more}"
        return f"{search.name} {search.place(self.at):,} of {found}" if self.at is not None else f"{search.name}: {found}"
