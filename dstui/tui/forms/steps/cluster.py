"""Step 7: on which hosts the ranks run, and what starts them."""

from __future__ import annotations

from dstui.plan import launchers
from dstui.tui.forms import slot_grid
from dstui.tui.forms.fields import Field, Option
from dstui.tui.forms.steps.step import Step, always
from dstui.tui.session.edits import UNSET
from dstui.tui.session.state import State

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


def _no_hosts(state: State) -> str:
    return "hostfile is given" if state.plan.cluster.hostfile else ""


def _no_hostfile(state: State) -> str:
    return "hosts are given" if state.plan.cluster.hosts else ""


def _value(state: State) -> str:
    cluster = state.plan.cluster
    if cluster.hostfile:
        return cluster.hostfile
    hosts = len(cluster.hosts or {}) or 1
    return f"{hosts} host{'s' if hosts > 1 else ''}"


CLUSTER = Step(
    id="cluster",
    title="Cluster",
    question="On which hosts do the ranks run, and what starts them there?",
    owns=("cluster",),
    value=_value,
    fields=always(
        Field(path=f"{C}hosts", label="Hosts and slots", kind="pairs", disabled=_no_hosts, title="Hosts"),
        Field(path=f"{C}hostfile", label="Hostfile", disabled=_no_hostfile),
        Field(path=f"{C}include", label="Include"),
        Field(path=f"{C}exclude", label="Exclude"),
        Field(path=f"{C}slots", label="Slots in use", kind="grid", write=slot_grid.reset, help=lambda _state: slot_grid.HELP),
        Field(path=f"{C}num_nodes", label="Hosts to use", kind="number"),
        Field(path=f"{C}num_gpus", label="Ranks per host", kind="number"),
        Field(path=f"{C}launcher", label="Launcher", kind="choice", options=LAUNCHERS, title="Launcher"),
        Field(path=f"{C}launcher_args", label="Its further options", kind="words"),
        Field(path=f"{C}cpu_binding", label="Bind ranks to cores", kind="choice", options=BINDINGS),
        Field(path=f"{C}master_addr", label="Address of rank 0"),
        Field(path=f"{C}master_port", label="Port of rank 0", kind="number"),
        Field(path=f"{C}env", label="Variables for ranks", kind="pairs", title="Environment"),
        Field(path=f"{C}env_file", label="File for them"),
    ),
    wide=True,
)
