"""The shipped Plans: what each is for, and whether its model fits on this machine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

from dstui.base.files import FileProblem
from dstui.documents.plan_files import SHIPPED
from dstui.plan import Plan, PlanError
from dstui.tui.dialogs.dialog import Answer, Ask
from dstui.tui.kit.text_row import BLANK, Row, paragraph, row
from dstui.tui.kit.tools import in_thread

if TYPE_CHECKING:
    from dstui.machine.snapshot import Machine


class Shipped(Ask):
    """Choose a shipped Plan. Result: its name."""

    def __init__(self, machine: Machine | None, model: str = "") -> None:
        """Create the dialog. `model`: the hub id that the script of the folder names, or ""."""
        super().__init__("Shipped Plans", "", [Answer("", name, name) for name in SHIPPED])
        self.machine, self.model = machine, model
        self.figures: dict[str, str] = {}

    def on_mount(self) -> None:
        """Draw the names, and compute the forecasts in a thread."""
        super().on_mount()
        if self.machine is not None:
            in_thread(self, self._weigh)

    def lines(self) -> list[Row]:
        """Return each Plan with its forecast, and what it is for."""
        of = f"for {self.model}, which the script uses" if self.model else "for the model of each Plan; yours may differ"
        told = (
            f"Each is opened for the script of this folder. Memory per GPU, or host RAM, is {of}. After it: what remains free, or how many"
        )
        rows = [*paragraph(f"{told} times too much it is, and tokens per second.", self.room, "dim"), BLANK]
        for name, purpose in SHIPPED.items():
            rows.append(row(name, right=[(self.figures.get(name, ""), "set")], key=name))
            rows += paragraph(f"  {purpose}", self.room, "dim")
        return rows

    def _weigh(self) -> None:
        for name, text in self._estimates():
            self.app.call_later(self._show, name, text)

    def _show(self, name: str, text: str) -> None:
        self.figures[name] = text
        if self.is_attached:
            self.redraw()

    def _estimates(self) -> Iterator[tuple[str, str]]:
        from dstui.assess import assess
        from dstui.documents.open import open_document
        from dstui.surroundings import gather
        from dstui.tui.forms.steps.figures import figure

        assert self.machine is not None
        for name in SHIPPED:
            with suppress(FileProblem, PlanError):
                plan = self._of_this_model(open_document(name).plan)
                target, facts = gather(plan, self.machine)
                source = plan.model.source if plan.model is not None else None
                model = (source or "").rpartition("/")[2]
                found = assess(target, facts).forecast
                if found is not None:
                    yield name, f"{model} {figure(found)}".strip()

    def _of_this_model(self, plan: Plan) -> Plan:
        named = self.model and plan.model is not None and plan.model.source
        return plan.set("model.source", self.model) if named else plan
