"""Step 1: the hardware, and which GPUs are used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dstui.base.text import counted
from dstui.tui.forms.fields import Field
from dstui.tui.forms.steps.step import Step
from dstui.tui.kit.text_row import BLANK, Row, row
from dstui.tui.session.state import UNSET, Edit, State

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dstui.machine.snapshot import Gpu
    from dstui.plan.finding import Finding

LOCAL = "localhost"
INCLUDE, CPU_RANKS = "cluster.include", "cluster.cpu_ranks"


def in_slots(state: State) -> frozenset[int]:
    """Return the GPUs of this machine that the Plan has slots for: {localhost: 2} means the first two."""
    slots = (state.plan.cluster.hosts or {}).get(LOCAL)
    return frozenset(g.index for g in state.gpus if slots is None or g.index < slots)


def picked(state: State) -> frozenset[int]:
    """Return the GPUs of this machine that the Plan's include selects; all if it does not mention this machine."""
    everything = in_slots(state)
    include = state.plan.get(INCLUDE, None)
    if not isinstance(include, str):
        return everything
    host, _, slots = include.partition(":")
    if host != LOCAL or "@" in include:
        return everything
    return frozenset(int(s) for s in slots.split(",") if s.isdecimal()) if slots else everything


def _pick(gpu: int) -> Any:
    def write(state: State, use: bool) -> tuple[Edit, ...]:
        chosen = picked(state) | {gpu} if use else picked(state) - {gpu}
        return ((INCLUDE, UNSET if chosen >= in_slots(state) or not chosen else f"localhost:{','.join(map(str, sorted(chosen)))}"),)

    return write


def _disabled(gpu: Gpu) -> Any:
    def disabled(state: State) -> str:
        if gpu.problem:
            return gpu.problem
        hosts, nodes = state.plan.cluster.hosts, state.plan.cluster.num_nodes or 1
        if state.plan.cluster.hostfile or (hosts and set(hosts) != {LOCAL}) or (nodes > 1 and not hosts):
            return "other hosts are given: choose in step 7"
        if hosts and gpu.index not in in_slots(state):
            return f"cluster.hosts gives {LOCAL} {counted(hosts[LOCAL], 'slot')}: the GPUs from 0 on"
        return "the last one: use at least one" if picked(state) == {gpu.index} else ""

    return disabled


def _fact(name: str, gpu: Gpu) -> str:
    from dstui.tui.forms.steps import machine_view

    text: str = getattr(machine_view, name)(gpu)
    return text


def _gpu_field(gpu: Gpu) -> Field:
    return Field(
        path=f"gpu.{gpu.index}",
        owns=(INCLUDE,) if gpu.index == 0 else (),
        label=f"{gpu.index:<2} {gpu.short_name}",
        kind="toggle",
        title="GPUs to use" if gpu.index == 0 else "",
        disabled=_disabled(gpu),
        read=lambda state: gpu.index in picked(state),
        write=_pick(gpu.index),
        says=lambda _state: _fact("gpu_line", gpu),
        help=lambda _state: _fact("gpu_help", gpu),
    )


def _no_gpu(state: State) -> str:
    cluster = state.plan.cluster
    if cluster.hosts or cluster.hostfile or _elsewhere(state):
        return "hosts are given and used"
    return f"{cluster.num_gpus}, by cluster.num_gpus" if cluster.num_gpus else ""


def _elsewhere(state: State) -> bool:
    """Return whether no rank runs on this machine."""
    return state.target is not None and state.target.hosts_machine is None


def _cpu_field(state: State) -> Field:
    title = "No GPU here" if state.machine is not None else "Without a GPU"
    return Field(path=CPU_RANKS, label="Ranks on the CPU", kind="number", disabled=_no_gpu, title=title)


def _fields(state: State) -> tuple[Field, ...]:
    return tuple(_gpu_field(g) for g in state.gpus) or (_cpu_field(state),)


def _below(state: State, findings: Sequence[Finding], width: int) -> list[Row]:
    if state.machine is None:
        return [BLANK, row(("Probing this machine…", "dim"))]
    from dstui.tui.forms.steps.machine_view import machine_rows

    return machine_rows(state.machine, findings, width)


def _value(state: State) -> str:
    if state.machine is None:
        return "looking…"
    if _elsewhere(state):
        return "no ranks here"
    gpus = state.gpus
    return f"{len(picked(state))} of {counted(len(gpus), 'GPU')}" if gpus else f"CPU, {counted(state.ranks, 'rank')}"


MACHINE = Step(
    id="machine",
    title="Machine",
    question="What hardware is there, and which of it is used?",
    owns=(INCLUDE, CPU_RANKS, "cluster.exclude"),
    fields=_fields,
    value=_value,
    below=_below,
    wide=True,
)
