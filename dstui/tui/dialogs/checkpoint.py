"""The checkpoint dialog: its contents, whether the Plan can resume from it, and the progress of a conversion."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from textual import events

from dstui.base.text import sanitise
from dstui.checkpoints.convert import ConversionCost, conversion_problem, describe_checkpoint, format_gib
from dstui.tui.dialogs.dialog import WIDTH, Answer, Ask, Lines
from dstui.tui.kit.text_row import BLANK, GLYPHS, STYLE_OF, Row, Span, fit, paragraph, row

if TYPE_CHECKING:
    from dstui.checkpoints.checkpoint import Checkpoint
    from dstui.plan.finding import Finding

NAME = 12
"""Cells for what a line is about."""
FP32, UNIVERSAL, OTHER, GO_ON = "fp32", "universal", "tag", "go on"
BAR = 30


class CheckpointDialog(Ask):
    """The contents of a checkpoint. Result: what to convert it to (fp32 or universal), or another tag to show."""

    def __init__(self, found: Checkpoint, resume: Sequence[Finding], arguments: Sequence[str], line: str) -> None:
        """`arguments` with which the script goes on from it; `line`: what it would say where it takes none."""
        answers = []
        if arguments and not resume:
            answers.append(Answer("g", "resume from it: the script gets these arguments", GO_ON))
        if not (why := conversion_problem(found)):
            answers += [
                Answer("f", "write whole 32-bit weights (safetensors)", FP32),
                Answer("u", "convert it for any number of ranks (universal)", UNIVERSAL),
            ]
        if len(found.tags) > 1:
            answers.append(Answer("t", f"show another of its {len(found.tags)}", OTHER))
        super().__init__(f"Checkpoint {sanitise(found.tag or found.folder.name)}", sanitise(str(found.path)), answers)
        how = how_rows(arguments, line, WIDTH - 2) if not resume else []
        self.details = (*checkpoint_rows(found, resume, why, WIDTH - 2), *how)


def checkpoint_rows(found: Checkpoint, resume: Sequence[Finding], why_not: str, width: int) -> list[Row]:
    """Return the facts of a checkpoint, then whether the Plan can resume from it."""
    rows = []
    for name, text, severity in describe_checkpoint(found):
        style = STYLE_OF[severity] if severity else ""
        rows += paragraph(sanitise(text), width - NAME, style, first=(Span(fit(name, NAME), style or "dim"),))
    rows += [BLANK, row(("To resume from it with this Plan", "title"))]
    if not resume:
        rows.append(row((f"{GLYPHS['ok']} ", "ok"), f"possible: training would resume from step {found.step}"))
    for finding in resume:
        rows += paragraph(sanitise(finding.message), width, first=(Span(f"{GLYPHS['error']} ", "error"),))
        if finding.fix:
            rows += paragraph(sanitise(finding.fix.text), width - 3, "value", first=(Span("  → ", "accent"),))
    if why_not and not found.problems:
        rows += [BLANK, *paragraph(f"It cannot be converted: {sanitise(why_not)}.", width, "dim")]
    return [*rows, BLANK]


def how_rows(arguments: Sequence[str], line: str, width: int) -> list[Row]:
    """Return how a run goes on from a checkpoint: the arguments of its script, or the line that it needs."""
    arrow = (Span("  → ", "accent"),)
    if arguments:
        return [*paragraph(sanitise(shlex.join(arguments)), width - 3, "value", first=arrow), BLANK]
    text = "No option of the script for it was found. It needs:"
    return [*paragraph(text, width, "dim"), *paragraph(sanitise(line), width - 3, "value", first=arrow), BLANK]


def cost_text(cost: ConversionCost, target: str) -> str:
    """Return the disk space and memory that a conversion needs."""
    needs = f"It takes about {format_gib(cost.memory)} of memory ({format_gib(cost.memory_free)} free) and {format_gib(cost.disk)} of disk"
    text = f"{needs} ({format_gib(cost.disk_free)} free), and is written to {sanitise(target)}."
    return f"{text} TOO MUCH: {cost.too_much}." if cost.too_much else text


class Converting(Lines):
    """A running conversion. Closing the dialog cancels it; when it has ended, the dialog shows the result."""

    ROWS = "converting"

    def __init__(self, title: str, whole: int, cancel: Callable[[], object]) -> None:
        super().__init__(title)
        self.whole, self.cancel = max(whole, 1), cancel
        self.written, self.tool_line, self.ended = 0, "DeepSpeed's tool is starting…", ("", "")

    def show(self, line: str, written: int) -> None:
        """Show the last line of DeepSpeed's tool, and the number of bytes written."""
        self.tool_line, self.written = line or self.tool_line, written
        self.redraw()

    def end(self, severity: str, text: str) -> None:
        """Show how the conversion ended."""
        self.ended = severity, text
        self.redraw()

    def lines(self) -> Sequence[Row]:
        """Return the progress and the tool's last line, or how the conversion ended."""
        severity, text = self.ended
        if text:
            return [*paragraph(sanitise(text), self.room, first=(Span(f"{GLYPHS[severity]} ", STYLE_OF[severity]),)), BLANK]
        full = min(BAR * self.written // self.whole, BAR)
        bar = (("█" * full, "ok"), ("░" * (BAR - full), "dim"), f"  {format_gib(self.written)} of about {format_gib(self.whole)}")
        return [
            row(*bar),
            BLANK,
            *paragraph(sanitise(self.tool_line)[:200], self.room, "dim"),
            BLANK,
            row(("Esc cancels and leaves nothing behind", "dim")),
        ]

    def on_unmount(self, _event: events.Unmount) -> None:
        """Cancel the conversion, however the dialog was closed."""
        if not self.ended[1]:
            self.cancel()
