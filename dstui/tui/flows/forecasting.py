"""What the forecast has to say at length: the plans that fit, of which one may be taken, and what fills the memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.app import App

from dstui.tui.kit.notes import say
from dstui.tui.session.session import Session

if TYPE_CHECKING:
    from dstui.machine.snapshot import Machine
    from dstui.plan.finding import Fix
    from dstui.tui.session.forecasts import Outlook


def machine_by_words(text: str) -> Machine:
    """Return the machine that `8xH100-80 ib-400` names. Raises HardwareProblem."""
    from dstui.forecast.hardware import named_machine

    gpus, _space, link = text.strip().partition(" ")
    return named_machine(gpus, link=link.strip() or None)


def _no_machine(text: str) -> str:
    from dstui.forecast.hardware import HardwareProblem

    try:
        machine_by_words(text) if text.strip() else None
    except HardwareProblem as problem:
        return str(problem)
    return ""


class Forecasting:
    """Shows it in dialogs; where there is no forecast, says why."""

    def __init__(self, app: App[int], session: Session) -> None:
        self._app, self._session = app, session
        self._here: Machine | None = None
        """This machine, while another one is planned for."""
        self._elsewhere: set[str] = set()
        """The sources of machines that were named."""

    def recommend(self) -> None:
        """The plans that fit, the best first; the one that is chosen becomes the Plan, in one step of undo."""
        if outlook := self._outlook():
            from dstui.tui.dialogs.recommended import Recommended

            self._app.push_screen(Recommended(outlook), self._take)

    def _take(self, fix: Fix | None) -> None:
        if fix is not None and self._session.apply(fix):
            say(self._app, f"{fix.text} (z takes it back)")

    def break_down(self) -> None:
        """What fills the memory, part by part."""
        if outlook := self._outlook():
            from dstui.tui.dialogs.breakdown import breakdown

            self._app.push_screen(breakdown(outlook, self._app.size.width))

    def plan_elsewhere(self) -> None:
        """Ask for hardware by name, and plan for it as if it were here; nothing is launched on it. An empty line comes back."""
        from dstui.tui.dialogs.dialog import Prompt

        text = "How many GPUs of a node and which, with the network: 8xH100-80 ib-400. Nothing: this machine."
        self._app.push_screen(Prompt("Plan for another machine", text, "", _no_machine), self._plan_on)

    def _plan_on(self, text: str | None) -> None:
        machine = self._session.state.machine
        if text is None or machine is None:
            return
        if machine.source not in self._elsewhere:
            self._here = machine
        if not text.strip():
            self._session.machine_probed(self._here or machine)
            return
        named = machine_by_words(text)
        self._elsewhere.add(named.source)
        self._session.machine_probed(named)
        say(self._app, f"Planning for {named.source}. H and an empty line come back to this machine.")

    def _outlook(self) -> Outlook | None:
        outlook = self._session.state.outlook
        if outlook is None or outlook.forecast.problem:
            say(self._app, outlook.forecast.problem if outlook else "Name the model first (model.source or params, in step 2).", "warning")
        return outlook if outlook and not outlook.forecast.problem else None
