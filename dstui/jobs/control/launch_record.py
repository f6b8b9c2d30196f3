"""Make launch.json, which a launch writes for the supervisor, from the Plan and the plain command; and register the job."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from dstui.jobs.store.folder import JobFolder
from dstui.jobs.store.ownership import NotOwn, own_tag, remember
from dstui.jobs.store.records import JobStatus
from dstui.jobs.supervisor.launch_command import SHIM, remote_folder
from dstui.plan import Plan
from dstui.plan.patterns import TAKEN
from dstui.render.spec import BIND, LaunchSpec

QUANTITIES = ("loss", "lr", "grad_norm", "perplexity")
NUMBER = r"([-+]?\d[\d.]*(?:[eE][-+]?\d+)?|nan|inf)"


class LaunchError(Exception):
    """The job cannot be started. Holds a sentence with the reason and the remedy. Nothing was started, and nothing half-written is left."""


def launch_json(spec: LaunchSpec, plan: Plan, folder: JobFolder, tag: str) -> dict[str, Any]:
    """Return the content of launch.json for a new job."""
    run, files, cluster = plan.run, folder.path, None
    if not spec.local:
        files, cluster = Path(remote_folder(tag)), cluster_json(spec, tag)
    config = str(files / folder.ds_config.name)
    argv = spec.argv(config)
    return {
        "python": spec.python,
        "options": spec.options(str(folder.ds_config)),
        "script": list(spec.script),
        "args": argv[len(argv) - len(spec.script_args) :],
        "env": spec.environment(config),
        "workdir": spec.workdir,
        "bind": str(files / BIND) if spec.bindings else None,
        "restarts": {"max": run.restarts.max, "backoff": run.restarts.backoff, "args": list(run.restarts.args)},
        "silence": run.silence,
        "host_lost": run.host_lost,
        "metrics": dict(metrics_of(plan)),
        "observe": run.observe,
        "on_end": run.on_end,
        "base": plan.base,
        "cluster": cluster,
    }


def cluster_json(spec: LaunchSpec, tag: str) -> dict[str, Any]:
    """Return the key "cluster" of launch.json."""
    config = f"{remote_folder(tag)}/ds_config.json"
    hosts = {
        host: {"command": _own_launcher(spec, config, node), "env": spec.environment(config, node)} for node, host in enumerate(spec.hosts)
    }
    reach = "here" if spec.only_here else "srun" if spec.launcher == "slurm" else "ssh"
    allocation = os.environ.get("SLURM_JOB_ID", "") if reach == "srun" else ""
    return {"reach": reach, "folder": remote_folder(tag), "hosts": hosts, "port": spec.master_port, "allocation": allocation}


def _own_launcher(spec: LaunchSpec, config: str, node: int) -> list[str] | None:
    """Return the words of a host's own launcher, up to the script; None if it has none."""
    words = spec.argv(config, node, wrapper=(SHIM.name,))
    return words[: words.index(SHIM.name)] if spec.start == "hosts" else None


def metrics_of(plan: Plan) -> Mapping[str, str]:
    """Return name -> regular expression: `run.metrics` of the Plan, and MODEL_loss and similar names for each of several models.

    If a script prints `student_loss 1.2`, dstui plots it under this name without configuration.
    """
    names = [(f"{model}_{quantity}", model, quantity) for model in plan.configurations if model for quantity in QUANTITIES]
    found = {name: rf"\b{model}[_ /.-]?{quantity}(?:=tensor\(|\W{{1,4}}){NUMBER}" for name, model, quantity in names if name not in TAKEN}
    return found | dict(plan.run.metrics)


def with_port(spec: LaunchSpec, port: int) -> LaunchSpec:
    """Return the launch with another rendezvous port."""
    env = {**spec.env, "MASTER_PORT": str(port)} if "MASTER_PORT" in spec.env else spec.env
    return replace(spec, master_port=port, env=env)


def with_address(spec: LaunchSpec, address: str) -> LaunchSpec:
    """Return the launch with another rendezvous address."""
    env = {**spec.env, "MASTER_ADDR": address} if "MASTER_ADDR" in spec.env else spec.env
    return replace(spec, master_addr=address, env=env)


@contextmanager
def registered(folder: JobFolder, status: JobStatus, name: str, tag: str) -> Iterator[tuple[int, str]]:
    """Write the first status of a job and add it to the index of runs. Raises LaunchError.

    Yields the lock on the job, which is held during the block, and why the index could not be written ("" if it was written).
    """
    lock = folder.lock()
    if lock is None:
        raise LaunchError(f"Cannot lock {folder.lock_file}: does this file system support locks? (--run-dir names another place)")
    try:
        folder.write_status(status)
        folder.append_event(time.time(), "start", folder=str(folder.path))
        problem = remember(folder, name, status.started, tag)
        own_tag(folder, status)
        yield lock, f"the index of runs cannot be written ({problem}; XDG_STATE_HOME names another place for it)" if problem else ""
    except NotOwn as why:
        raise LaunchError(
            f"The job folder {folder.path} {why}: --run-dir names another place, on a file system that keeps permissions"
        ) from None
    finally:
        os.close(lock)
