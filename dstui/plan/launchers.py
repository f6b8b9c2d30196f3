"""What may start the ranks (`cluster.launcher`), as a table: rendering, forms and the doctor all follow from it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Launcher:
    """One value of cluster.launcher."""

    name: str
    says: str
    """What it is, in a few words, for the form."""
    backend: bool = False
    """Whether `deepspeed --launcher` knows it: DeepSpeed then starts the ranks of every host by itself."""
    program: str = "ssh"
    """What must be installed where it is started: a field of the Machine's software."""


ALL = (
    Launcher("local", "this machine only"),
    Launcher("ssh", "dstui starts each host"),
    Launcher("pdsh", "DeepSpeed's default", backend=True, program="pdsh"),
    Launcher("openmpi", "mpirun", backend=True, program="mpirun"),
    Launcher("mpich", "mpirun", backend=True, program="mpirun"),
    Launcher("impi", "Intel MPI", backend=True, program="mpirun"),
    Launcher("mvapich", "mpirun", backend=True, program="mpirun"),
    Launcher("slurm", "srun", backend=True, program="srun"),
    Launcher("torchrun", "torch's own"),
    Launcher("accelerate", "accelerate launch"),
    Launcher("nossh", "you start each host"),
)
LAUNCHERS = tuple(launcher.name for launcher in ALL)
BACKENDS = tuple(launcher.name for launcher in ALL if launcher.backend)
PROGRAMS = {launcher.name: launcher.program for launcher in ALL}
