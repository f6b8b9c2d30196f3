"""Sources of hosts around a Plan, and variables of this environment that the ranks of other hosts may lack."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from glob import glob
from pathlib import Path
from typing import TYPE_CHECKING

from dstui.adopt.slurm import hosts_of_allocation
from dstui.base.dataclass import dataclass
from dstui.base.files import FileProblem, read_text
from dstui.plan.hostfile import HostfileError, included, parse_hostfile, ssh_hosts

if TYPE_CHECKING:
    from dstui.plan import Plan

HOSTFILES = ("hostfile", "hosts", "/job/hostfile")
"""Usual places of hostfiles: beside the Plan, and where DeepSpeed itself looks (launcher/runner.py, DLTS_HOSTFILE)."""
MATTERS = (
    *("NCCL_", "GLOO_", "UCX_", "MV2_", "TORCH_", "CUDA_", "OMP_", "DS_", "TRITON_", "PYTHON", "LD_LIBRARY_PATH"),
    *("HF_", "TRANSFORMERS_", "TOKENIZERS_", "WANDB_", "MLFLOW_", "http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"),
)
"""Prefixes of variables that affect a training."""
MAX_INCLUDED = 64
"""Files that an ssh configuration may include at most."""


@dataclass(frozen=True, slots=True)
class HostSource:
    """One source of hosts."""

    name: str
    hosts: Mapping[str, int | None]
    """Host -> slots; None if the source does not tell their number."""
    hostfile: str | None = None
    """The path as the Plan would name it, if the source is a hostfile."""
    problem: str = ""
    """The reason why the source cannot be used."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The sources of hosts, and the variables that matter."""

    sources: tuple[HostSource, ...] = ()
    variables: tuple[str, ...] = ()
    """The names of variables that are set here and affect a training, never their values."""


@dataclass(frozen=True, slots=True)
class SurroundingsOf:
    """A look-up around the folder of a Plan."""

    folder: str

    @classmethod
    def of(cls, plan: Plan) -> SurroundingsOf:
        """Return the look-up for this Plan."""
        return cls(plan.base)

    def resolve(self) -> Surroundings:
        """Return the sources; nothing of them is used before the user chooses it."""
        variables = tuple(sorted(name for name in os.environ if name.startswith(MATTERS)))
        return Surroundings((*self._hostfiles(), *_allocation(), *_ssh_config()), variables)

    def _hostfiles(self) -> Iterator[HostSource]:
        for name in HOSTFILES:
            with suppress(FileProblem):
                text = read_text(Path(self.folder, name))
                try:
                    yield HostSource(name, parse_hostfile(text), name)
                except HostfileError as error:
                    yield HostSource(name, {}, name, str(error))


def _allocation() -> Iterator[HostSource]:
    name = f"SLURM job {os.environ.get('SLURM_JOB_ID', '')}".rstrip()
    try:
        hosts = hosts_of_allocation(os.environ)
    except HostfileError as error:
        yield HostSource(name, {}, problem=str(error))
    else:
        if hosts:
            yield HostSource(name, hosts)


def _ssh_config() -> Iterator[HostSource]:
    folder = Path(os.path.expanduser("~/.ssh"))  # noqa: PTH111
    with suppress(FileProblem):
        text = read_text(folder / "config")
        places = [place for pattern in included(text) for place in sorted(glob(str(folder / os.path.expanduser(pattern))))]  # noqa: PTH111, PTH207
        for place in places[:MAX_INCLUDED]:
            with suppress(FileProblem):
                text += "\n" + read_text(Path(place))
        if hosts := ssh_hosts(text):
            yield HostSource("~/.ssh/config", dict.fromkeys(hosts))
