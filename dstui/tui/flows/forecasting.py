"""What the forecast has to say at length: the plans that fit, of which one may be taken, and what fills the memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.app import App

from dstui.tui.kit.notes import say
from dstui.tui.session.session import Session

if TYPE_CHECKING:
    from dstui.plan.finding import Fix
    from dstui.tui.session.forecasts import Outlook


class Forecasting:
    """Shows it in dialogs; where there is no forecast, says why."""

    def __init__(self, app: App[int], session: Session) -> None:
        self._app, self._session = app, session

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

    def _outlook(self) -> Outlook | None:
        outlook = self._session.state.outlook
        if outlook is None or outlook.forecast.problem:
            say(self._app, outlook.forecast.problem if outlook else "Name the model first (model.source or params, in step 2).", "warning")
        return outlook if outlook and not outlook.forecast.problem else None
