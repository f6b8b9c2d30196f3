"""ds_config.json as it will be written, line for line, with a mark on the lines that the last edit changed."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from textual import on

from dstui.render.config_files import config_name
from dstui.tui.kit.frame import label
from dstui.tui.kit.row_list import RowList
from dstui.tui.kit.text_row import Row, Span
from dstui.tui.session.messages import PathChosen
from dstui.tui.session.state import State

_TOKEN = re.compile(r'("(?:[^"\\]|\\.)*")(\s*:)|("(?:[^"\\]|\\.)*")|(-?\d[\d.eE+-]*|true|false|null|-?Infinity|NaN)')


class LineKey(NamedTuple):
    """A line of ds_config.json, counted from 0, and the dotted path that it shows; "" for a bracket."""

    number: int
    path: str


class Preview(RowList):
    """The preview; choosing a line goes to the field that writes it."""

    MARGIN = 1

    def __init__(self) -> None:
        super().__init__(id="preview")

    def show(self, state: State) -> None:
        """Draw the lines, and bring a changed one into view."""
        self.show_rows([_line(line.text, line.path, number, number in state.changed) for number, line in enumerate(state.lines)])
        label(self, config_name(state.plan.focus), f"{len(state.changed)} changed" if state.changed else "")
        if state.changed and not self.has_focus:
            self._reveal_changed(state)

    @on(RowList.Chosen)
    def _chosen(self, event: RowList.Chosen) -> None:
        event.stop()
        match event.key:
            case LineKey(path=path) if path:
                self.post_message(PathChosen(f"deepspeed.{path}"))

    def _reveal_changed(self, state: State) -> None:
        top, bottom = min(state.changed), max(state.changed)
        height, at = self.size.height, self.scroll_offset.y
        if top < at or bottom >= at + height:
            self.scroll_to(y=max(min(top - 1, bottom - height // 2), 0), animate=False)


@lru_cache(maxsize=2048)
def _line(text: str, path: str, number: int, changed: bool) -> Row:
    return Row(tokens(text), key=LineKey(number, path), mark="▎" if changed else "")


def tokens(text: str) -> tuple[Span, ...]:
    """A line of JSON as coloured pieces."""
    fragments: list[Span] = []
    end = 0
    for match in _TOKEN.finditer(text):
        fragments.append(Span(text[end : match.start()], "dim"))
        key, colon, string, number = match.groups()
        fragments += [Span(key, "name"), Span(colon, "dim")] if key else [Span(string, "string")] if string else [Span(number, "number")]
        end = match.end()
    return tuple(p for p in (*fragments, Span(text[end:], "dim")) if p.text)
