"""The rows of step 7 for the manifest that `dstui render --only k8s` prints."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dstui.tui.forms.fields import Field, Option
from dstui.tui.session.state import UNSET

if TYPE_CHECKING:
    from dstui.tui.session.state import State

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
