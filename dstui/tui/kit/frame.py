"""What the frame around a part of the screen says."""

from __future__ import annotations

from textual.content import Content
from textual.widget import Widget

ONE_LINE = str.maketrans("\t\n\r", "   ")


def label(widget: Widget, title: str, subtitle: str = "") -> None:
    """Write `title` into the top of a frame and `subtitle` into its bottom.

    Textual paints a widget anew, with all that lies in it, whenever a title is set: so only what differs is.
    """
    for name, text in (("border_title", title), ("border_subtitle", subtitle)):
        content = Content(text.translate(ONE_LINE))
        if (getattr(widget, name) or "") != content.markup:
            setattr(widget, name, content)
