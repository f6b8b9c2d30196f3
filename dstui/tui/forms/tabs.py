"""On a narrow screen: which of form, preview and checks is shown."""

from __future__ import annotations

from textual import events
from textual.message import Message

from dstui.render.config_files import config_name
from dstui.tui.kit.row_list import RowList
from dstui.tui.kit.text_row import GLYPHS, Row, Span
from dstui.tui.session.state import State

TABS = ("form", "preview", "checks")


class TabLine(RowList):
    """One line with the names of the tabs; a click shows one."""

    MARGIN = 0
    can_focus = False

    class TabPicked(Message):
        """A tab was clicked."""

        def __init__(self, tab: str) -> None:
            super().__init__()
            self.tab = tab

    def __init__(self) -> None:
        super().__init__(id="tab-line")
        self._ends: list[tuple[int, str]] = []

    def show(self, state: State, current: str) -> None:
        """Draw the names, with what the checks found."""
        counts = " ".join(f"{GLYPHS[s]} {state.counted(s)}" for s in ("error", "warning") if state.counted(s)) or GLYPHS["ok"]
        names = {"form": "Form", "preview": config_name(state.plan.focus), "checks": f"Checks {counts if state.checked else ''}"}
        fragments: list[Span] = []
        end, self._ends = 0, []
        for tab in TABS:
            text = f" ▸{names[tab]} " if tab == current else f"  {names[tab]} "
            fragments.append(Span(text, "title" if tab == current else "dim"))
            end += len(text)
            self._ends.append((end, tab))
        self.show_rows([Row(tuple(fragments), (Span("tab", "accent"), Span(" next", "dim")))])

    def on_click(self, event: events.Click) -> None:
        """Show the tab that was clicked."""
        if tab := next((tab for end, tab in self._ends if event.x < end), ""):
            self.post_message(self.TabPicked(tab))
