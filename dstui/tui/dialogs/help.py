"""Help: what the field under the cursor means, with its source, and every key that is valid here."""

from __future__ import annotations

from dstui.tui.dialogs.dialog import Lines, ToRead
from dstui.tui.forms.fields import Field, help_for
from dstui.tui.kit.keys import KEYS
from dstui.tui.kit.text_row import BLANK, Row, fit, paragraph, row


class Help(Lines, ToRead):
    """Read with the arrows; any other key closes it."""

    ROWS = "help"

    def __init__(self, pane: str, field: Field | None) -> None:
        super().__init__("Help")
        self.pane, self.field = pane, field

    def lines(self) -> list[Row]:
        """The help for the place where it was called."""
        return help_rows(self.pane, self.field, self.room)


def help_rows(pane: str, field: Field | None, width: int) -> list[Row]:
    """The help as rows, `width` cells wide."""
    rows: list[Row] = []
    if field is not None:
        rows += [row((field.path.removeprefix("deepspeed."), "name")), *paragraph(help_for(field.path), width)]
        rows += [*_catalogue_rows(field.path, width), BLANK]
    shown = [k for k in KEYS if pane in k.where]
    return rows + [line for k in shown for line in paragraph(k.help, width - 10, first=row((fit(k.shown, 9), "accent")).left)]


def _catalogue_rows(path: str, width: int) -> list[Row]:
    from dstui.plan.catalogue import lookup

    key = lookup(path.removeprefix("deepspeed.")) if path.startswith("deepspeed.") else None
    if key is None:
        return []
    facts = {
        "type": key.type,
        "default": "" if key.default is None else str(key.default),
        "values": ", ".join(map(str, key.choices)),
        "ZeRO stages": ", ".join(map(str, key.stages)),
        "since": key.since or "",
        "until": key.until or "",
        "source": key.source,
    }
    named = [*facts.items(), *(("explained", page) for page in key.pages)]
    return [line for name, text in named if text for line in paragraph(text, width - 12, first=row((fit(name, 12), "dim")).left)]
