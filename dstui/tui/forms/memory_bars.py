"""Between the form and its help: whether it will fit."""

from __future__ import annotations

from dstui.tui.kit.breakpoints import ROOMY
from dstui.tui.kit.row_list import RowList
from dstui.tui.session.state import State

PLACES_AND_SPEED = 5
"""Lines on a screen that has room for them: three places, the speed and what was measured; on another there is one in all."""


class Memory(RowList):
    """What is needed of GPU, RAM and NVMe, as bars."""

    can_focus = False
    MARGIN = 1

    def __init__(self) -> None:
        super().__init__(id="memory")

    def show(self, state: State) -> None:
        """Draw it. The height is set only where it is another one, for this lays the screen out anew."""
        if not state.lookups:
            return
        from dstui.tui.forms.memory_rows import memory_rows  # which the first frame does without

        roomy = self.app.size.height >= ROOMY
        rows = memory_rows(state, (self.size.width or 48) - 2, PLACES_AND_SPEED if roomy else 1)
        self.show_rows(rows)
        height = len(rows) + roomy
        if self.styles.height is None or self.styles.height.value != height:
            self.styles.height = height
            self.set_class(roomy, "-roomy")
