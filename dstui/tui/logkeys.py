"""What the keys do in the log of a job: which lines are shown, where to go in them, what to look for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual import on

from dstui.tui.dialogs.dialog import Prompt
from dstui.tui.documents import Documents
from dstui.tui.kit.row_list import RowList

if TYPE_CHECKING:
    from dstui.tui.run.run_pane import RunPane

STEP = r"\bstep\D{{0,3}}{}\b"
"""How lines name a step."""
FEW_HOSTS = 5
"""Up to so many choices a key goes round; of more hosts one is asked for by its name."""


class LogKeys(Documents):
    """The part of the app that concerns the log. Without a job its keys do nothing."""

    run_pane: RunPane | None = None

    def show_rank(self, rank: int) -> bool:
        """The log of a rank. False where no job has it."""
        pane = self.run_pane
        if pane is None or pane.follower is None or rank not in pane.follower.ranks:
            return False
        pane.show_rank(rank)
        return True

    def rank_by_digit(self, rank: int) -> None:
        """The log of the rank with this number, or why there is none."""
        if not self.show_rank(rank):
            why = self._no_rank(str(rank)) if self.watching() else "No job is looked at, so there are no ranks."
            self.say(f"{why} [ leads to the steps.")

    def watching(self) -> bool:
        """Whether a job is looked at."""
        return self.run_pane is not None and self.run_pane.folder is not None

    def action_all_ranks(self) -> None:
        """The log of all ranks, every line of it."""
        if self.run_pane is not None:
            self.run_pane.show_all()

    def action_level(self) -> None:
        """How bad a line must be to be shown."""
        if self.run_pane is not None:
            self.run_pane.choose(least=self.run_pane.log_view.filter.next_level)

    def action_fold(self) -> None:
        """Lines that several ranks said as one row, or each by itself."""
        if self.run_pane is not None:
            self.run_pane.choose(dedup=not self.run_pane.log_view.filter.dedup)

    def action_host(self) -> None:
        """The log of the next host's ranks; where there are many hosts, ask which."""
        pane = self.run_pane
        if pane is None:
            return
        hosts: list[str | None] = [None, *pane.hosts]
        if len(hosts) > FEW_HOSTS:
            self.push_screen(Prompt("Host", "Its name, or a part of it:", "", self._no_host), self._host_typed)
        elif len(hosts) == 2:
            self.say(f"All ranks are on {hosts[1]}.")
        else:
            here = pane.log_view.filter.host
            pane.choose(rank=None, host=hosts[(hosts.index(here) + 1) % len(hosts)] if here in hosts else None)

    def _host_typed(self, text: str | None) -> None:
        if text and self.run_pane is not None:
            self.run_pane.choose(rank=None, host=self._host(text))

    def _no_host(self, text: str) -> str:
        return "" if self._host(text) else f"{text or '–'} is not the name of one host of this job."

    def _host(self, text: str) -> str | None:
        """The host of this name, or the only one with it in its name."""
        hosts = self.run_pane.hosts if self.run_pane is not None else []
        found = [host for host in hosts if host == text] or [host for host in hosts if text.strip() and text.strip() in host]
        return found[0] if len(found) == 1 else None

    def action_time(self) -> None:
        """Ask for a time or a step, and go there."""
        ask = "14:02 or 14:02:11, 5m for five minutes before the end, or the number of a step:"
        self.push_screen(Prompt("Go to a time or a step", ask, "", self._no_time), self._time_typed)

    def _time_typed(self, text: str | None) -> None:
        if not text or self.run_pane is None:
            return
        if text.strip().isdecimal():
            self.run_pane.log_view.find(STEP.format(text.strip()), regex=True, name=f"step {text.strip()}")
        elif (goal := self._moment(text)) is not None:
            self.run_pane.log_view.go_to_time(goal)

    def _no_time(self, text: str) -> str:
        return "" if text.strip().isdecimal() or self._moment(text) is not None else f"{text or '–'} is neither a time nor a step."

    def _moment(self, text: str) -> float | None:
        from dstui.logs.time_parsing import moment

        return moment(text, self.run_pane.latest) if self.run_pane is not None else None

    @on(RowList.Chosen, "#log")
    def _line_chosen_in_log(self, event: RowList.Chosen) -> None:
        from dstui.logs.log_rows import LogRows
        from dstui.tui.dialogs.whole_line import WholeLine

        pane = self.run_pane
        if pane is not None and isinstance(pane.log_view.lines, LogRows) and isinstance(event.key, int):
            self.push_screen(WholeLine(pane.log_view.lines, event.key, dict(pane.log_view.hosts)))

    def action_rank(self) -> None:
        """Ask for the number of a rank."""
        self.push_screen(Prompt("Rank", "Its number:", "", self._no_rank), self._rank_typed)

    def _rank_typed(self, text: str | None) -> None:
        if text:
            self.show_rank(int(text))

    def _no_rank(self, text: str) -> str:
        ranks = self.run_pane.follower.ranks if self.run_pane is not None and self.run_pane.follower is not None else {}
        if text.strip().isdecimal() and int(text) in ranks:
            return ""
        return f"There is no rank {text or '–'}; this job has {f'0 to {max(ranks)}' if ranks else 'none yet'}."

    def search_log(self) -> None:
        """Ask what to look for."""
        from dstui.logs.query import wrong_with

        ask = "A text, in which capital letters matter only if you type one; or /a regular expression/ between slashes:"
        self.push_screen(Prompt("Search the log", ask, "", wrong_with), self._search)

    def _search(self, text: str | None) -> None:
        from dstui.logs.query import query

        pane = self.run_pane
        if pane is not None and text:
            wanted = query(text)
            pane.log_view.find(wanted.pattern, regex=wanted.regex, name=text if wanted.regex else "")
            if pane.log_view.search is not None and not pane.log_view.search.found:
                self.say(f"{text}: not found so far; its last match is shown as soon as there is one.")

    def action_match(self, by: int) -> None:
        """The next line that matches."""
        if self.run_pane is not None and not self.run_pane.log_view.match(by):
            self.say("Nothing matches; / searches.")

    def action_only_matches(self) -> None:
        """Only the lines that the search finds, or every line again."""
        if self.run_pane is not None and not self.run_pane.log_view.show_only_found():
            self.say("Nothing is searched for; / searches.")

    def action_problem(self, by: int) -> None:
        """The next line that speaks of an error."""
        if self.run_pane is not None and not self.run_pane.log_view.problem(by):
            self.say("No line speaks of an error.")

    def action_follow(self) -> None:
        """The end of the log."""
        if self.run_pane is not None:
            self.run_pane.log_view.follow_end()
