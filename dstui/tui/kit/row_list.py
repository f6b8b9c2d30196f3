"""The only list widget: forms, steps, preview, checks and artifacts are rows with a cursor.

A line-API widget mounts in about a millisecond, while Select or RadioSet take ten each and OptionList fifteen. Only the lines that differ
from the screen are repainted.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import ClassVar

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual import events, on
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.geometry import Region, Size
from textual.message import Message
from textual.messages import Update
from textual.reactive import reactive
from textual.scroll_view import ScrollView
from textual.selection import Selection
from textual.strip import Strip

from dstui.tui.kit.styles import palette
from dstui.tui.kit.text_row import Row


class RowList(ScrollView, can_focus=True):
    """Rows of text, with a cursor on those that have a key."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", "up", show=False),
        Binding("down,j", "move(1)", "down", show=False),
        Binding("pageup", "page(-1)", "page up", show=False),
        Binding("pagedown", "page(1)", "page down", show=False),
        Binding("home", "edge(-1)", "first", show=False),
        Binding("end", "edge(1)", "last", show=False),
        Binding("enter", "choose", "choose", show=False),
    ]
    MARGIN: ClassVar[int] = 2
    """Cells at the left for the cursor's pointer or a row's mark."""

    KEEPS_POINTER: ClassVar[bool] = False
    """True if the cursor's row has a pointer also while the focus is elsewhere."""

    cursor: reactive[Hashable | None] = reactive(None, init=False)

    class _AtRow(Message):
        """Base of messages about the row with this key."""

        def __init__(self, rows: RowList, key: Hashable) -> None:
            super().__init__()
            self.rows, self.key = rows, key

        @property
        def control(self) -> RowList:
            """Return the list that the row belongs to."""
            return self.rows

    class Chosen(_AtRow):
        """A row was chosen by Enter or a click."""

    class Moved(_AtRow):
        """The cursor has moved to another row."""

    class Resized(Message):
        """The width has changed: wrapped rows must be wrapped anew."""

        def can_replace(self, message: Message) -> bool:
            """Return True: one message is enough, whichever list was resized."""
            return isinstance(message, RowList.Resized)

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self.rows: tuple[Row, ...] = ()
        self._styles_by_name: dict[str, Style] = {}
        self._tip = ""
        self._painting = False
        self._last_height = 0
        """The height before a change of size."""

    # Drawing

    def show_rows(self, rows: Sequence[Row]) -> None:
        """Replace the rows; the cursor stays on its key, and only lines that differ are painted again."""
        old, self.rows = self.rows, tuple(rows)
        differ = [y for y in range(max(len(old), len(self.rows))) if old[y : y + 1] != self.rows[y : y + 1]]
        for y in differ:
            self.refresh_line(y)
        if differ and self.is_attached:
            self.screen.post_message(Update(self))  # into the current frame: by itself the update would arrive a frame or two later
        width = max((self._width_of(r) for r in self.rows), default=0) if self.styles.overflow_x != "hidden" else self.size.width
        size = Size(width, len(self.rows))
        if size != self.virtual_size:
            self.virtual_size = size
        keys = self.keys
        if self.cursor not in keys:
            before = next((n for n, r in enumerate(old) if r.key == self.cursor and r.key is not None), 0)
            near = [r.key for r in self.rows[: before + 1] if r.key is not None] or keys
            self.cursor = near[-1] if near and self.cursor is not None else (keys[0] if keys else None)

    @property
    def keys(self) -> list[Hashable]:
        """Return the keys of the rows that the cursor can be on, in order."""
        return [r.key for r in self.rows if r.key is not None]

    def index_of(self, key: Hashable) -> int | None:
        """Return the line of the row with this key."""
        return next((n for n, r in enumerate(self.rows) if r.key == key), None) if key is not None else None

    @staticmethod
    def _width_of(shown: Row) -> int:
        return RowList.MARGIN + sum(cell_len(s.text) for s in shown.left + shown.right) + (2 if shown.right else 0)

    def on_resize(self, _event: events.Resize) -> None:
        """Ask for rows of the new width, and keep the cursor in view if it was."""
        before, self._last_height = self._last_height, self.size.height
        y = self.index_of(self.cursor)
        if y is not None and 0 <= y - self.scroll_offset.y < before:
            self.reveal(self.cursor)
        self.post_message(self.Resized())

    # Moving and choosing

    def action_move(self, by: int) -> None:
        """Move to the next or previous row with a key; scroll if there are none."""
        keys = self.keys
        if not keys:
            self.scroll_relative(y=by, animate=False)
            return
        at = keys.index(self.cursor) if self.cursor in keys else -1
        to = min(max(at + by, 0), len(keys) - 1)
        if to == at and by < 0:
            self.scroll_to(y=0, animate=False)  # scrolls back to the title above the first row
        self.cursor = keys[to]

    def action_page(self, by: int) -> None:
        """Move by a page."""
        at = self.index_of(self.cursor) or 0
        goal = at + by * max(self.size.height - 2, 1)
        ahead = [r.key for r in self.rows[min(at, max(goal, 0)) : max(at, goal) + 1] if r.key is not None]
        if ahead:
            self.cursor = ahead[-1 if by > 0 else 0]
        else:
            self.scroll_relative(y=by * self.size.height, animate=False)

    def action_edge(self, to: int) -> None:
        """Move to the first or the last row."""
        if keys := self.keys:
            self.cursor = keys[0 if to < 0 else -1]
        self.scroll_to(y=0 if to < 0 else len(self.rows), animate=False)

    def action_choose(self) -> None:
        """Choose the row under the cursor."""
        if self.cursor is not None:
            self.post_message(self.Chosen(self, self.cursor))

    def has_row(self, key: Hashable) -> bool:
        """Return whether a row with this key still exists."""
        return self.index_of(key) is not None

    @on(Chosen)
    @on(Moved)
    def _drop_stale_message(self, event: _AtRow) -> None:
        """Stop a message about a row that was removed after the message was posted."""
        if event.rows is self and not self.has_row(event.key):
            event.stop()

    def on_click(self, event: events.Click) -> None:
        """Move the cursor to the clicked row and choose it."""
        y = event.y - self.gutter.top + self.scroll_offset.y
        if 0 <= y < len(self.rows) and (key := self.rows[y].key) is not None:
            self.cursor = key
            self.post_message(self.Chosen(self, key))

    def tip_at(self, x: int, y: int) -> str:  # noqa: ARG002 - each list has its own
        """Return what is said of the place that the mouse rests on, `x` cells to the right in row `y`; "" for nothing."""
        return ""

    def on_mouse_move(self, event: events.MouseMove) -> None:
        """Textual shows the tooltip once the mouse rests."""
        text = self.tip_at(event.x - self.gutter.left, event.y - self.gutter.top + self.scroll_offset.y)
        if text != self._tip:
            self._tip, self.tooltip = text, Content(text) if text else None

    def watch_cursor(self, before: Hashable, now: Hashable) -> None:
        """Repaint both lines, and scroll to the new one."""
        for key in (before, now):
            if (y := self.index_of(key)) is not None:
                self.refresh_line(y)
        if now is not None:
            self.reveal(now)
            self.post_message(self.Moved(self, now))

    def reveal(self, key: Hashable, below: int = 0) -> None:
        """Scroll as little as needed to show the row and this many lines below it."""
        y, height, top = self.index_of(key), self.size.height, self.scroll_offset.y
        if y is None or height <= 0:
            return
        if y < top or y + below >= top + height:
            self.scroll_to(y=y - 1 if y < top else y + below - height + 1, animate=False)

    # Painting

    def style_named(self, name: str) -> Style:
        """Return the style of a name, on this widget's own background."""
        if not self._styles_by_name:
            base, app = self.rich_style, self.app
            styles = palette(app.theme_variables, app.current_theme.ansi, plain=app.no_color)
            self._styles_by_name = {each: base + style for each, style in styles.items()}
        return self._styles_by_name[name]

    def notify_style_update(self) -> None:
        """Look colours up again after a change of theme or focus."""
        super().notify_style_update()
        self._styles_by_name = {}

    def render_lines(self, crop: Region) -> list[Strip]:
        """Return visible lines, to be painted."""
        self._painting = True
        try:
            return super().render_lines(crop)
        finally:
            self._painting = False

    def render_line(self, y: int) -> Strip:
        """Return one visible line: as painted, or when Textual looks a place of the mouse up, with the offset of each segment.

        With offsets, no two lines have the same styles, and none is found in the caches of Rich and Textual.
        """
        strip, offset = self.painted_line(y), None if self._painting else self.offset_of(y)
        return strip if offset is None else strip.apply_offsets(*offset)

    def offset_of(self, y: int) -> tuple[int, int] | None:
        """Return how many cells of its line precede a visible row, and which line that is; None below the last one."""
        x, number = self.scroll_offset.x, y + self.scroll_offset.y
        return (x, number) if number < len(self.rows) else None

    def painted_line(self, y: int) -> Strip:
        """Return one visible line."""
        scroll_x, scroll_y = self.scroll_offset
        number, width = y + scroll_y, self.size.width
        if number >= len(self.rows):
            return Strip.blank(width, self.style_named(""))
        shown = self.rows[number]
        here = shown.key is not None and shown.key == self.cursor
        back = Style(bgcolor=self.style_named("cursor").bgcolor) if here and self.has_focus else Style()
        strip = Strip(self._segments(shown, here, back, max(width, self.virtual_size.width if scroll_x else width)))
        last = self.scrollable_content_region.width - 1
        goes_on = not shown.right and strip.cell_length > scroll_x + last + 1 and strip.crop(scroll_x + last + 1).text.strip()
        strip = strip.crop_extend(scroll_x, scroll_x + width, self.style_named("") + back)
        if goes_on:
            strip = Strip.join([strip.crop(0, last), Strip([Segment("…", self.style_named("dim") + back)]), strip.crop(last + 1)])
        return self._selected(strip, number)

    def _segments(self, shown: Row, here: bool, back: Style, width: int) -> list[Segment]:
        pointer = "▸" if here and self.has_focus else "›" if here and self.KEEPS_POINTER else ""
        first = Segment((pointer or shown.mark).ljust(self.MARGIN), self.style_named("pointer" if pointer else "mark") + back)
        left = [Segment(s.text, self.style_named(s.style) + back) for s in shown.left]
        if shown.right:
            right = [Segment(s.text, self.style_named(s.style) + back) for s in shown.right]
            room = width - self.MARGIN - Segment.get_line_length(right) - 1
            plain = self.style_named("") + back
            left = [*_with_space(Strip(left).crop_extend(0, max(room, 0), plain), plain), *right, Segment(" ", plain)]
        return [first, *left] if self.MARGIN else left

    def _selected(self, strip: Strip, y: int) -> Strip:
        selection = self.text_selection
        if selection is None or (part := selection.get_span(y)) is None:
            return strip
        start, end = part
        end = strip.cell_length if end == -1 else end
        ground = Style(bgcolor=self.screen.get_component_rich_style("screen--selection").bgcolor)
        chosen = strip.crop(start, end)  # `Strip.apply_style` would put the ground under that of the text, which hides it
        chosen = Strip(Segment.apply_style(chosen, post_style=ground), chosen.cell_length)
        return Strip.join([strip.crop(0, start), chosen, strip.crop(end)])

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        """Return the text selected with the mouse."""
        lines = [" " * self.MARGIN + r.text for r in self.rows]
        return selection.extract("\n".join(lines)), "\n"

    def selection_updated(self, selection: Selection | None) -> None:  # noqa: ARG002
        """Repaint after the selection has changed."""
        self.refresh()


def _with_space(left: Strip, plain: Style) -> Strip:
    """Return the left part of a row with a space before the text at the right; where there is no room for one, cut it short."""
    room = left.cell_length
    if room < 2 or left.text.endswith(" "):
        return left
    return Strip([*left.crop(0, room - 2), Segment("… ", plain)])
