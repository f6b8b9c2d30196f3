"""What lies over the app: it ends once, says its keys in the last line, and does nothing any more when it has ended.

Two answers may come in one write of a slow line, and an answer may still be on its way when the dialog has gone.
"""

from __future__ import annotations

from typing import Any, ClassVar, TypeVar

from textual import events, on
from textual.await_complete import AwaitComplete
from textual.screen import Screen

from dstui.tui.kit.footer import Footer
from dstui.tui.kit.keys import ACTIONS, PANES, valid
from dstui.tui.kit.row_list import RowList

T = TypeVar("T")


class Over(Screen[T]):
    """A dialog, or a whole screen over another one. Its parts are made with it and kept as attributes: drawn into at any time.

    Textual looks for CSS along the first base only: a class that has another base names this one last.
    """

    PANE: ClassVar[str] = ""
    """What the table of keys calls it."""

    def __init__(self, **names: Any) -> None:
        super().__init__(**names)
        self.footer = Footer()

    def offers(self, action: str) -> bool:
        """Whether the table of keys has an action for it."""
        return self.PANE in PANES.get(action, ())

    @property
    def on_top(self) -> bool:
        """Whether it is there, and nothing lies over it."""
        return self.app.screen_stack[-1:] == [self]

    def dismiss(self, result: T | None = None) -> AwaitComplete:
        """End with this result. What has ended, or has another dialog over it, stays as it is: anybody may call this at any time."""
        return super().dismiss(result) if self.on_top else AwaitComplete()

    @on(events.Mount)
    @on(RowList.Resized)
    def _show_keys(self) -> None:
        self.footer.show(valid(self.PANE, ACTIONS))
