"""The panes under the form: memory bars, and help on the field under the cursor."""

from __future__ import annotations

from dstui.tui.forms.fields import Field, Option, help_for, why_fixed
from dstui.tui.forms.form_rows import HELP
from dstui.tui.kit.breakpoints import ROOMY
from dstui.tui.kit.row_list import RowList
from dstui.tui.kit.text_row import Row, fit, paragraph, row
from dstui.tui.session.state import State

PLACES_AND_SPEED = 5
"""Lines on a screen with enough room: three places, the speed and measured runs; on others there is one line."""


class Memory(RowList):
    """The need of GPU, RAM and NVMe as bars."""

    can_focus = False
    MARGIN = 1

    def __init__(self) -> None:
        super().__init__(id="memory")

    def show(self, state: State) -> None:
        """Draw the bars. The height is set only if it changes, since that causes a new layout."""
        if not state.lookups:
            return
        from dstui.tui.forms.memory_rows import memory_rows  # not needed for the first frame

        roomy = self.app.size.height >= ROOMY
        rows = memory_rows(state, (self.size.width or 48) - 2, PLACES_AND_SPEED if roomy else 1)
        self.show_rows(rows)
        height = len(rows) + roomy
        if self.styles.height is None or self.styles.height.value != height:
            self.styles.height = height
            self.set_class(roomy, "-roomy")


class Hint(RowList):
    """Help on one field."""

    can_focus = False
    MARGIN = 1

    def __init__(self) -> None:
        super().__init__(id="hint")

    def show(self, field: Field | None, option: Option | None, state: State) -> None:
        """Draw the help of this field or of one of its options; of the row that leads on if there is none."""
        width = (self.size.width or 48) - 2
        self.show_rows(hint_rows(field, option, state, width) if field else paragraph(HELP, width, "dim"))


def hint_rows(field: Field, option: Option | None, state: State, width: int) -> list[Row]:
    """Return the path, the help text, and the reason if the field is disabled."""
    disabled = why_fixed(field, state) or (option.disabled(state) if option and option.disabled else "")
    name = "" if field.help else field.path.removeprefix("deepspeed.")
    rows = [row((fit(name, min(len(name), width)), "name"))] if name else []
    if disabled:
        rows += paragraph(f"Not possible now: {disabled}.", width, "warning")
    elif option is not None and option.says:
        rows += paragraph(f"{option.label.strip()}: {option.says}.", width)
    return rows + paragraph(field.help(state) if field.help else help_for(field.path), width, "dim")
