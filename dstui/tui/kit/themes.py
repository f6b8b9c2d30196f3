"""dstui's own colours: quiet greys, one blue for what can be acted on, and the three colours of a verdict."""

from __future__ import annotations

from textual.theme import Theme

DARK = Theme(
    name="dstui",
    primary="#7aa7e0",
    secondary="#8a97ab",
    accent="#7aa7e0",
    foreground="#d3d8e0",
    background="#12161c",
    surface="#171c24",
    panel="#212832",
    success="#7fbf8f",
    warning="#dcb167",
    error="#e5786d",
    dark=True,
    variables={
        "input-selection-background": "#7aa7e0 35%",
        "input-cursor-background": "#d3d8e0",
        "input-cursor-foreground": "#12161c",
        "scrollbar": "#2b333f",
        "scrollbar-hover": "#3a4554",
        "scrollbar-active": "#4c5a6e",
        "scrollbar-background": "#12161c",
        "scrollbar-background-hover": "#12161c",
        "scrollbar-background-active": "#12161c",
    },
)
LIGHT = Theme(
    name="dstui-light",
    primary="#2b5fa8",
    secondary="#5b6675",
    accent="#2b5fa8",
    foreground="#22272e",
    background="#f6f7f9",
    surface="#eceff3",
    panel="#dde2e9",
    success="#2f7d46",
    warning="#8f6200",
    error="#b3382c",
    dark=False,
)
