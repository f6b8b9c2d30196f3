"""Rules about several hosts: the hostfile, what each launcher loses, and which variables reach the ranks."""

from __future__ import annotations

import re

from dstui.adopt.slurm import gpus_per_node, hosts_of_allocation
from dstui.check.context import Context
from dstui.check.rule import Problems, rule
from dstui.check.rules.job import about_the_plan, write
from dstui.machine.codec import known
from dstui.plan.finding import Fix
from dstui.plan.hostfile import HostfileError, HostfileProblem
from dstui.plan.launchers import BY_NAME, Launcher

RUNNER = "launcher/multinode_runner.py"
PLAIN = re.compile(r"[\w@%+=:,./-]*")
"""Values that DeepSpeed's launcher passes on unquoted (add_export)."""
SHELL = re.compile(r"[;&|<>()$`\\\"'*?\[\]#~!{}]")
"""Characters that the shell of a host interprets in an unquoted argument."""
SECRET = re.compile(r"(?i)secret|passw|credential|token(?!iz)|api_?key|access_?key|private_?key")
BINDS = ("ssh", "nossh", "slurm", "impi")
"""Launchers for other hosts that pass on --bind_cores_to_rank."""


def launcher_of(c: Context) -> Launcher | None:
    """Return the launcher that the Plan names."""
    return BY_NAME.get(c.plan.cluster.launcher or "") if c.plan is not None else None


@rule("PL040", "error", when="launch", says="Hostfile contains a bad entry", source="launcher/runner.py:_parse_hostfile")
def bad_hostfile(c: Context) -> Problems:
    """The hostfile cannot be read, or DeepSpeed refuses a line of it."""
    if c.plan is None or not isinstance(c.pool, HostfileProblem):
        return
    where = f"{c.plan.cluster.hostfile}: " + (f"line {c.pool.line}: " if c.pool.line else "")
    if c.pool.missing:
        why = "without it, DeepSpeed trains only on the machine that starts it, after a one-line message"
        yield about_the_plan("cluster.hostfile", f"{where}{c.pool.message}", why, severity="warning")
    else:
        yield about_the_plan("cluster.hostfile", f"{where}{c.pool.message}")


@rule("PL041", "warning", source="launcher/runner.py:_parse_hostfile")
def host_without_slots(c: Context) -> Problems:
    """A host without a slot, or listed twice under two names."""
    known: dict[str, str] = {}
    for host, slots in c.hosts.items():
        path = f"cluster.hosts.{host}" if c.plan and c.plan.cluster.hosts else "cluster.hostfile"
        name = host.rpartition("@")[2].lower().rstrip(".")
        if not slots:
            yield about_the_plan(path, f"{host} has no slots: no rank starts there")
        elif name in known:
            yield about_the_plan(path, f"{host} and {known[name]} are one host: its GPUs would have two ranks each")
        known.setdefault(name, host)


@rule("PL042", "warning", source=f"{RUNNER}, launcher/launcher_helper.py:main")
def lost_failures(c: Context) -> Problems:
    """A launcher that does not notice when a rank fails."""
    launcher = launcher_of(c)
    if launcher is not None and launcher.name in ("openmpi", "mpich"):
        why = "dstui watches the ranks, ends the job and reports the rank's exit status; the plain command does not"
        message = f"{launcher.name} when a rank dies: {launcher.rank_fails}"
        yield about_the_plan("cluster.launcher", message, why, replace("cluster.launcher", "ssh", "let dstui start each host over ssh"))


@rule("PL043", "info", source="comm/comm.py:init_distributed, mpi_discovery")
def mpi_starts_only(c: Context) -> Problems:
    """MPI starts the ranks; the backend stays NCCL."""
    launcher = launcher_of(c)
    if launcher is not None and not launcher.filters:
        needs = "; the interpreter needs mpi4py, which gives them their rank" if launcher.mpi else ""
        message = f"{launcher.name} only starts the ranks: they still communicate over NCCL (gloo or ccl on CPUs){needs}"
        yield about_the_plan("cluster.launcher", message, "the script chooses another backend: deepspeed.init_distributed(dist_backend=…)")


@rule("PL044", "warning", source=f"{RUNNER}:OpenMPIRunner.get_cmd")
def interface_of_openmpi(c: Context) -> Problems:
    """Open MPI is told to use the interface eth0, which hosts may not have."""
    launcher = launcher_of(c)
    if c.plan is not None and launcher is not None and launcher.name == "openmpi":
        words = " ".join(c.plan.cluster.launcher_args)
        if "btl_tcp_if_include" not in words:
            fix = Fix("cluster.launcher_args: [--launcher_args, --mca btl_tcp_if_include NAME], with the interface of your hosts")
            yield about_the_plan("cluster.launcher_args", "DeepSpeed makes Open MPI use eth0, which your hosts may not have", fix=fix)


@rule("PL045", "warning", source=f"{RUNNER}:add_export")
def quoted_values(c: Context) -> Problems:
    """A variable whose value reaches the ranks with quotes around it."""
    launcher = launcher_of(c)
    if c.plan is None or launcher is None or not launcher.backend or launcher.name == "pdsh":
        return
    for name, value in c.plan.cluster.env.items():
        if not PLAIN.fullmatch(value):
            why = "DeepSpeed adds them for pdsh's shell, even where no shell removes them"
            message = f'{name} reaches the ranks as "{value[:40]}", the quotes included'
            yield about_the_plan(
                f"cluster.env.{name}", message, why, Fix("use letters, digits and @%+=:,./-_ only, or set it in the script")
            )


@rule("PL046", "warning", source=f"{RUNNER}:PDSHRunner.parse_user_args")
def arguments_through_a_shell(c: Context) -> Problems:
    """An argument of the script that the shell of each host would change."""
    launcher = launcher_of(c)
    if c.plan is None or launcher is None or launcher.name != "pdsh":
        return
    for number, word in enumerate(c.plan.job.args):
        if SHELL.search(word.replace("{ds_config}", "")):
            message = f"pdsh hands {word[:40]!r} to a shell on each host, which interprets its special characters"
            yield about_the_plan(
                f"job.args.{number}", message, fix=Fix("put it into a file that the script reads, or use the launcher ssh")
            )


@rule("PL047", "warning", source=f"{RUNNER}:add_export")
def secrets_in_the_plan(c: Context) -> Problems:
    """A key or token among the variables of the Plan."""
    if c.plan is None or not c.hosts:
        return
    launcher = launcher_of(c)
    for name, value in c.plan.cluster.env.items():
        if value and SECRET.search(name):
            shown = launcher is not None and launcher.backend
            where = (
                "in the command line on every host, visible to all its users, and in the log" if shown else "in the Plan and its job folder"
            )
            fix = Fix("log in on the hosts instead (huggingface-cli login, wandb login), or read it from a file that only you can read")
            yield about_the_plan(f"cluster.env.{name}", f"{name} would stand {where}", fix=fix)


@rule("PL048", "warning", source="launcher/launch.py:main")
def visible_devices(c: Context) -> Problems:
    """CUDA_VISIBLE_DEVICES among the variables, which the launcher overrides."""
    cluster = c.plan.cluster if c.plan is not None else None
    if cluster is None or "CUDA_VISIBLE_DEVICES" not in cluster.env:
        return
    chosen = [name for name in ("include", "exclude", "num_nodes", "num_gpus") if getattr(cluster, name) is not None]
    if (c.hosts or chosen) and cluster.launcher not in ("torchrun", "accelerate", "openmpi", "mpich", "impi", "mvapich"):
        message = f"the launcher overwrites CUDA_VISIBLE_DEVICES by the slots of {'cluster.' + chosen[0] if chosen else 'the hosts'}"
        fix = Fix("choose slots with cluster.include: HOST:0,2", ({"op": "remove", "path": "/cluster/env/CUDA_VISIBLE_DEVICES"},))
        yield about_the_plan("cluster.env.CUDA_VISIBLE_DEVICES", message, fix=fix)


@rule("PL049", "warning", source="accelerate/commands/launch.py:deepspeed_launcher")
def accelerate_writes_secrets(c: Context) -> Problems:
    """accelerate over pdsh writes its whole environment to a file."""
    if c.plan is None or c.plan.cluster.launcher != "accelerate":
        return
    if c.plan.get("accelerate.deepspeed_config.deepspeed_multinode_launcher") == "pdsh":
        why = "it appends at every launch, and every later `deepspeed` in that folder reads the file"
        fix = replace("cluster.launcher", "ssh", "let dstui start each host over ssh")
        message = "accelerate with pdsh writes all variables of your shell, tokens included, to ./.deepspeed_env"
        yield about_the_plan("cluster.launcher", message, why, fix)


@rule("PL051", "info", source="launcher/runner.py:main, DEEPSPEED_ENVIRONMENT_PATHS")
def env_files(c: Context) -> Problems:
    """A .deepspeed_env in the home or job folder: whether the ranks get its variables."""
    for severity, line in c.env_lines:
        yield about_the_plan("cluster.env", line, severity=severity)


@rule("PL021", "warning", source=RUNNER)
def binding_is_not_passed_on(c: Context) -> Problems:
    """The launcher does not pass the binding on to the other hosts."""
    launcher = launcher_of(c)
    if c.plan is None or launcher is None or launcher.name in ("local", *BINDS) or c.plan.cluster.cpu_binding != "deepspeed":
        return
    fix = replace("cluster.cpu_binding", "numactl", "bind with numactl instead")
    yield about_the_plan("cluster.cpu_binding", f"{launcher.name} drops --bind_cores_to_rank: no rank is bound", fix=fix)


@rule("PL062", "warning", source="launcher/runner.py:fetch_hostfile (without a hostfile: this machine alone)")
def nodes_of_the_allocation_stay_idle(c: Context) -> Problems:
    """The Plan names no hosts inside of a SLURM allocation that has other nodes than this machine."""
    if c.plan is None or c.machine is None or c.plan.cluster.hosts is not None or c.plan.cluster.hostfile is not None:
        return
    cluster = c.plan.cluster
    if cluster.launcher == "local" or any(getattr(cluster, name) is not None for name in ("include", "exclude", "num_nodes")):
        return  # the Plan asks for one machine
    try:
        hosts = hosts_of_allocation(c.machine.host.allocation)
    except HostfileError:
        return
    here = str(known(c.machine.host.name, "")).partition(".")[0]
    idle = [host for host in hosts or () if host.partition(".")[0] != here]
    if not hosts or not idle:
        return
    if not gpus_per_node(c.machine.host.allocation) and c.gpus:
        hosts = dict.fromkeys(hosts, len(c.gpus))
    names = ", ".join(idle[:4]) + (f" and {len(idle) - 4} more" if len(idle) > 4 else "")
    message = f"the Plan names no hosts, so only this machine trains: {names} of the SLURM allocation stay idle"
    pairs = ", ".join(f"{host}: {slots}" for host, slots in list(hosts.items())[:4]) + (", …" if len(hosts) > 4 else "")
    fix = Fix(f"train on all nodes of the allocation: cluster.hosts: {{{pairs}}}", (write(c, "cluster.hosts", hosts),))
    yield about_the_plan("cluster.hosts", message, "set cluster.launcher: local to train on one machine on purpose", fix)


def replace(path: str, value: str, text: str) -> Fix:
    """Return a fix that writes another value for an existing key."""
    return Fix(text, ({"op": "replace", "path": "/" + path.replace(".", "/"), "value": value},))
