"""Hosts × slots as a grid of marks: another view of the Plan's include and exclude, in the grammar of DeepSpeed's launcher.

A mark is one slot of one host, which is one rank. Setting a mark writes the filter; a typed filter changes the marks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from rich.cells import cell_len

from dstui.tui.forms.fields import Field, NotThat
from dstui.tui.kit.text_row import Row, Span, fit, row
from dstui.tui.session.state import UNSET, Edit

if TYPE_CHECKING:
    from dstui.tui.session.state import State

INCLUDE, EXCLUDE = "cluster.include", "cluster.exclude"
FILTERS = (INCLUDE, EXCLUDE, "cluster.num_nodes", "cluster.num_gpus")
USED, LEFT_OUT, PARTLY = "■", "·", "▪"
BOX = 3
"""Cells of a mark, including the space for the brackets of the cursor."""
NAME = 20
"""Cells for the name of a host."""
RANKS = 16
"""Cells for the ranks of a host."""
OPEN = 16
"""The number of hosts up to which the grid is always expanded."""
EVERY = ""
"""In the key of a row: all hosts."""
HELP = "Which slots (GPUs) of which hosts get a rank: ←→ and space, or a click. It is written as include or exclude."


class SlotKey(NamedTuple):
    """The key of a host's row in a grid; EVERY is the row for all hosts."""

    path: str
    host: str


def pool_of(state: State) -> Mapping[str, int]:
    """Return host -> slots before any filter: from the Plan or its hostfile, else the GPUs of this machine.

    Empty if several hosts are wanted and none is named: this machine is not one of them.
    """
    if state.plan.cluster.hosts is not None:
        return state.plan.cluster.hosts
    if state.plan.cluster.hostfile is not None:
        return (state.target.pool if state.target is not None else None) or {}
    return {"localhost": len(state.gpus)} if state.gpus and (state.plan.cluster.num_nodes or 1) == 1 else {}


def used_of(state: State) -> dict[str, frozenset[int]]:
    """Return host -> slots after the filters; empty if DeepSpeed refuses the filters."""
    from dstui.plan.hostfile import HostfileError, select

    cluster = state.plan.cluster
    try:
        left = select(
            pool_of(state),
            include=cluster.include,
            exclude=cluster.exclude,
            num_nodes=cluster.num_nodes,
            num_gpus=cluster.num_gpus,
        )
    except HostfileError:
        return {}
    return {host: frozenset(slots) for host, slots in left.items()}


def picked(state: State, host: str, column: int) -> tuple[Edit, ...]:
    """Return the edits that toggle a mark: column 0 is all slots of the host, column N + 1 slot N. NotThat if no slot would be left."""
    pool, used = pool_of(state), used_of(state)
    hosts = list(pool) if host == EVERY else [host]
    meant = {each: frozenset(range(pool[each])) if column == 0 else frozenset({column - 1} & set(range(pool[each]))) for each in hosts}
    off = all(slots <= used.get(each, frozenset()) for each, slots in meant.items())
    chosen = {each: used.get(each, frozenset()) for each in pool}
    chosen |= {each: chosen[each] - slots if off else chosen[each] | slots for each, slots in meant.items()}
    return written(state, pool, chosen)


def written(state: State, pool: Mapping[str, int], chosen: Mapping[str, frozenset[int]]) -> tuple[Edit, ...]:
    """Return the edits that leave these slots, using the key that the Plan has already, else the shorter one; other filters are removed."""
    from dstui.plan.hostfile import HostfileError, exclude_for, include_for

    try:
        include, exclude = include_for(pool, chosen), exclude_for(pool, chosen)
    except HostfileError as error:
        raise NotThat(f"{error.message}.") from None
    cluster = state.plan.cluster
    by_exclude = bool(cluster.exclude) or (not cluster.include and len(exclude or "") < len(include or ""))
    filters = {EXCLUDE: exclude} if by_exclude else {INCLUDE: include}
    return tuple((path, filters.get(path) or UNSET) for path in FILTERS)


def reset(_state: State, _value: Any) -> tuple[Edit, ...]:
    """Return the edits that remove all filters."""
    return tuple((path, UNSET) for path in FILTERS)


# Rows


def grid_rows(field: Field, state: State, width: int, head: Row, *, opened: bool) -> Iterable[Row]:
    """Yield the head with the number of slots and, if the grid is open, a line per host. The head has a key if it can be opened."""
    pool, used = pool_of(state), used_of(state)
    if not pool:
        return
    shut = len(pool) > OPEN and not opened
    count, total = sum(map(len, used.values())), sum(pool.values())
    hosts = f" on {len(used)} of {len(pool)} hosts" if len(pool) > 1 else ""
    key = head.key if len(pool) > OPEN else None
    yield row(*head.left, f"{count} of {total}{hosts}", (" ▾" if shut else "", "dim"), key=key)
    if not shut:
        yield from _open(field, pool, used, width)


def _open(field: Field, pool: Mapping[str, int], used: Mapping[str, frozenset[int]], width: int) -> Iterable[Row]:
    most, name = max(pool.values()), min(max(map(cell_len, pool)), NAME)
    name = max(name, len("every host") if len(pool) > 1 else 0)
    box = BOX if name + 2 + BOX * (most + 1) + RANKS <= width else 1
    heads = [f"{n:>{box - 1}}"[-(box - 1) :] if box > 1 else str(n)[-1] for n in range(most)]
    head = f"{'':{name + 2}}" + ("all" if box > 1 else "a") + "".join(f"{text:<{box}}" if box == 1 else f"{text} " for text in heads)
    yield row((head, "dim"), right=[("ranks", "faint")])
    if len(pool) > 1:
        union = {slot for host in pool for slot in used.get(host, ())}
        everywhere = {slot for slot in union if all(slot in used.get(host, ()) for host, slots in pool.items() if slot < slots)}
        marks = [USED if slot in everywhere else PARTLY if slot in union else LEFT_OUT for slot in range(most)]
        yield _line(SlotKey(field.path, EVERY), fit("every host", name), marks, box, "")
    first = 0
    for host, slots in pool.items():
        on = used.get(host, frozenset())
        marks = [USED if slot in on else LEFT_OUT for slot in range(slots)]
        ranks = f"{first}-{first + len(on) - 1}" if len(on) > 1 else f"{first}" if on else "not used"
        yield _line(SlotKey(field.path, host), fit(host, name), marks, box, ranks)
        first += len(on)


def _line(key: SlotKey, name: str, marks: Sequence[str], box: int, ranks: str) -> Row:
    """Return the name, then one span per mark; the first mark stands for the whole row."""
    kinds = set(marks)
    whole = marks[0] if len(kinds) == 1 else PARTLY if kinds else LEFT_OUT
    styles = {USED: "set", PARTLY: "warning", LEFT_OUT: "faint"}
    boxes = [Span(f" {mark} " if box > 1 else mark, styles[mark]) for mark in (whole, *marks)]
    return Row((Span(f"{name}  ", "dim" if key.host == EVERY else ""), *boxes), (Span(ranks, "dim"),) if ranks else (), key)


def column_at(shown: Row, x: int) -> int | None:
    """Return the mark at this cell, counted from the beginning of the row's text."""
    at = cell_len(shown.left[0].text)
    for column, span in enumerate(shown.left[1:]):
        if at <= x < at + cell_len(span.text):
            return column
        at += cell_len(span.text)
    return None


def with_cursor(shown: Row, column: int) -> Row:
    """Return the row with brackets around the mark at the cursor; in another style if there is no room for brackets."""
    at = 1 + min(column, len(shown.left) - 2)
    mark = shown.left[at].text
    here = Span(f"[{mark.strip()}]", "pointer") if len(mark) == BOX else Span(mark, "found")
    return replace(shown, left=(*shown.left[:at], here, *shown.left[at + 1 :]))
