"""The orders for the agents of a job: the files that a host needs, its requirements, and the command that it starts."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from dstui.base.regular_files import read_regular
from dstui.hosts.agent import GAUGE
from dstui.hosts.connection import agent_by_srun, agent_by_ssh, agent_here
from dstui.hosts.ssh import is_local_name
from dstui.jobs.hosts.job_host import JobHost
from dstui.jobs.hosts.job_hosts import JobHosts
from dstui.jobs.hosts.mirror import Mirror
from dstui.jobs.store.folder import JobFolder
from dstui.jobs.store.records import HostLaunch, HostStatus, JobStatus, LaunchRecord
from dstui.jobs.supervisor.launch_command import HOOK, RANK_ENV, SHIM, rank_command, remote_folder

NVML = Path(__file__).parents[2] / "machine/nvml.py"
FILES = ("hostfile", "bind.sh", "accelerate.yaml")
"""Files of the job folder that are sent along if they exist."""
TRAVELS = ("NCCL", "PYTHON", "MLFLOW", "UCX", "MV2")
"""Prefixes of variables that ranks inherit from dstui's environment, as with DeepSpeed's own launchers."""
SECRETS = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "WANDB_API_KEY", "COMET_API_KEY", "NEPTUNE_API_TOKEN", "CLEARML_API_SECRET_KEY")
"""Variables that ranks also inherit, but that never appear on a command line, in a file that others can read, or in a log."""


LONGEST_NAME = 200
"""Characters of a host's name in the name of its folder: a file name has at most 255 bytes."""


def folder_name(tag: str, host: str) -> str:
    """Return the name of the job's folder on a host. It includes the host, since hosts may share a disk."""
    return f"dstui-{tag}-{re.sub(r'[^A-Za-z0-9._-]', '-', host)[:LONGEST_NAME]}"


def cluster_of(record: LaunchRecord, mirror: Mirror, status: JobStatus) -> JobHosts:
    """Return the hosts of a job, none of them connected yet."""
    assert record.cluster is not None
    names = record.cluster.hosts
    by_srun = partial(agent_by_srun, tag=mirror.tag, allocation=record.cluster.allocation)
    agents: Mapping[str, Callable[[str, str], list[str]]] = {"ssh": agent_by_ssh, "srun": by_srun, "here": agent_here}
    reach = agents[record.cluster.reach]
    hosts = (JobHost(name, reach(name, record.python), mirror, status.hosts.get(name, HostStatus())) for name in names)
    return JobHosts(hosts, partial(opening, record, mirror))


def cluster_from_here(record: LaunchRecord, mirror: Mirror, status: JobStatus) -> JobHosts:
    """Return the hosts of a job as reached from another host than the supervisor's, including that one if ranks may run there."""
    cluster, home = record.cluster, (status.supervisor.host if status.supervisor else None) or "localhost"
    names = list(cluster.hosts) if cluster else []
    if not cluster or not cluster.each_host_starts:
        names.append(home)

    def host(name: str) -> JobHost:
        known = status.hosts.get(name, HostStatus())
        at_first = replace(known, state="unreachable") if known.state == "starting" else known
        by_ssh = agent_by_ssh(home if is_local_name(name) else name, record.python or "python3")
        if cluster and cluster.reach == "srun" and name in cluster.hosts:
            by_ssh = agent_by_srun(name, record.python, tag=mirror.tag, allocation=cluster.allocation)
        return JobHost(name, by_ssh, mirror, at_first)

    def first_order(job_host: JobHost, makes: bool) -> dict[str, Any]:
        if cluster and job_host.name in cluster.hosts:
            return opening(record, mirror, job_host, makes)
        place: dict[str, Any] = {
            "folder": remote_folder(mirror.tag),
            "name": folder_name(mirror.tag, job_host.name),
            "known": None,
            "ranks": [],
        }
        nothing: dict[str, Any] = {"have": {}, "make": False, "files": {}, "needs": {}, "stays": False, "gauge": None}
        return {**place, **nothing, "tag": mirror.tag, "attempt": mirror.attempt}

    return JobHosts(map(host, dict.fromkeys(names)), first_order)


def opening(record: LaunchRecord, mirror: Mirror, job_host: JobHost, makes: bool) -> dict[str, Any]:
    """Return the first order for the agent of a host. `makes`: a start on the host will follow."""
    cluster, host = record.cluster, job_host.name
    assert cluster is not None
    first = host == next(iter(cluster.hosts), None)
    script = record.script[0] if record.script and record.script[0] != "-m" else None
    port = cluster.port if first and cluster.each_host_starts else None
    words = cluster.hosts[host].command or ("", "", "deepspeed")
    module, env = words[2].partition(".")[0], {name: value for name, value in cluster.hosts[host].env.items() if name.startswith("PYTHON")}
    needs = {"cwd": record.workdir, "python": record.python, "script": script, "port": port, "module": module, "env": env}
    on_gpus = record.env.get("DS_ACCELERATOR") != "cpu"
    here = {"tag": mirror.tag, "attempt": mirror.attempt, "have": mirror.have(host)}
    return {
        "folder": cluster.folder,
        "name": folder_name(mirror.tag, host),
        "known": job_host.status.folder,
        "ranks": [] if cluster.each_host_starts else mirror.ranks(host),
        "make": makes,
        "files": _files(mirror.folder, cluster.hosts[host]) | (gauge() if on_gpus else {}) if makes else {},
        "needs": needs,
        **here,
        "stays": cluster.reach == "srun",
        "gauge": record.python if on_gpus else None,
    }


@cache
def gauge() -> dict[str, str]:
    """Return the program that reports the GPUs of a host, with pynvml's single file, so that nothing must be installed there."""
    pynvml = find_spec("pynvml")
    files = {GAUGE: NVML, **({"pynvml.py": Path(pynvml.origin)} if pynvml and pynvml.origin else {})}
    return {name: path.read_text() for name, path in files.items()}


def _files(folder: JobFolder, host: HostLaunch) -> dict[str, str]:
    found = {SHIM.name: SHIM.read_text(), RANK_ENV: json.dumps(remote_environment(host.env))}
    found[f"{HOOK.parent.name}/{HOOK.name}"] = HOOK.read_text()
    for path in (*folder.ds_configs, *(folder.path / name for name in FILES)):
        with suppress(OSError):
            found[path.name] = read_regular(path).decode()
    return found


def start_order(record: LaunchRecord, host: str, mirror: Mirror, more: Sequence[str]) -> dict[str, Any]:
    """Return the order to start a host's part of the attempt, with its own launcher if any. `more`: further arguments of the script."""
    assert record.cluster is not None
    launch = record.cluster.hosts[host]
    ranks = [*rank_command(record, mirror.folder, mirror.tag, mirror.attempt), *more]
    argv = [*launch.command, *ranks] if launch.command is not None else None
    return {"do": "start", "attempt": mirror.attempt, "argv": argv, "cwd": record.workdir, "env": remote_environment(launch.env)}


def remote_environment(env: Mapping[str, str]) -> dict[str, str]:
    """Return what is added to a host's own environment besides the Plan's variables."""
    own = {name: value for name, value in os.environ.items() if name.startswith(TRAVELS) or name in SECRETS}
    return {**own, "PYTHONUNBUFFERED": "1", **env}
