"""The rows of step 7 besides its fields: requirements and pitfalls of the launcher, sources of hosts, variables that reach the ranks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from dstui.base.text import counted
from dstui.plan.env_file import ENV_FILE
from dstui.plan.launchers import BY_NAME, Launcher, passes_on, reads_env_files
from dstui.tui.forms.fields import Option
from dstui.tui.forms.slot_grid import pool_of
from dstui.tui.kit.text_row import BLANK, GLYPHS, Row, Span, fit, paragraph, row
from dstui.tui.session.state import UNSET

if TYPE_CHECKING:
    from dstui.tui.session.host_sources import HostSource, Surroundings
    from dstui.tui.session.state import State

HOSTS, HOSTFILE = "cluster.hosts", "cluster.hostfile"
ONE_BY_ONE = 12
"""Hosts of an ssh configuration that are offered individually."""
SHOWN = 12
"""Variables of the shell that are shown."""
NAME = 26
"""Cells for the name of a variable."""


def surroundings(state: State) -> Surroundings:
    """Return what was found around the Plan; empty before the first look."""
    from dstui.tui.session.host_sources import Surroundings, SurroundingsOf

    found = state.lookups.get(SurroundingsOf.of(state.plan)) if state.lookups else None
    return found if isinstance(found, Surroundings) else Surroundings()


def source_options(state: State) -> tuple[Option, ...]:
    """Return the places from which hosts can be taken, each as the edits that do it."""
    return tuple(option for source in surroundings(state).sources for option in _options(source, state))


def _options(source: HostSource, state: State) -> Iterator[Option]:
    if source.problem:
        yield Option(value=source.name, label=source.name, says=source.problem, disabled=lambda _state: source.problem)
        return
    each = len(state.gpus) or state.plan.cluster.cpu_ranks
    hosts = {host: slots or each for host, slots in source.hosts.items()}
    edits = ((HOSTFILE, UNSET), (HOSTS, hosts)) if source.hostfile is None else ((HOSTS, UNSET), (HOSTFILE, source.hostfile))
    yield Option(value=source.name, label=source.name, says=hosts_in_words(hosts), edits=edits)
    if None in source.hosts.values() and len(hosts) > 1:
        have = dict(state.plan.cluster.hosts or {})
        for host in [host for host in hosts if host not in have][:ONE_BY_ONE]:
            more = ((HOSTFILE, UNSET), (HOSTS, {**have, host: each}))
            yield Option(value=f"+ {host}", label=f"+ {host}", says=f"only this one, with {counted(each, 'slot')}", edits=more)


def hosts_in_words(hosts: Mapping[str, int]) -> str:
    """Format hosts: `2 hosts x 8: h1, h2`."""
    counts = sorted(set(hosts.values()))
    slots = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]}-{counts[-1]}"
    named = ", ".join(list(hosts)[:4]) + (", …" if len(hosts) > 4 else "")
    return f"{len(hosts)} host{'s' if len(hosts) > 1 else ''} x {slots}: {named}"


def launcher_of(state: State) -> Launcher | None:
    """Return the launcher: the Plan's, or what follows from its hosts; None if that is unknown."""
    from dstui.render.launch import RenderError

    if state.plan.cluster.launcher:
        return BY_NAME.get(state.plan.cluster.launcher)
    try:
        return BY_NAME.get(state.target.launch.launcher) if state.target is not None else None
    except RenderError:
        return None


def launcher_rows(state: State, width: int) -> list[Row]:
    """Return what the launcher needs, what happens when a rank dies or on Ctrl-C, and its pitfalls: a line each."""
    launcher = launcher_of(state)
    if launcher is None or launcher.name == "local":
        return []
    rows = [] if state.plan.cluster.launcher else [row((f"  {launcher.name}: {launcher.says}", "dim"))]
    rows += paragraph(launcher.needs, width - 1, "dim", first=(Span("  needs  ", "faint"),))
    rows.append(row(("  the command alone, without dstui:", "faint")))
    for head, text in (("a rank dies", launcher.rank_fails), ("Ctrl-C", launcher.ctrl_c)):
        rows += paragraph(text, width - 1, "dim", first=(Span(f"    {head:<13}", "faint"),))
    for trap in launcher.traps:
        rows += paragraph(trap, width - 1, first=(Span(f"    {GLYPHS['warning']} ", "warning"),))
    return rows


def several(state: State) -> bool:
    """Return whether ranks run on other hosts."""
    return any(host not in ("localhost", "127.0.0.1", "::1") for host in pool_of(state))


def environment_rows(state: State, width: int) -> list[Row]:
    """Return, variable by variable, whether it reaches the ranks of other hosts, and why."""
    launcher = launcher_of(state)
    if launcher is None or not several(state):
        return []
    here, cpu = surroundings(state), state.machine is not None and state.machine.accelerator == "cpu"
    given = list(state.plan.cluster.env)
    rows = [BLANK, row(("Reaches the ranks", "accent"))]
    rows += [_variable(name, True, "of the Plan", width) for name in given]
    others = [name for name in here.variables if name not in given]
    for name in others[:SHOWN]:
        passed = passes_on(launcher, name, cpu=cpu)
        rows.append(_variable(name, passed, f"set here; {launcher.name} passes it on" if passed else "set only here", width))
    if len(others) > SHOWN:
        rows.append(row((f"  and {len(others) - SHOWN} more that are set here", "faint")))
    taken = reads_env_files(launcher)
    why = ENV_FILE if taken else f"{ENV_FILE}, which {launcher.name} does not read"
    found = [name for name in state.launch_target().env_files.variables if name not in given]
    rows += [_variable(name, taken, f"of {why}", width) for name in found[:SHOWN]]
    if len(rows) == 2:
        rows.append(row(("  no variable that matters to a training is set here", "dim")))
    return rows


def _variable(name: str, reaches: bool, why: str, width: int) -> Row:
    glyph, word, style = (GLYPHS["ok"], "yes", "ok") if reaches else (GLYPHS["warning"], "no", "warning")
    return row(
        "  ",
        (fit(name, NAME), "name" if reaches else ""),
        (f" {glyph} {word:<5}", style),
        (fit(why, max(width - NAME - 12, 8)).rstrip(), "dim"),
    )
