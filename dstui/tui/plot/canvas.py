"""The plot widget: rows that a picture is drawn in. Only an opened plot imports this file."""

from __future__ import annotations

from dstui.tui.kit.row_list import RowList
from dstui.tui.plot.cells import picture_rows
from dstui.tui.plot.curves import Picture


class Canvas(RowList):
    """A picture."""

    can_focus = False
    MARGIN = 0

    def __init__(self) -> None:
        super().__init__(id="canvas")

    def show(self, picture: Picture) -> None:
        """Draw this picture; no axes around nothing."""
        drawn = picture.lines or picture.marks
        self.show_rows(picture_rows(picture, self.size.width, self.size.height, colours=not self.app.no_color) if drawn else [])
