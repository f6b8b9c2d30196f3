"""The launchers of ranks (`cluster.launcher`) as a table, used by rendering, forms, rules and the doctor.

The facts were observed with DeepSpeed 0.19.8, Open MPI 4.1, MPICH 4.0, Slurm 22.05, torch 2.13 and accelerate 1.15 on two hosts; those of
impi and mvapich were read in deepspeed/launcher/multinode_runner.py.
"""

from __future__ import annotations

from typing import Literal

from dstui.base.dataclass import dataclass

Start = Literal["here", "hosts", "login"]
Carries = Literal["all", "listed", "given"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Launcher:
    """One value of cluster.launcher."""

    name: str
    says: str
    """A few words for the form that explain it."""
    start: Start
    """here: one command for ranks on this machine; hosts: one command on each host; login: one command here that starts all hosts."""
    backend: bool = False
    """True if the command is `deepspeed --launcher NAME`."""
    program: str = "ssh"
    """The program that must be installed where the command is started (a field of the Machine's software); empty if none."""
    needs: str
    """The needs on every host, as a sentence."""
    modules: tuple[str, ...] = ()
    """Modules that the ranks' interpreter needs on every host, besides DeepSpeed."""
    programs: tuple[str, ...] = ()
    """Programs that a non-interactive ssh must find on the PATH of every host."""
    equal_slots: bool = False
    """True if all hosts must have the same number of ranks."""
    filters: bool = True
    """True if it supports cluster.include, exclude, num_nodes and num_gpus."""
    single_slots: bool = True
    """True if it can use single slots of a host."""
    mpi: bool = False
    """True if ranks learn their number only from MPI, so that DeepSpeed imports mpi4py."""
    carries: Carries
    """The variables of the environment that reach the ranks: all; NCCL_*, PYTHON* and a few more; or only those that are set explicitly."""
    ctrl_c: str
    """The effect of Ctrl-C on the plain command, as a sentence."""
    rank_fails: str
    """The effect of a rank's death under the plain command, as a sentence."""
    traps: tuple[str, ...] = ()
    """Common mistakes with the plain command, each as a sentence."""

    @property
    def launches_by_mpi(self) -> bool:
        """Return whether mpirun starts the ranks on the hosts by their names in the hostfile."""
        return self.program == "mpirun"


ENDS_ITS_HOST = "its host's command ends with the rank's status at once, the other hosts' when their next collective fails"
EACH_HOST = "the commands are independent: each host's must be stopped"
SAME_PATHS = "the interpreter, the folder of the job and the script at the same paths"
MPI_SLOTS = "hosts are cut down in the hostfile: include, exclude, num_nodes and num_gpus are refused"

ALL = (
    Launcher(
        name="local",
        says="this machine only",
        start="here",
        program="",
        needs="nothing: the ranks run on this machine",
        carries="all",
        ctrl_c="ends the ranks one after another",
        rank_fails="the launcher ends the other ranks and exits with the rank's status",
    ),
    Launcher(
        name="ssh",
        says="dstui starts each host",
        start="hosts",
        needs=f"sshd with a login by key; {SAME_PATHS}",
        carries="given",
        ctrl_c="ends the ranks of every host that is reached; those that are not are named",
        rank_fails=ENDS_ITS_HOST,
    ),
    Launcher(
        name="pdsh",
        says="DeepSpeed's default",
        start="login",
        backend=True,
        program="pdsh",
        needs=f"sshd with a login by key; {SAME_PATHS}",
        carries="listed",
        ctrl_c="ends every DeepSpeed job of yours on these hosts (pkill -f), in about 2 s",
        rank_fails="the command ends with the largest status of the hosts, once all of them have ended",
        traps=(
            "a lost host is not noticed: the others wait for it forever",
            "a killed pdsh, or a closed terminal, leaves silent ranks running",
            "a host without the job's folder starts the ranks in the home folder",
            "every variable that is passed on is visible in the process list of each host",
        ),
    ),
    Launcher(
        name="openmpi",
        says="mpirun",
        start="login",
        backend=True,
        program="mpirun",
        needs=f"orted on the PATH of a non-interactive ssh, mpi4py for the interpreter; {SAME_PATHS}",
        modules=("mpi4py",),
        programs=("orted",),
        filters=False,
        single_slots=False,
        mpi=True,
        carries="listed",
        ctrl_c="ends all ranks; SIGTERM to the deepspeed command alone leaves them running",
        rank_fails="hangs forever where the rank failed in Python: mpi4py waits for its peers at exit",
        traps=(
            MPI_SLOTS,
            "mpirun as root needs OMPI_ALLOW_RUN_AS_ROOT=1 and OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1",
            "its interface is eth0 unless --launcher_args has --mca btl_tcp_if_include NAME",
            "--master_port does not reach the ranks: MASTER_ADDR and MASTER_PORT must be in .deepspeed_env, or two jobs share port 29500",
        ),
    ),
    Launcher(
        name="mpich",
        says="mpirun",
        start="login",
        backend=True,
        program="mpirun",
        needs=f"hydra_pmi_proxy at the same path, and the name of the host that starts it; {SAME_PATHS}",
        programs=("hydra_pmi_proxy",),
        equal_slots=True,
        filters=False,
        single_slots=False,
        carries="all",
        ctrl_c="ends all ranks",
        rank_fails="the command still exits with 0: DeepSpeed's helper drops the rank's status",
        traps=(MPI_SLOTS, "where hydra_pmi_proxy cannot start on a host, mpirun silently waits forever"),
    ),
    Launcher(
        name="impi",
        says="Intel MPI",
        start="login",
        backend=True,
        program="mpirun",
        needs=f"Intel MPI at the same path; {SAME_PATHS}",
        equal_slots=True,
        filters=False,
        single_slots=False,
        carries="all",
        ctrl_c="ends all ranks",
        rank_fails="mpirun ends the others and exits with its own status",
        traps=(MPI_SLOTS,),
    ),
    Launcher(
        name="mvapich",
        says="MVAPICH2-GDR",
        start="login",
        backend=True,
        program="mpirun",
        needs=f"MVAPICH2-GDR (mpiname says so), mpi4py for the interpreter; {SAME_PATHS}",
        modules=("mpi4py",),
        equal_slots=True,
        filters=False,
        single_slots=False,
        mpi=True,
        carries="listed",
        ctrl_c="ends all ranks",
        rank_fails="mpirun ends the others and exits with its own status",
        traps=(MPI_SLOTS, "its hostfile is one fixed file in the temporary folder: two jobs overwrite each other's"),
    ),
    Launcher(
        name="slurm",
        says="srun, in an allocation",
        start="hosts",
        program="srun",
        needs=f"slurmd, and a folder of the job that all nodes share; {SAME_PATHS}",
        carries="all",
        ctrl_c="srun asks for a second Ctrl-C within a second, then ends every node's ranks",
        rank_fails="srun --kill-on-bad-exit=1 ends the other nodes; its own status may be the 143 of a node that was told to stop",
        traps=(
            "deepspeed --launcher slurm cannot start DeepSpeed by itself (no RANK, no MASTER_ADDR) and is not used: srun starts one "
            "`deepspeed --no_ssh` on each node",
        ),
    ),
    Launcher(
        name="sbatch",
        says="queued with SLURM, followed by dstui",
        start="hosts",
        program="srun",
        needs=f"slurmd, dstui's interpreter, and a folder of the job that all nodes share; {SAME_PATHS}",
        carries="all",
        ctrl_c="cancels the job (scancel)",
        rank_fails="dstui's supervisor in the allocation ends the other ranks, and the job with them",
    ),
    Launcher(
        name="torchrun",
        says="torch's own",
        start="hosts",
        needs=f"sshd with a login by key; {SAME_PATHS}",
        carries="given",
        ctrl_c=EACH_HOST,
        rank_fails="its host's torchrun exits with 1 whatever the rank's status; each host names only its own ranks",
        traps=(
            "a torchrun that is killed with SIGKILL leaves its ranks running, and the other hosts notice nothing",
            "with --rdzv-backend c10d ranks meet at a host's name: every host must resolve it",
            "the first host silently waits for the others",
        ),
    ),
    Launcher(
        name="accelerate",
        says="accelerate launch",
        start="hosts",
        needs=f"accelerate beside DeepSpeed; sshd with a login by key; {SAME_PATHS}",
        modules=("accelerate",),
        equal_slots=True,
        single_slots=False,
        carries="given",
        ctrl_c=EACH_HOST,
        rank_fails="as with torchrun, which it starts: 1 on each host, naming its own ranks",
        traps=(
            "the first host silently waits for the others",
            "with pdsh it appends its whole environment, secrets too, to ./.deepspeed_env, which then applies to other launches",
            "with openmpi, mpich or mvapich it cannot work: it passes options that these refuse",
        ),
    ),
    Launcher(
        name="nossh",
        says="you start each host",
        start="hosts",
        program="",
        needs=SAME_PATHS,
        carries="given",
        ctrl_c=EACH_HOST,
        rank_fails=ENDS_ITS_HOST,
        traps=("only you can stop the other hosts: dstui shows the commands, one for each, and starts nothing",),
    ),
)
BY_NAME = {launcher.name: launcher for launcher in ALL}
LAUNCHERS = tuple(BY_NAME)
NAMELESS = ("torchrun", "slurm", "sbatch")
"""Launchers whose command names no host: the number of hosts is enough."""
PROGRAMS = {launcher.name: launcher.program for launcher in ALL}
"""The field of the Machine's software that each launcher needs where it is started; empty if none."""

LISTED = ("MLFLOW", "PYTHON", "MV2", "UCX")
"""Prefixes of variables that DeepSpeed's launcher passes on (launcher/runner.py, EXPORT_ENVS); with GPUs also NCCL."""


JOB_SCRIPT = "job.sbatch"
"""The file that is handed to sbatch."""


def reads_env_files(launcher: Launcher) -> bool:
    """Return whether this launcher, or dstui instead of it, gives the variables of .deepspeed_env to ranks on other hosts."""
    return launcher.start != "here" and launcher.name not in ("torchrun", "accelerate")


def passes_on(launcher: Launcher, variable: str, *, cpu: bool) -> bool:
    """Return whether the launcher passes a variable of its environment on to ranks on other hosts."""
    if launcher.carries == "listed":
        return variable.startswith(LISTED if cpu else (*LISTED, "NCCL"))
    return launcher.carries == "all"
