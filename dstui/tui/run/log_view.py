"""The log widget: lines by number, painted only when visible, so that its cost does not depend on the size of the log.

Textual's own log widgets do not survive training logs (Log freezes at its limit, RichLog saturates at 5,000 lines a second); this one shows
100,000 a second with a fifth of a core. Reading is never disturbed: new lines are only followed from the end.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import ClassVar

from rich.cells import cell_len
from rich.color import Color
from rich.segment import Segment
from rich.style import Style
from rich.terminal_theme import TerminalTheme
from textual import events, on
from textual.binding import Binding, BindingType
from textual.geometry import Region, Size
from textual.scrollbar import ScrollDown, ScrollTo, ScrollUp
from textual.selection import Selection
from textual.strip import Strip

from dstui.logs.colours import Colour, Paint, Run
from dstui.logs.levels import ALL, ERROR, level_of
from dstui.logs.log_blocks import EmptyLog, LogLine
from dstui.logs.log_rows import LogRows
from dstui.logs.log_search import Search
from dstui.tui.kit.row_list import RowList
from dstui.tui.kit.styles import RANKS
from dstui.tui.kit.text_row import fit
from dstui.tui.run.line_layout import WHO, Stamps, Wrapping
from dstui.tui.run.log_marks import LogMarks
from dstui.tui.run.shown_lines import ShownLines

AHEAD = 4
"""Blocks that are read when the user comes near the first one."""
BETWEEN = 0.02
"""Seconds from a painting in which lines were late to the next one."""
GOES_ON = "›"
"""At the end of a line that is cut at the edge."""


class LogView(RowList):
    """A window on numbered lines. `follow` keeps the end visible until the user scrolls away from it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left", "sideways(-16)", "left", show=False),
        Binding("right", "sideways(16)", "right", show=False),
    ]

    def __init__(self) -> None:
        super().__init__(id="log", classes="pane")
        self.lines: LogRows | EmptyLog = EmptyLog()
        self.shown = ShownLines()
        self.follow = True
        self.search: Search | None = None
        self.at: int | None = None
        """The line that was jumped to or clicked."""
        self._first = 0
        self._end_shown = 0
        self._width = 0
        self._repaints = False  # whether lines that were late are to be painted soon
        self._height = 0
        self._home = False  # whether the beginning is being searched
        self._hosts: Mapping[int, str] = {}
        self.host_width = 0
        self.stamps, self.wrapping, self.marks = Stamps(), Wrapping(self), LogMarks()

    # Content

    def show_lines(self, lines: LogRows) -> None:
        """Show another log, from its end."""
        self.lines, self.follow, self.at, self._first, self._width, self._home = lines, True, None, lines.first, 0, False
        self.marks.begin(lines)
        self.shown.begin(lines)
        self.sync()
        self.refresh()

    def show_hosts(self, names: Mapping[int, str]) -> None:
        """Set rank -> host name for the prefixes; empty: no host in the prefixes."""
        self._hosts = names
        self.host_width = max(map(cell_len, names.values()), default=-1) + 1
        self.refresh()

    def sync(self) -> None:
        """Take over new lines at both ends: follow the end, or keep the visible lines in place."""
        gone, self._first = self.lines.first - self._first, self.lines.first
        below = max(self.size.height - 1, 0) if self.wrapping.on else 0  # any line may be the first visible one
        width = self.wrapping.room if self.wrapping.on else max(self._width, self.size.width)
        size = Size(width, self.lines.end - self.lines.first + below)
        grew, self.virtual_size = size != self.virtual_size or gone, size
        if self.follow:
            self.scroll_to(y=self.wrapping.end_offset, animate=False, immediate=True)
            self._end_shown = self.lines.end
        elif gone:
            self.scroll_to(y=0 if self._home else max(self.scroll_offset.y - gone, 0), animate=False, immediate=True)
        if self._home or self.scroll_offset.y < AHEAD * self.size.height:
            self.lines.wanted = max(self.lines.wanted, AHEAD)
        if grew:
            self.refresh()

    def _scrolled(self) -> None:
        """Handle scrolling by the user: at the end new lines are followed, elsewhere they are only counted."""
        at_end = self.wrapping.at_end
        if self.follow and not at_end:
            self._end_shown = self.lines.end
        self.follow = at_end
        if at_end and self.wrapping.on:
            self.scroll_to(y=self.wrapping.end_offset, animate=False, immediate=True)

    @property
    def unseen(self) -> int:
        """Return the number of lines that arrived since following stopped."""
        return 0 if self.follow else self.lines.end - self._end_shown

    def follow_end(self) -> None:
        """Return to the newest line."""
        self.follow, self.at, self._home = True, None, False
        self.scroll_to(y=self.wrapping.end_offset, animate=False, immediate=True)
        self.sync()

    def go_to(self, number: int) -> None:
        """Centre a line in the view, and stop following."""
        self.at, self.follow, self._end_shown, self._home = number, False, self.lines.end, False
        self.scroll_to(y=self.wrapping.offset_around(number), animate=False, immediate=True)
        self.refresh()

    @property
    def reading(self) -> int:
        """Return the line from which a search continues: the one jumped to, else the last visible one."""
        return self.at if self.at is not None else (self.wrapping.in_view or [self.lines.first])[-1]

    # Moving

    def on_resize(self, _event: events.Resize) -> None:
        """Keep the end at the bottom, or the line that was jumped to in view."""
        before, self._height = self._height, self.size.height
        if self.follow:
            self.scroll_to(y=self.wrapping.end_offset, animate=False, immediate=True)
        elif self.at is not None and 0 <= self.at - self.wrapping.top < before and self.at not in self.wrapping.in_view:
            self.scroll_to(y=self.wrapping.offset_around(self.at), animate=False, immediate=True)

    def action_move(self, by: int) -> None:
        """Scroll by a line."""
        self._scroll(by)

    def action_page(self, by: int) -> None:
        """Scroll by a page."""
        self._scroll(by * max(len(self.wrapping.in_view) - 1, 1))

    def _scroll(self, by: int) -> None:
        self.at, self._home = None, False
        self.scroll_to(y=min(max(self.scroll_offset.y + by, 0), self.max_scroll_y), animate=False, immediate=True)
        self._scrolled()

    def action_edge(self, to: int) -> None:
        """Scroll to the beginning or the end."""
        if to > 0:
            self.follow_end()
        else:
            self._scroll(-self.virtual_size.height)
            self._home = True

    def has_row(self, key: Hashable) -> bool:
        """Return whether the log still has a line of this number; the oldest may have been dropped."""
        return isinstance(key, int) and self.lines.first <= key < self.lines.end

    def action_choose(self) -> None:
        """Show a line in full: the one jumped to or clicked, else the last visible one."""
        if self.lines.end > self.lines.first:
            self.post_message(self.Chosen(self, min(self.reading, self.lines.end - 1)))

    def action_sideways(self, by: int) -> None:
        """Scroll sideways in long lines."""
        self.scroll_to(x=min(max(self.scroll_offset.x + by, 0), self.max_scroll_x), animate=False, immediate=True)

    @on(events.MouseScrollUp)
    @on(events.MouseScrollDown)
    @on(ScrollTo)
    @on(ScrollUp)
    @on(ScrollDown)
    def _scrolls(self) -> None:
        """Handle the wheel and the scroll bar as scrolling, once they have moved."""
        self.call_later(self._scrolled)

    def on_click(self, event: events.Click) -> None:
        """Mark the clicked line; show it in full on the second click."""
        number = self.wrapping.line_at(event.y - self.gutter.top)
        if self.lines.first <= number < self.lines.end:
            if self.at == number:
                self.action_choose()
            self.at, self.follow, self._end_shown = number, False, self.lines.end
            self.refresh()

    # Painting

    def render_lines(self, crop: Region) -> list[Strip]:
        """Return visible lines, to be painted; those that are late are painted soon."""
        with self.shown.painting():
            strips = super().render_lines(crop)
        if self.shown.late and not self._repaints:
            self._repaints = True
            self.set_timer(BETWEEN, self._repaint)
        return strips

    def _repaint(self) -> None:
        self._repaints = False
        self.refresh()

    def offset_of(self, y: int) -> tuple[int, int] | None:
        """Return how many cells of its line precede a visible row, and which line that is; None below the last one."""
        number = self.wrapping.line_at(y)
        if number >= self.lines.end:
            return None
        before = self.wrapping.before(y) if self.wrapping.on else self.scroll_offset.x
        return before, number - self.lines.first

    def painted_line(self, y: int) -> Strip:
        """Return one visible line."""
        width, blank = self.size.width, Strip.blank(self.size.width, self.style_named(""))
        number, before = self.wrapping.line_at(y), self.scroll_offset.x
        if number >= self.lines.end:
            return blank
        here = number == self.at
        strip, row = Strip(self._line_segments(self.shown.line(number), here=here)), number - self.lines.first
        self._width = max(self._width, strip.cell_length)
        if self.wrapping.on:
            strip = self.wrapping.part(self._selected(strip, row), y, blank).adjust_cell_length(width, self.style_named(""))
        else:
            goes_on = strip.cell_length > before + self.wrapping.room
            strip = self._selected(strip.crop_extend(before, before + width, self.style_named("")), row)
            strip = self._marked(strip) if goes_on else strip
        return on_ground(strip, self.style_named("").bgcolor, self.style_named("cursor").bgcolor) if here else strip

    def _marked(self, strip: Strip) -> Strip:
        """Return a line with a mark in its last visible cell: the rest is at its right."""
        last = self.wrapping.room - 1
        return Strip.join([strip.crop(0, last), Strip([Segment(GOES_ON, self.style_named("mark"))]), strip.crop(last + 1)])

    def _line_segments(self, line: LogLine, *, here: bool) -> list[Segment]:
        dim = self.style_named("dim")
        name = "•" if line.notice else f"×{line.repeats}" if line.repeats > 1 else "" if line.rank is None else f"r{line.rank}"
        colour = self.style_named(f"rank {line.rank % len(RANKS)}") if line.rank is not None and line.repeats == 1 else Style()
        stamp = [Segment(self.stamps.text(line.time), dim)] if self.stamps.width(self.lines.since) else []
        host = self._hosts.get(line.rank, "") if line.rank is not None and line.repeats == 1 else ""
        where = [Segment(fit(host, self.host_width), dim)] if self.host_width else []
        who = Segment(f"{name:>{WHO - 1}}{'' if here else ' '}", colour or dim)
        pointer = [Segment("▸", self.style_named("pointer"))] if here else []
        return [*stamp, *where, who, *pointer, *_text_segments(self, line)]

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        """Return the text selected with the mouse, as far as it is still kept."""
        height = self.lines.end - self.lines.first
        top = selection.start.y if selection.start else 0
        bottom = min(selection.end.y if selection.end else height - 1, height - 1)
        margin = " " * self.wrapping.margin
        chosen = [f"{margin}{self.lines.line(self.lines.first + y).text}" for y in range(top, bottom + 1)]
        return selection.extract("\n" * top + "\n".join(chosen)), "\n"


def _text_segments(view: LogView, line: LogLine) -> list[Segment]:
    style = view.style_named(_style_of(line))
    coloured = line.runs and not view.app.no_color
    segments = painted(line.runs, style, view.app.ansi_theme) if coloured else [Segment(line.text, style)]
    if view.search is None:
        return segments
    return highlighted(segments, [match.span() for match in view.search.expression.finditer(line.text)], view.style_named("found"))


def _style_of(line: LogLine) -> str:
    level = level_of(line.text.encode()) if line.rank is not None else ALL
    return "accent" if line.notice else "dim" if line.rank is None else "error" if level == ERROR else "warning" if level else ""


def on_ground(strip: Strip, was: Color | None, ground: Color | None) -> Strip:
    """Return a line with another background; text with one of its own, such as a match, keeps that."""
    segments = [Segment(text, style + Style(bgcolor=ground) if style and style.bgcolor == was else style) for text, style, _ in strip]
    return Strip(segments, strip.cell_length)


NEAR = 40
"""Of 255: if two colours differ by less in red, green and blue, text in one is unreadable on the other."""


def painted(runs: Iterable[Run], base: Style, theme: TerminalTheme) -> list[Segment]:
    """Return text in its script's colours on the style `base`. `theme`: the first sixteen colours."""
    return [Segment(text, base + style_of(paint, base.bgcolor, theme)) for text, paint in runs]


@lru_cache(maxsize=1024)
def style_of(paint: Paint, behind: Color | None, theme: TerminalTheme) -> Style:
    """Return the style on this background. Colours that would make the text invisible are left out."""
    colour, ground = _color(paint.colour), _color(paint.ground)
    if colour is not None and _near(colour, ground or behind, theme):
        colour = ground = None
    return Style(
        color=colour,
        bgcolor=ground,
        bold=paint.bold or None,
        dim=paint.dim or None,
        italic=paint.italic or None,
        underline=paint.underline or None,
        reverse=paint.reverse or None,
        strike=paint.strike or None,
    )


def _color(colour: Colour | None) -> Color | None:
    if colour is None:
        return None
    return Color.from_ansi(colour) if isinstance(colour, int) else Color.from_rgb(*colour)


def _near(colour: Color, behind: Color | None, theme: TerminalTheme) -> bool:
    if behind is None or behind.is_default:
        return False
    return all(abs(one - other) < NEAR for one, other in zip(colour.get_truecolor(theme), behind.get_truecolor(theme), strict=True))


def highlighted(segments: Iterable[Segment], spans: Sequence[tuple[int, int]], found: Style) -> list[Segment]:
    """Return the segments with another style at these positions (in characters, ascending)."""
    made, start, next_span = [], 0, 0
    for text, style, _ in segments:
        end, at = start + len(text), start
        while next_span < len(spans) and spans[next_span][0] < end:
            first, last = max(spans[next_span][0], at), min(spans[next_span][1], end)
            made += [
                Segment(text[at - start : first - start], style),
                Segment(text[first - start : last - start], (style or found) + found),
            ]
            at = last
            if spans[next_span][1] > end:
                break  # it continues in the next segment
            next_span += 1
        made.append(Segment(text[at - start :], style))
        start = end
    return [segment for segment in made if segment.text] or [Segment("")]
