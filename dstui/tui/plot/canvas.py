"""The plot widget: plotext draws it in cells. Only this file imports plotext, and only an opened plot imports this file."""

from __future__ import annotations

from rich.text import Text
from textual_plotext import PlotextPlot

from dstui.tui.kit.styles import RANKS, palette
from dstui.tui.plot.curves import Picture

SHADES = {"main": "accent", "faint": "lines", "other": "warning", "beside": "ok", "mark": "error", "axes": "dim"}
"""Kind of line -> the name of its style. Ranks have the same colours as in the log."""
COARSE = ("faint", "other")
"""Lines that have another marker than the run's own if there are no colours."""
FEW = 40
"""Up to this many values, each is drawn as a point, not only as a corner of the line."""


class Canvas(PlotextPlot):
    """A picture. Without colours, lines differ by their markers: fine dots for the run, coarse ones for others."""

    def __init__(self) -> None:
        super().__init__(id="canvas")
        self.theme = "clear"  # no background and no colours of plotext's own
        self.picture = Picture()

    def show(self, picture: Picture) -> None:
        """Draw this picture."""
        self.picture = picture
        self.refresh()

    def render(self) -> Text:
        """Return the picture in the colours of the theme."""
        self._set()
        drawn = super().render()
        assert isinstance(drawn, Text)
        return drawn

    def _set(self) -> None:
        plot, shown = self.plt, self.picture
        plot.clear_figure()
        shades = {name: self._shade(style) for name, style in SHADES.items()}
        shades |= {f"rank {n}": self._shade(f"rank {n}") for n in range(len(RANKS))}
        for attempt, step in shown.attempts.items():
            plot.vertical_line(step, color=shades["axes"])
            plot.text(f"attempt {attempt}", step, shown.y.high, color=shades["axes"], background="default", alignment=shown.side(step))
        for line in sorted(shown.lines, key=lambda line: line.style != "faint"):
            marker = "dot" if line.style in COARSE and self.app.no_color else "braille"
            plot.plot(line.xs, line.ys, marker=marker, color=shades[line.style])
            if line.style == "beside" and len(line.xs) < FEW:
                plot.scatter(line.xs, line.ys, marker="●", color=shades[line.style])
            if line.label:
                side = shown.side(line.xs[-1])
                point = "●" if line.style == "beside" else ""
                text = f"{line.label} {point}" if side == "right" else f"{point} {line.label}"
                plot.text(text.strip(), line.xs[-1], line.ys[-1], color=shades[line.style], background="default", alignment=side)
        for mark in shown.marks:
            plot.scatter([mark.x], [shown.y.high if mark.top else shown.y.low], marker="✖", color=shades["mark"])
        plot.xlim(shown.x.low, shown.x.high)
        plot.ylim(shown.y.low, shown.y.high)
        plot.xticks(shown.x.ticks, shown.x.texts)
        plot.yticks(shown.y.ticks, shown.y.texts)

    def _shade(self, style: str) -> tuple[int, int, int] | int | None:
        colour = palette(self.app.theme_variables, self.app.current_theme.ansi)[style].color
        if colour is None or colour.is_default:
            return None
        return colour.number if colour.number is not None else tuple(colour.get_truecolor())  # type: ignore[return-value]
