"""The launcher's command line and environment for a Plan on a Machine.

`dstui render` shows the plain command, ready to paste. A launch adds a free port, the job folder, the tag and the shim. Sources:
deepspeed/launcher/runner.py and launch.py of release 0.19.8; torch/distributed/run.py.
"""

from __future__ import annotations

import posixpath
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from dstui.base.user_error import UserError
from dstui.machine.binding import Binding, even_binding, near_binding
from dstui.machine.snapshot import Machine
from dstui.machine.visible import launcher_slots
from dstui.plan import Plan
from dstui.plan.accelerate_keys import FILE, SECTION, parallelism_variables
from dstui.plan.env_file import ENV_FILE
from dstui.plan.holes import Hole, find_holes
from dstui.plan.hostfile import HostfileError, is_named, placeholder_hosts, select
from dstui.plan.launchers import BY_NAME, NAMELESS, Launcher, reads_env_files
from dstui.render.accelerate import PORT, accelerate_data, accelerate_environment
from dstui.render.config_files import config_variable, placeholder
from dstui.render.quoting import OPEN, shell_variables, variable
from dstui.render.spec import HERE, AccelerateFile, LaunchSpec

NO_LOCAL_RANK = "--no_local_rank"
"""The launcher's option that omits --local_rank=N for ranks, which strict parsers refuse."""


class RenderError(UserError):
    """There is no command for the Plan. Holds the dotted path at fault and a sentence."""

    def __init__(self, path: str, message: str) -> None:
        super().__init__(f"{path}: {message}")
        self.path, self.message = path, message


def slots(plan: Plan, machine: Machine, pool: Mapping[str, int] | None = None) -> dict[str, list[int]] | None:
    """Return host -> used slots; None if that depends on GPUs that were not probed.

    `pool` is the content of the Plan's hostfile, if it names one. Raises RenderError.
    """
    cluster = plan.cluster
    if plan.cluster.submits and not machine.recorded:
        machine = Machine.unprobed()  # a login node says nothing about the nodes that SLURM will choose
    if cluster.hostfile is not None and pool is None:
        raise RenderError("cluster.hostfile", f"{cluster.hostfile} could not be read")
    hosts = hosts_of(plan, pool)
    if hosts is None:
        if machine == Machine.unprobed():
            count = cluster.num_gpus or (cluster.cpu_ranks if asks_for_cpus(plan) else 0)
            return {"localhost": list(range(count))} if count else None
        hosts = {"localhost": cluster.cpu_ranks if asks_for_cpus(plan) else len(machine.gpus) or cluster.cpu_ranks}
        chosen = asks_for_cpus(plan) or any(getattr(cluster, name) is not None for name in ("include", "exclude", "num_nodes", "num_gpus"))
        if not chosen and (launcher_visible := launcher_slots(_as_started(plan, machine))):
            return {"localhost": [slot for slot in launcher_visible if slot < len(machine.gpus)]}
    try:
        return select(hosts, include=cluster.include, exclude=cluster.exclude, num_nodes=cluster.num_nodes, num_gpus=cluster.num_gpus)
    except HostfileError as error:
        path = next((f"cluster.{key}" for key in ("include", "exclude", "num_nodes") if getattr(cluster, key)), "cluster.hosts")
        raise RenderError(path, error.message) from None


def hosts_of(plan: Plan, pool: Mapping[str, int] | None) -> Mapping[str, int] | None:
    """Return host -> slots from the Plan or its hostfile; None if the ranks run on this machine.

    With only num_nodes, placeholder hosts stand for those that the cluster will choose. Raises RenderError.
    """
    cluster = plan.cluster
    if cluster.hosts is not None or pool is not None:
        return cluster.hosts if cluster.hosts is not None else pool
    if cluster.hostfile is not None or (cluster.num_nodes or 1) < 2:
        return None
    ranks = cluster.num_gpus or (cluster.cpu_ranks if asks_for_cpus(plan) else None)
    if ranks is None:
        message = f"num_nodes is {cluster.num_nodes} and no host is named: give num_gpus, the ranks on each host (or name them in hosts)"
        raise RenderError("cluster.num_gpus", message)
    return dict.fromkeys(placeholder_hosts(int(cluster.num_nodes or 1)), ranks)


def open_holes(plan: Plan) -> list[Hole]:
    """Return the holes that prevent a launch: those that SLURM fills may be open until the allocation exists."""
    return [hole for hole in find_holes(plan) if not (plan.cluster.submits and hole.name.startswith("SLURM_"))]


def asks_for_cpus(plan: Plan) -> bool:
    """Return whether the Plan itself says that its ranks run on CPUs."""
    return plan.cluster.env.get("DS_ACCELERATOR") == "cpu"


def _as_started(plan: Plan, machine: Machine) -> Machine:
    """Return the machine with the Plan's CUDA_VISIBLE_DEVICES, which replaces the shell's for the launcher."""
    given = plan.cluster.env.get("CUDA_VISIBLE_DEVICES")
    if given is None:
        return machine
    return replace(machine, host=replace(machine.host, environment={**machine.host.environment, "CUDA_VISIBLE_DEVICES": given}))


def launch_spec(  # noqa: PLR0913 - the last two are named
    plan: Plan,
    machine: Machine,
    pool: Mapping[str, int] | None = None,
    launcher_name: str | None = None,
    *,
    cpu: bool | None = None,
    found: Mapping[str, str] | None = None,
) -> LaunchSpec:
    """Return how the Plan is started on the Machine. Raises RenderError.

    `launcher_name`: instead of the Plan's launcher. `cpu`: whether the ranks run on CPUs, if the Machine does not decide that. `found`: the
    content of .deepspeed_env files, for launchers that read these.
    """
    job, cluster = plan.job, plan.cluster
    if job.command:
        raise RenderError(
            "job.command", f"{job.command[0]} starts its ranks itself: `dstui --headless PLAN` runs it, as `dstui run --` does"
        )
    if not job.script and not job.module:
        raise RenderError("job.script", "no script is named: give the training script, relative to workdir")
    used = slots(plan, machine, pool)
    launcher = BY_NAME[_launcher(launcher_name or cluster.launcher, tuple(used or ("localhost",)), machine)]
    _refuse(plan, launcher, used or {})
    local = launcher.name == "local"
    first = next(iter(used or ("localhost",)))
    cpu = ranks_on_cpus(plan, machine, tuple(used or ())) if cpu is None else cpu
    read = found if found and reads_env_files(launcher) and not all(host in HERE for host in used or HERE) else {}
    return LaunchSpec(
        python=interpreter(plan),
        launcher_options=(
            *(_local_options(plan, machine, used) if local else ()),
            *_common_options(plan, launcher),
            *map(shell_variables, cluster.launcher_args),
        ),
        script=(_as_script(shell_variables(job.script)),) if job.script else ("-m", str(job.module)),
        script_args=tuple(map(shell_variables, job.args)),
        workdir=place_workdir(plan),
        env={**read, **_environment(plan, cpu, launcher, first)},
        ranks=dict(enumerate(host for host, chosen in (used or {}).items() for _ in chosen)),
        cpu=cpu,
        launcher=launcher.name,
        slots={host: tuple(chosen) for host, chosen in (used or {}).items()},
        bindings=_bindings(machine, next(iter(used.values()), []) if used else []) if cluster.cpu_binding == "numactl" else (),
        master_addr=None if local else master_address(plan, first),
        master_port=cluster.master_port if local else cluster.master_port or PORT,
        filters=tuple(_filters(plan)),
        env_file=posixpath.basename(cluster.env_file or "") or ENV_FILE,
        accelerate=_accelerate_file(plan, used) if launcher.name == "accelerate" else AccelerateFile(),
    )


def place_workdir(plan: Plan) -> str:
    """Return the folder in which the ranks start. A path that begins with a hole counts as absolute."""
    folder = shell_variables(plan.job.workdir)
    return folder if folder.startswith(OPEN) else plan.place(folder)


def _launcher(chosen: str | None, hosts: tuple[str, ...], machine: Machine) -> str:
    """Return the Plan's launcher; by default local for this machine, srun in a SLURM allocation, else ssh. Raises RenderError."""
    if chosen == "sbatch":
        chosen = "slurm"  # starts the ranks inside the allocation
    other = next((host for host in hosts if host not in HERE), None)
    named = all(map(is_named, hosts))
    launcher = chosen or ("local" if other is None else "slurm" if machine.host.scheduler == "slurm" else "ssh" if named else "torchrun")
    if not named and launcher not in NAMELESS:
        message = f"{launcher} needs the names of the hosts, and num_nodes gives only their number: name them in cluster.hosts"
        raise RenderError("cluster.hosts", message)
    if launcher == "local" and other is not None:
        raise RenderError("cluster.launcher", f"local starts ranks on this machine only, but there is {other}")
    return launcher


def _refuse(plan: Plan, launcher: Launcher, used: Mapping[str, Sequence[int]]) -> None:
    """Raise RenderError for what the launcher would reject or misread."""
    cluster = plan.cluster
    filters = [name for name in ("include", "exclude", "num_nodes", "num_gpus") if getattr(cluster, name) is not None]
    if filters and not launcher.filters:
        raise RenderError(f"cluster.{filters[0]}", f"{launcher.name} takes no {filters[0]}: shorten hosts instead")
    counts = {host: len(chosen) for host, chosen in used.items()}
    if launcher.equal_slots and len(set(counts.values())) > 1:
        reported = ", ".join(f"{host}: {count}" for host, count in list(counts.items())[:8])
        raise RenderError("cluster.hosts", f"{launcher.name} needs the same number of slots on every host, here {reported}")
    if launcher.single_slots or not filters:
        return  # without filters the environment chooses (CUDA_VISIBLE_DEVICES), and the launcher only counts
    for host, chosen in used.items():
        if list(chosen) != list(range(len(chosen))):
            message = f"{launcher.name} cannot choose single slots of {host}: only the first N of each host"
            raise RenderError(f"cluster.{filters[0]}", message)


def ranks_on_cpus(plan: Plan, machine: Machine, hosts: Sequence[str]) -> bool:
    """Return whether the ranks run on CPUs: on this machine without a GPU, or because the Plan says so.

    A machine that starts ranks on other hosts is often a login node without a GPU, which says nothing about those hosts.
    """
    says = plan.cluster.env.get("DS_ACCELERATOR")
    if says is not None:
        return says == "cpu"
    if plan.cluster.submits:
        return asks_for_cpus(plan)
    if runs_here(machine, hosts):
        return machine.accelerator == "cpu"
    return plan.get("cluster.cpu_ranks") is not None


def runs_here(machine: Machine, hosts: Collection[str]) -> bool:
    """Return whether ranks run on this machine: it is one of the hosts, or none is named."""
    return all(host in HERE for host in hosts) or machine.host.name in {host.rpartition("@")[2] for host in hosts}


def master_address(plan: Plan, first: str) -> str:
    """Return the rendezvous address: from the Plan, else the first host's name without its user; for unnamed hosts, a variable."""
    return plan.cluster.master_addr or (first.rpartition("@")[2] if is_named(first) else variable("MASTER_ADDR"))


def _common_options(plan: Plan, launcher: Launcher) -> list[str]:
    """Return the options of DeepSpeed's launcher that are the same for all hosts."""
    cluster = plan.cluster
    if launcher.name in ("torchrun", "accelerate"):
        return []
    options = ["--bind_cores_to_rank"] if cluster.cpu_binding == "deepspeed" else []
    if plan.job.integration == "accelerate" and NO_LOCAL_RANK not in cluster.launcher_args:
        options.append(NO_LOCAL_RANK)  # like accelerate launch: its scripts read LOCAL_RANK
    return options


def _bindings(machine: Machine, slots_of_a_host: list[int]) -> tuple[Binding, ...]:
    """Return the CPUs of each rank of a host, using the first host for all; empty if the machine does not tell."""
    there = [slot for slot in slots_of_a_host if slot < len(machine.gpus)]
    return near_binding(machine, there) if there else even_binding(machine, len(slots_of_a_host))


def _as_script(path: str) -> str:
    """Return a path that no launcher takes for an option, and that the shim does not take for the wrapper before the script."""
    return f"./{path}" if path.startswith(("-", "bind:")) else path


def interpreter(plan: Plan) -> str:
    """Return the interpreter of the ranks: an absolute path, or the name of a program on the PATH."""
    python = plan.job.python or sys.executable
    return plan.place(python) if "/" in python else python


def _local_options(plan: Plan, machine: Machine, used: Mapping[str, list[int]] | None) -> list[str]:
    """Return the options for one machine. The launcher counts its GPUs itself, but not CPU ranks or what the Plan overrides."""
    cluster = plan.cluster
    if cluster.include or cluster.exclude:
        return _filters(plan)
    if used is None or (cluster.hosts is None and cluster.hostfile is None and cluster.num_gpus is None and machine.gpus):
        return []
    return ["--num_gpus", str(sum(map(len, used.values())))]


def _filters(plan: Plan) -> list[str]:
    options: list[str] = []
    for name in ("include", "exclude", "num_nodes", "num_gpus"):
        value = getattr(plan.cluster, name)
        if value is not None:
            options += [f"--{name}", str(value)]
    return options


def _accelerate_file(plan: Plan, used: Mapping[str, list[int]] | None) -> AccelerateFile:
    """Return the settings that the rendered YAML leaves to the command line. Raises RenderError."""
    section = plan.accelerate.get(SECTION)
    multinode = str((section or {}).get("deepspeed_multinode_launcher") or "standard") if isinstance(section, Mapping) else "standard"
    path = f"accelerate.{SECTION}.deepspeed_multinode_launcher"
    if len(used or ()) < 2:
        multinode = "standard"
    if multinode not in ("standard", "pdsh", "nossh"):
        raise RenderError(path, f"accelerate cannot start several machines with {multinode}: standard, pdsh or nossh")
    data, _ = accelerate_data(plan, used)
    return AccelerateFile(multinode, FILE in (data.get(SECTION) or {}))


def _environment(plan: Plan, cpu: bool, launcher: Launcher, first: str) -> dict[str, str]:
    env = {"DS_ACCELERATOR": "cpu"} if cpu else {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}  # so that indices match nvidia-smi
    env |= {config_variable(model): placeholder(model) for model in plan.configurations}
    if cpu and launcher.name == "local":  # slots; otherwise the launcher counts NUMA nodes (before 0.16 by numactl, without which it dies)
        env["LOCAL_SIZE"] = str(sum((plan.cluster.hosts or {"localhost": plan.cluster.cpu_ranks}).values()))
    if launcher.mpi:  # DeepSpeed's runner does not pass them on: ranks would meet on port 29500 whatever the Plan says
        env |= {"MASTER_ADDR": master_address(plan, first), "MASTER_PORT": str(plan.cluster.master_port or PORT)}
    if plan.job.integration == "accelerate" and launcher.name != "accelerate":  # accelerate launch sets these itself
        env |= accelerate_environment(plan)
    elif plan.job.integration == "trainer" and launcher.name != "accelerate":
        env |= parallelism_variables(plan)  # the Trainer's own Accelerator reads them
    return env | {name: shell_variables(value) for name, value in plan.cluster.env.items()}
