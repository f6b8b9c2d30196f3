"""Start a job: check whether it can start at all, write its folder, and hand it to a supervisor."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

from dstui.base.files import FileProblem, is_file, is_folder, is_there, reason, watch_reads, write_atomic
from dstui.documents.trusted_lines import refusal as lines_refusal
from dstui.jobs.control.launch_record import LaunchError, launch_json, registered, with_address, with_port
from dstui.jobs.control.take_over import spawn_supervisor
from dstui.jobs.store.folder import RUNS_FOLDER, JobFolder, create_folder
from dstui.jobs.store.processes import TAG, find
from dstui.jobs.store.records import LaunchRecord
from dstui.jobs.store.status import initial
from dstui.jobs.supervisor.launch_command import LAUNCHER_ENV, free_port
from dstui.plan import PlanError
from dstui.plan.holes import describe_open_holes, fill_holes
from dstui.plan.launchers import BY_NAME
from dstui.plan.locks import refusal, without_layers
from dstui.render.artifacts import artifacts
from dstui.render.launch import RenderError, open_holes
from dstui.render.spec import LaunchSpec
from dstui.render.target import Target

__all__ = ["LaunchError", "check", "fill", "ready_spec", "start"]

ASK_FOR_DEEPSPEED = "import importlib.util, sys; sys.exit(3 * (importlib.util.find_spec('deepspeed') is None))"
"""Looks for deepspeed without importing it, which would take seconds."""
INSTALL = "install it there (python -m pip install deepspeed), or name another interpreter"
WATCHED = ("silence", "host_lost", "metrics", "observe", "on_end", "base")
"""Keys of launch.json that do not depend on the hosts."""
UP = 20.0
"""Seconds for a supervisor to report; it usually takes a twentieth of one."""


def start(target: Target, *, run_dir: Path | None = None, owner_pid: int | None = None, probes: int = 0) -> JobFolder:
    """Start a job and return at once. From then on its supervisor runs it, recorded in its folder. Raises LaunchError.

    `run_dir` is the job folder itself; it must be empty or not exist. With `owner_pid` the job ends with that process.
    """
    target = _without_holes(target)
    plan, machine = target.plan, target.machine
    if refused := refusal(plan) or lines_refusal(plan):
        raise LaunchError(refused)
    if machine.recorded:
        raise LaunchError(
            f"A job can be started on this machine only, and the given one is recorded ({machine.source}): leave out --machine"
        )
    queued = plan.cluster.submits
    spec = _spec_of_nodes(target) if queued else ready_spec(target)
    name, tag = plan.name or Path(spec.script[-1]).stem, uuid.uuid4().hex
    with _new_folder(name, run_dir) as folder:
        facts = launch_json(spec, plan, folder, tag)
        if queued:  # how it is watched; the allocation writes what is started
            facts = {name: facts[name] for name in WATCHED}
        if probes:
            facts |= {"observe": f"probe-{probes}", "restarts": {"max": 0, "backoff": 0.0, "args": []}, "on_end": None}
        fill(target, folder, facts, tag)
        write_atomic(folder.path / "plan.yaml", without_layers(plan).text, private=True)
        folder.prepare(1)
        if queued:
            from dstui.jobs.control.submit import submit

            submit(folder, spec, name, tag)
        else:
            _hand_over(folder, spec, name, owner_pid, tag)
    return folder


@contextmanager
def _new_folder(name: str, run_dir: Path | None) -> Iterator[JobFolder]:
    """Create the job folder; after an error in the block, nothing of it is left. Raises LaunchError."""
    runs = Path.cwd() / RUNS_FOLDER
    had_runs, had_folder = is_there(runs), run_dir is not None and is_there(run_dir)
    try:
        folder = create_folder(name, datetime.now(), run_dir)
    except FileProblem as error:
        raise LaunchError(str(error)) from None
    try:
        yield folder
    except BaseException as error:
        _undo(folder, keep=had_folder)
        if run_dir is None and not had_runs:
            with suppress(OSError):
                runs.rmdir()
        if isinstance(error, OSError):
            raise LaunchError(f"Cannot write the job folder {folder.path}: {reason(error)} (--run-dir names another place)") from None
        if isinstance(error, FileProblem):
            raise LaunchError(f"Cannot write the job folder: {error} (--run-dir names another place)") from None
        raise


def ready_spec(target: Target) -> LaunchSpec:
    """Return how the ranks are started from this machine, with port and address of the rendezvous. Raises LaunchError."""
    try:
        spec = target.launch
    except RenderError as error:
        raise LaunchError(str(error)) from None
    check(spec)
    cluster = target.plan.cluster
    if not spec.local and cluster.master_port is None:
        spec = with_port(spec, free_port())
    if not spec.only_here and cluster.master_addr is None and not spec.meets_by_name:
        from dstui.hosts.ssh import meeting_address  # imports ssh, which a job of this machine does not need

        spec = with_address(spec, meeting_address(spec.hosts[0]))
    return spec


def _spec_of_nodes(target: Target) -> LaunchSpec:
    from dstui.jobs.control.submit import spec_of_nodes  # most launches do not use sbatch

    return spec_of_nodes(target)


def _without_holes(target: Target) -> Target:
    """Return the target with the holes of its Plan filled from the environment. Raises LaunchError with those that stay open."""
    try:
        plan = fill_holes(target.plan, os.environ)
    except PlanError as error:
        raise LaunchError(f"A hole of the Plan is filled with an invalid value: {error}") from None
    if still_open := open_holes(plan):
        raise LaunchError(describe_open_holes(still_open))
    return target if plan is target.plan else replace(target, plan=plan)


def check(spec: LaunchSpec) -> None:
    """Raise LaunchError for problems with which every launch fails, before anything is written."""
    if not spec.local:
        return _check_launcher(spec)
    workdir = Path(spec.workdir)
    if not is_folder(workdir):
        raise LaunchError(f"job.workdir: there is no folder {workdir}")
    if spec.script[0] != "-m" and not is_file(workdir / spec.script[0]):
        raise LaunchError(f"job.script: there is no file {workdir / spec.script[0]} (a script is relative to job.workdir)")
    _check_interpreter(spec.python, spec.env, workdir)


def _check_launcher(spec: LaunchSpec) -> None:
    """Check the launcher on this machine. Agents report what other hosts lack."""
    if not spec.named:
        raise LaunchError(
            f"cluster.hosts: {len(spec.hosts)} hosts are requested and none is named, so none can be started from here: name them, start "
            "inside a SLURM allocation, or give the cluster what `dstui render --only sbatch` (or k8s) writes"
        )
    if spec.launcher == "nossh":
        raise LaunchError(f"cluster.launcher: nossh means that you start each host by hand:\n\n{spec.command()}")
    if spec.launcher == "accelerate" and spec.start != "hosts":
        raise LaunchError("cluster.launcher: accelerate over pdsh cannot be followed: use pdsh, or accelerate's standard launcher")
    path = os.pathsep.join(filter(None, [os.path.dirname(spec.python), os.environ.get("PATH")]))  # noqa: PTH120 - as the launch has it
    reached_by = "srun" if spec.launcher == "slurm" else "" if spec.only_here else "ssh"
    for program in filter(None, (reached_by, BY_NAME[spec.launcher].program if spec.start == "login" else "")):
        if shutil.which(program, path=path) is None:
            remedy = "install it, or choose another cluster.launcher"
            raise LaunchError(f"cluster.launcher: {spec.launcher} needs {program}, which is not on the PATH of this machine: {remedy}")


def _check_interpreter(python: str, env: Mapping[str, str], workdir: Path) -> None:
    if python == sys.executable and "PYTHONPATH" not in env:
        if importlib.util.find_spec("deepspeed") is None:
            raise LaunchError(f"job.python: {python}, dstui's own interpreter, has no deepspeed: {INSTALL}")
        return
    found = shutil.which(python)
    if found is None:
        raise LaunchError(f"job.python: there is no interpreter {python}")
    try:
        answer = subprocess.run(
            [found, "-c", ASK_FOR_DEEPSPEED], env={**os.environ, **env}, cwd=workdir, capture_output=True, timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise LaunchError(f"job.python: {python} cannot be run: {error}") from None
    if answer.returncode == 3:
        raise LaunchError(f"job.python: {python} has no deepspeed: {INSTALL}")
    if answer.returncode:
        reported = answer.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        raise LaunchError(f"job.python: {python} is not a working Python (exit status {answer.returncode}): {reported}")


def fill(target: Target, folder: JobFolder, facts: dict[str, Any], tag: str) -> None:
    """Write the files of a launch into the folder of its job. `facts`: launch.json. Raises LaunchError, FileProblem or OSError."""
    record = LaunchRecord.from_json(facts)
    if record is None:
        raise LaunchError("The Plan has a text that cannot be passed to a program: it has a NUL character, or more than 1 MiB")
    files = {artifact.name: artifact.text for artifact in artifacts(target, str(folder.ds_config))}
    files |= {"machine.json": json.dumps(target.machine.to_json(), indent=1) + "\n"}
    for name, text in files.items():
        write_atomic(folder.path / name, text, private=True, replace=True)  # a requeued job starts again
    folder.write_json(folder.launch_file, record.as_json())
    if record.cluster:
        write_atomic(folder.path / LAUNCHER_ENV, f"{TAG}={tag}\n", private=True, replace=True)
    for config in folder.ds_configs:
        watch_reads(config)


def _hand_over(folder: JobFolder, spec: LaunchSpec, name: str, owner_pid: int | None, tag: str) -> None:
    """Write the first status and start the supervisor, which confirms by writing itself into the status."""
    owner = find(owner_pid) if owner_pid is not None else None
    status = initial(tag, spec.ranks, owner, () if spec.local else spec.hosts)
    with registered(folder, status, name, tag) as (lock, unlisted):
        if unlisted:
            text = f"{unlisted}: for other dstui commands this job is read-only. A SIGTERM to its supervisor stops it"
            folder.append_event(time.time(), "notice", text=text)
        supervisor = spawn_supervisor(folder, lock, tag)
    deadline = time.monotonic() + UP
    while (found := folder.read_status()) is None or found.supervisor is None:
        if supervisor.poll() is not None or time.monotonic() > deadline:
            supervisor.kill()
            reported = folder.supervisor_log.read_text(errors="replace").strip().rpartition("\n")[2]
            raise LaunchError(f"The supervisor of the job did not start: {reported or 'it gave no reason'}")
        time.sleep(0.02)  # each look reads and checks status.json


def _undo(folder: JobFolder, keep: bool) -> None:
    """Delete what this launch has written. A folder that existed before stays, empty."""
    shutil.rmtree(folder.path, ignore_errors=True)
    if keep:
        with suppress(OSError):
            folder.path.mkdir()
