"""Open the table of runs from any screen, and show the run that is chosen there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dstui.tui.dialogs.dialog import Over
from dstui.tui.session.messages import Launched

if TYPE_CHECKING:
    from textual.app import App
    from textual.screen import Screen

    from dstui.jobs.store.folder import JobFolder


def choose_run(app: App[int]) -> None:
    """Open the table of runs, or return to it; show the run chosen there, and relaunch it if asked for."""
    from dstui.tui.runs.runs_screen import RunsTable  # imports jobs and diagnosis, which a form does not need

    def show_chosen(chosen: tuple[JobFolder, bool] | None) -> None:
        if chosen is not None:
            _close_down_to(app, None)  # the table may have been opened on the plot of another run
            app.post_message(Launched(*chosen))

    if any(isinstance(screen, RunsTable) for screen in app.screen_stack):
        _close_down_to(app, RunsTable)
    else:
        app.push_screen(RunsTable(), show_chosen)


def _close_down_to(app: App[int], kind: type[Screen[Any]] | None) -> None:
    """Close the screens on top of one of this kind, or all on top of the main screen."""
    while isinstance(app.screen, Over) and (kind is None or not isinstance(app.screen, kind)):
        app.screen.dismiss(None)
