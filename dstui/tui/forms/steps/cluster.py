"""Step 7: the hosts, and the launcher that starts the ranks on them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dstui.plan import launchers
from dstui.tui.forms import slot_grid
from dstui.tui.forms.fields import Field, Option
from dstui.tui.forms.steps.step import Step
from dstui.tui.kit.text_row import Row
from dstui.tui.session.state import UNSET, State

if TYPE_CHECKING:
    from dstui.plan.finding import Finding

C = "cluster."

LAUNCHERS = (
    Option(value=UNSET, label="by itself", says="local, srun or ssh"),
    *(Option(value=launcher.name, label=launcher.name, says=launcher.says) for launcher in launchers.ALL),
)
BINDINGS = (
    Option(value=UNSET, label="none", says="the system decides"),
    Option(value="deepspeed", label="deepspeed", says="--bind_cores_to_rank"),
    Option(value="numactl", label="numactl", says="a wrapper of dstui's"),
)


def _hosts_disabled(state: State) -> str:
    return "hostfile is given" if state.plan.cluster.hostfile else ""


def _no_hostfile(state: State) -> str:
    return "hosts are given" if state.plan.cluster.hosts else ""


def _value(state: State) -> str:
    cluster = state.plan.cluster
    if cluster.hostfile:
        return cluster.hostfile
    hosts = len(cluster.hosts or {}) or cluster.num_nodes or 1
    return f"{hosts} host{'s' if hosts > 1 else ''}"


def _sources(state: State) -> tuple[Field, ...]:
    """Return a row that offers hosts found elsewhere, if there are any."""
    from dstui.tui.forms.steps.cluster_view import source_options

    options = source_options(state) if state.lookups else ()
    if not options:
        return ()
    found = ", ".join(option.label for option in options if not option.label.startswith("+"))
    return (
        Field(path=f"{C}source", label="Take hosts from", kind="choice", options=options, default=found, says=_here, help=_source_help),
    )


def _here(_state: State) -> str:
    return "found here"


def _source_help(_state: State) -> str:
    return "What names hosts here: a hostfile (the Plan then names it), the SLURM allocation, the ssh configuration (copied into the Plan)."


def _launcher_rows(state: State, width: int) -> list[Row]:
    from dstui.tui.forms.steps.cluster_view import launcher_rows

    return launcher_rows(state, width)


def _below(state: State, _findings: Sequence[Finding], width: int) -> list[Row]:
    from dstui.tui.forms.steps.cluster_view import environment_rows

    return environment_rows(state, width)


def _meeting_place(state: State) -> str:
    """Return the host of rank 0, if the Plan names no address."""
    used = next(iter(slot_grid.used_of(state)), None)
    return f"{used}, rank 0's host" if used and state.plan.cluster.master_addr is None else ""


def _port(state: State) -> str:
    return "a free one at launch" if state.plan.cluster.master_port is None else ""


def _fields(state: State) -> tuple[Field, ...]:
    from dstui.tui.forms.steps.scheduler_fields import kubernetes_fields, slurm_fields

    hosts, rest = FIELDS[:2], FIELDS[2:]
    place = next(number for number, field in enumerate(rest) if field.path == f"{C}cpu_binding")
    return (*hosts, *_sources(state), *rest[:place], *slurm_fields(state), *rest[place:], *kubernetes_fields(state))


FIELDS = (
    Field(path=f"{C}hosts", label="Hosts and slots", kind="pairs", disabled=_hosts_disabled, title="Hosts"),
    Field(path=f"{C}hostfile", label="Hostfile", disabled=_no_hostfile),
    Field(path=f"{C}include", label="Include"),
    Field(path=f"{C}exclude", label="Exclude"),
    Field(path=f"{C}slots", label="Slots in use", kind="grid", write=slot_grid.reset, help=lambda _state: slot_grid.HELP),
    Field(path=f"{C}num_nodes", label="Hosts to use", kind="number"),
    Field(path=f"{C}num_gpus", label="Ranks per host", kind="number"),
    Field(path=f"{C}launcher", label="Launcher", kind="choice", options=LAUNCHERS, title="Launcher", below=_launcher_rows),
    Field(path=f"{C}launcher_args", label="Further options", kind="words"),
    Field(path=f"{C}cpu_binding", label="Bind ranks to cores", kind="choice", options=BINDINGS),
    Field(path=f"{C}master_addr", label="Address of rank 0", says=_meeting_place),
    Field(path=f"{C}master_port", label="Port of rank 0", kind="number", says=_port),
    Field(path=f"{C}env", label="Variables for ranks", kind="pairs", title="Environment"),
    Field(path=f"{C}env_file", label="File for them"),
)


def _badge(state: State) -> str:
    """Return the badge, counting findings about filters too if hosts are given; else those belong to step 1."""
    if not state.checked:
        return "unknown"
    here = () if state.plan.cluster.hosts or state.plan.cluster.hostfile else (slot_grid.INCLUDE, slot_grid.EXCLUDE, "cluster.cpu_ranks")
    severities = {f.severity for f in state.findings if f.path.startswith("cluster") and f.path not in here}
    return next((severity for severity in ("error", "warning") if severity in severities), "ok")


CLUSTER = Step(
    id="cluster",
    title="Cluster",
    question="On which hosts do the ranks run, and what starts them there?",
    owns=("cluster",),
    value=_value,
    badge=_badge,
    fields=_fields,
    below=_below,
    wide=True,
)
