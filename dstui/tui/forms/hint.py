"""Under the form: what the field under the cursor means, its key, and why it may not be possible now."""

from __future__ import annotations

from dstui.tui.forms.fields import Field, Option, help_for
from dstui.tui.forms.next_step import HELP
from dstui.tui.kit.row_list import RowList
from dstui.tui.kit.text_row import Row, fit, paragraph, row
from dstui.tui.session.state import State


class Hint(RowList):
    """Help on one field."""

    can_focus = False
    MARGIN = 1

    def __init__(self) -> None:
        super().__init__(id="hint")

    def show(self, field: Field | None, option: Option | None, state: State) -> None:
        """Draw the help of this field, or of one of its options; of the row that leads on, where it is none."""
        width = (self.size.width or 48) - 2
        self.show_rows(hint_rows(field, option, state, width) if field else paragraph(HELP, width, "dim"))


def hint_rows(field: Field, option: Option | None, state: State, width: int) -> list[Row]:
    """The path, the help text, and the reason where the field is disabled."""
    disabled = (field.disabled(state) if field.disabled else "") or (option.disabled(state) if option and option.disabled else "")
    name = "" if field.help else field.path.removeprefix("deepspeed.")
    rows = [row((fit(name, min(len(name), width)), "name"))] if name else []
    if disabled:
        rows += paragraph(f"Not possible now: {disabled}.", width, "warning")
    elif option is not None and option.says:
        rows += paragraph(f"{option.label.strip()}: {option.says}.", width)
    return rows + paragraph(field.help(state) if field.help else help_for(field.path), width, "dim")
