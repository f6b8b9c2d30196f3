"""Before a job is started on other hosts: the doctor's checks of each of them, with the choice to go on."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from textual.app import App

from dstui.tui.dialogs.preflight import Preflight
from dstui.tui.kit.threads import in_thread

if TYPE_CHECKING:
    from dstui.render.target import Target


def far_hosts(target: Target) -> tuple[str, ...]:
    """The hosts of a launch that goes elsewhere; none where it stays here, and where there is no command for it (the launch says why)."""
    from dstui.render.launch import RenderError

    try:
        spec = target.launch
    except RenderError:
        return ()
    return () if spec.only_here or not spec.named or spec.launcher == "nossh" else spec.hosts


def examine_first(app: App[int], target: Target, hosts: tuple[str, ...], then: Callable[[], object]) -> None:
    """Examine the hosts in a thread; `then`: the launch, where nothing stands in the way or the user wants it all the same."""
    dialog = Preflight(hosts)

    def answered(yes: bool | None) -> None:
        if yes:
            then()

    app.push_screen(dialog, answered)
    in_thread(app, partial(_examine, app, target, dialog))


def _examine(app: App[int], target: Target, dialog: Preflight) -> None:
    from dstui.doctor.preflight import run_preflight
    from dstui.jobs.control.start import LaunchError, check

    try:
        check(target.launch)
    except LaunchError:
        app.call_later(dialog.show, ())  # the launch says it
        return
    results = run_preflight(target, lambda case: app.call_later(dialog.host_answered, case.host))
    app.call_later(dialog.show, results)
