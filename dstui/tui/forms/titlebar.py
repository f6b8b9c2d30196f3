"""The first line: which Plan, on which machine, what it amounts to, and how many findings."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from dstui.tui.forms.steps.precision import precision_of
from dstui.tui.forms.steps.zero import stage_text
from dstui.tui.kit.row_list import RowList
from dstui.tui.kit.text_row import GLYPHS, Row, Span, fit
from dstui.tui.session.state import State

if TYPE_CHECKING:
    from dstui.plan import Plan


class TitleBar(RowList):
    """One line; nothing in it can be chosen."""

    MARGIN = 0
    can_focus = False

    def __init__(self) -> None:
        super().__init__(id="title-bar")

    def show(self, state: State, path: Path | None) -> None:
        """Draw it."""
        self.show_rows([title_row(state, path, self.size.width or 80)])


def title_row(state: State, path: Path | None, width: int) -> Row:
    """`dstui  plan.yaml *   2 x H100 …   ZeRO-3 · bf16 · AdamW   ✖ 1 ▲ 2`, as much of it as fits."""
    name = path.name if path else state.plan.name or "unnamed"
    counts = [(f"{GLYPHS[s]} {state.counted(s)}  ", s) for s in ("error", "warning") if state.counted(s)]
    verdict = [Span(*c) for c in counts] or ([Span(f"{GLYPHS['ok']} ok  ", "ok")] if state.checked else [])
    left = (Span(" dstui ", "accent"), Span(f" {name}", "title"), Span("" if state.saved else " *", "warning"))
    right = (Span(f"{configuration(state.plan)}   ", ""), *verdict)
    used = sum(len(s.text) for s in left + right) + 6
    machine = _machine(state)
    middle = Span("   " + fit(machine, min(len(machine), max(width - used, 0))), "dim")
    return Row((*left, middle), right)


def configuration(plan: Plan) -> str:
    """`ZeRO-3 · bf16 · AdamW`."""
    optimizer = plan.get("deepspeed.optimizer.type", None)
    return " · ".join([f"ZeRO-{stage_text(State(plan))}", precision_of(plan), *([str(optimizer)] if optimizer else [])])


def _machine(state: State) -> str:
    if state.machine is None:
        return "looking at this machine…"
    from dstui.machine.descriptions import summarise  # brings the machine's module, which the first frame does without

    return summarise(state.machine)
