"""The rows of step 7 for a job in SLURM's queue, with what the cluster offers, and for a job in Kubernetes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from dstui.machine.slurm_offers import Partition, SlurmOffers
from dstui.tui.forms.fields import Field, Option
from dstui.tui.session.state import UNSET

if TYPE_CHECKING:
    from dstui.tui.session.state import State

S = "cluster.slurm."
MAX_NAMES = 6
"""Names that a remark lists."""


def offers_of(state: State) -> SlurmOffers:
    """Return what the cluster offers; empty if it was not asked or does not answer."""
    from dstui.tui.session.file_lookups import SlurmOffersOf

    found = state.lookups.get(SlurmOffersOf.of(state.plan)) if state.lookups else None
    return found if isinstance(found, SlurmOffers) else SlurmOffers()


def slurm_fields(state: State) -> tuple[Field, ...]:
    """Return the rows; none if the Plan is not to be queued."""
    if not state.plan.cluster.submits:
        return ()
    offers = offers_of(state)
    partitions = [(one.name, f"{one.limits}{' (default)' if one.default else ''}") for one in offers.partitions]
    return (
        _choice(state, Field(path=f"{S}partition", label="Partition", title="SLURM job"), partitions, "the cluster's default"),
        _choice(state, Field(path=f"{S}account", label="Account"), [(name, "") for name in offers.accounts], "your default"),
        _choice(state, Field(path=f"{S}qos", label="QOS"), [(name, "") for name in offers.qos], "your default"),
        Field(path=f"{S}time", label="Time limit", says=_partition_remark(lambda one: one.limits.partition(", ")[2])),
        Field(path=f"{S}gres", label="Generic resources", says=_partition_remark(lambda one: _listed(one.gres))),
        Field(path=f"{S}constraint", label="Features of nodes", says=_partition_remark(lambda one: _listed(one.features))),
        Field(path=f"{S}mem", label="Memory of a node"),
        Field(path=f"{S}cpus_per_task", label="CPUs of a node", kind="number", says=_partition_remark(_cpus)),
        Field(path=f"{S}exclusive", label="Whole nodes", kind="toggle", default=False),
        Field(path=f"{S}extra", label="Options of sbatch", kind="words"),
        Field(path=f"{S}setup", label="Lines before ranks", kind="words"),
    )


def _choice(state: State, field: Field, offered: Iterable[tuple[str, str]], default: str) -> Field:
    """Return the field as a choice among the offered values and the Plan's; a text field if no offers are known."""
    options = [Option(value=value, label=value, says=says) for value, says in offered]
    given = state.plan.get(field.path)
    if not options:
        return field
    if given and given not in [option.value for option in options]:
        options.append(Option(value=given, label=given, says="as in the Plan"))
    return replace(field, kind="choice", options=(Option(value=UNSET, label="by itself", says=default), *options))


def _partition_remark(fact: Callable[[Partition], str]) -> Callable[[State], str]:
    """Return a remark: a fact of the partition that the job would use."""

    def says(state: State) -> str:
        found = offers_of(state).partition(state.plan.cluster.slurm.partition)
        return fact(found) if found is not None else ""

    return says


def _listed(names: tuple[str, ...]) -> str:
    return f"{', '.join(names[:MAX_NAMES])}{', …' if len(names) > MAX_NAMES else ''}" if names else ""


def _cpus(partition: Partition) -> str:
    return f"its nodes have {partition.cpus}" if partition.cpus else ""


K = "cluster.kubernetes."


RELEASES = (
    Option(value="2.2", label="Trainer 2.2", says="Kubeflow Trainer v2.2 or later"),
    Option(value="2.1", label="Trainer 2.1", says="Kubeflow Trainer v2.1"),
    Option(value="2.0", label="Trainer 2.0", says="Kubeflow Trainer v2.0"),
)
UNUSED = Option(value=UNSET, label="not used", says="dstui render --only k8s works all the same")
BY_ITSELF = Option(value=UNSET, label="by itself", says="Kubeflow Trainer v2.2 or later")
ROWS = (
    Field(path=f"{K}image", label="Image"),
    Field(path=f"{K}runtime", label="Training runtime"),
    Field(path=f"{K}namespace", label="Namespace"),
    Field(path=f"{K}resources", label="Limits of a pod", kind="pairs"),
    Field(path=f"{K}volumes", label="Volumes", kind="pairs"),
    Field(path=f"{K}secrets", label="Keys of Secrets", kind="pairs"),
    Field(path=f"{K}node_selector", label="Labels of nodes", kind="pairs"),
    Field(path=f"{K}tolerations", label="Tolerated taints", kind="words"),
    Field(path=f"{K}shm", label="Size of /dev/shm"),
    Field(path=f"{K}job_folder", label="Folder on a volume"),
)


def kubernetes_fields(state: State) -> tuple[Field, ...]:
    """Return the rows: one that asks for the release in the cluster, and the others if the Plan says anything about Kubernetes."""
    used = bool(state.plan.get("cluster.kubernetes"))
    options = (BY_ITSELF if used else UNUSED, *RELEASES)
    release = Field(path=f"{K}trainer", label="Kubernetes", kind="choice", options=options, title="Kubernetes")
    return (release, *(ROWS if used else ()))
