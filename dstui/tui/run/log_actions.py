"""The log of the job in view with its typed lines, and the keys that filter it, search it and move in it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from textual import on
from textual.containers import Vertical

from dstui.logs.levels import ALL
from dstui.logs.line_query import LineQuery, as_word
from dstui.logs.log_search import WARNING
from dstui.tui.kit.tools import copy, in_thread, say
from dstui.tui.run.job_log import JobLog
from dstui.tui.run.typed_line import FILTER_EXAMPLE, SearchLine, TypedLine
from dstui.tui.session.settings import remember

if TYPE_CHECKING:
    from dstui.tui.run.watched_job import WatchedJob


class LogActions(Vertical):
    """The part of the view of a job that its log's keys act on. The log is drawn by `draw`."""

    def __init__(self) -> None:
        super().__init__(id="run")
        self.job: WatchedJob | None = None
        self.job_log = JobLog()
        self.log_view = self.job_log.view
        self.filter_line, self.search_line = TypedLine("filter", FILTER_EXAMPLE), SearchLine()

    def draw(self) -> None:
        """Draw what depends on the choice of lines."""
        raise NotImplementedError  # JobView draws; Textual's metaclass leaves no room for an abstract class

    def choose(self, **changes: Any) -> None:
        """Show other lines of the log: see Filter."""
        if self.job is not None:
            self.job_log.choose(**changes)
            self.draw()

    def action_all_ranks(self) -> None:
        """Show the log of all ranks, unfolded."""
        self.choose(rank=None, host=None, least=ALL, query=LineQuery())

    def action_level(self) -> None:
        """Show only the next level of severity and above."""
        self.choose(least=self.job_log.filter.next_level)

    def action_dedup(self) -> None:
        """Change how lines are folded: by shape, identical lines only, or not at all."""
        fold = self.job_log.filter.next_fold(self.job_log.hosts)
        self.choose(dedup=fold.dedup, shape=fold.shape)

    def action_wrap(self) -> None:
        """Toggle wrapping of long lines; the choice is remembered."""
        view = self.log_view
        top, view.wrapping.on = view.wrapping.top, not view.wrapping.on
        view.sync()
        if not view.follow:
            view.scroll_to(x=0, y=top - view.lines.first, animate=False, immediate=True)
        view.refresh()
        in_thread(self, partial(remember, "wrap", view.wrapping.on))

    def action_timestamps(self) -> None:
        """Change the times before the lines: time of day, since the start, or none; the choice is remembered."""
        in_thread(self, partial(remember, "timestamps", self.log_view.stamps.advance()))
        self.log_view.sync()
        self.log_view.refresh()

    def action_match(self, by: int) -> None:
        """Go to the next match."""
        if not self.job_log.match(by):
            say(self.app, "Nothing matches; / searches.")

    def action_filter(self) -> None:
        """Edit the filter, starting with the current one or the search text."""
        search = self.log_view.search
        begin = as_word(search.pattern, regex=search.regex) if search is not None and not search.own else ""
        current = self.job_log.filter.query.text
        self.filter_line.open(current or begin, suggested=not current)
        self.apply_filter(self.filter_line.value)

    def begin_search(self) -> None:
        """Open the search line with the current search."""
        search = self.log_view.search
        self.search_line.open(search.pattern if search is not None and not search.own else "")

    @on(TypedLine.Edited)
    def _typed(self, event: TypedLine.Edited) -> None:
        event.stop()
        closed = isinstance(event, TypedLine.Closed)
        if event.line is self.search_line:
            self.job_log.search_by(event.text, regex=self.search_line.regex, jump=closed)
            self.draw()
        else:
            self.apply_filter(event.text)
        if closed:
            self.job_log.typed_error = ""
            self.log_view.focus()

    def apply_filter(self, text: str) -> None:
        """Show only the lines that match a filter; "" shows all."""
        if self.job is not None:
            self.job_log.filter_by(text, self.job.latest)
            self.draw()

    def action_problem(self, by: int) -> None:
        """Go to the next error line."""
        if not self.job_log.problem(by):
            say(self.app, "No line has an error.")

    def action_warning(self, by: int) -> None:
        """Go to the next warning."""
        if not self.job_log.problem(by, WARNING):
            say(self.app, "No line has a warning.")

    def action_copy_all(self) -> None:
        """Copy every line that is shown, also those out of view."""
        self.run_worker(self._copy_all(), exclusive=True)

    async def _copy_all(self) -> None:
        text = await self.job_log.all_text()
        copy(self.app, text, f"{text.count(chr(10)) + 1:,} lines")

    def action_follow(self) -> None:
        """Follow the end of the log."""
        self.log_view.follow_end()
