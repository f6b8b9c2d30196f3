"""Queue a job with SLURM: write its folder and the script that starts dstui's supervisor in the allocation, and call sbatch."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import time
from dataclasses import replace
from pathlib import Path

from dstui.base.text import sanitise
from dstui.jobs.control.launch_record import LaunchError, registered
from dstui.jobs.queue.scheduler import forget
from dstui.jobs.store.folder import JobFolder
from dstui.jobs.store.records import RankStatus
from dstui.jobs.store.status import initial
from dstui.plan.launchers import JOB_SCRIPT
from dstui.render.launch import RenderError
from dstui.render.sbatch import for_cluster
from dstui.render.spec import LaunchSpec
from dstui.render.target import Target

SUBMITTED = 60.0
"""Seconds for sbatch, which waits for the controller."""
LOCAL = ("tmpfs", "ramfs", "devtmpfs")
"""File systems that other nodes cannot see."""
NODES_OWN = ("/tmp", "/var/tmp", "/dev/shm")
"""Folders that are local to each node."""
WAITS = "(queued)"
"""The host of a rank that has none yet."""


def spec_of_nodes(target: Target) -> LaunchSpec:
    """Return how the nodes of the allocation will start the ranks. Raises LaunchError if nothing can be submitted from here."""
    if shutil.which("sbatch") is None:
        raise LaunchError("cluster.launcher: sbatch is not on the PATH of this machine: start dstui on a login node of the cluster")
    try:
        return for_cluster(target.plan, target.machine, target.pool)[0]
    except RenderError as error:
        raise LaunchError(str(error)) from None


def sharing_problem(path: Path) -> str:
    """Return why the nodes cannot see a folder, as a sentence; "" if they may."""
    path = Path(os.path.realpath(path))
    kind, mount = _file_system(path)
    own = next((folder for folder in NODES_OWN if path.is_relative_to(folder)), "")
    if kind in LOCAL or (own and mount in ("/", own)):
        where = f"{kind} at {mount}" if kind in LOCAL else own
        return f"{path} is on {where}, which is local to each node: all nodes must see the job folder. Name a shared folder with --run-dir"
    return ""


def _file_system(path: Path) -> tuple[str, str]:
    """Return the type and the mount point of a path's file system, as this process sees it."""
    found = ("", "")
    try:
        lines = Path("/proc/self/mountinfo").read_text().splitlines()
    except OSError:
        return found
    for line in lines:
        words, _, rest = line.partition(" - ")
        mount = words.split()[4].encode().decode("unicode_escape")
        if path.is_relative_to(mount) and len(mount) >= len(found[1]):
            found = (rest.split()[0], mount)
    return found


def submit(folder: JobFolder, spec: LaunchSpec, name: str, tag: str) -> None:
    """Submit the script in the folder. Raises LaunchError; the queue is then unchanged.

    The lock is held until status.json has the job's number: the allocation waits for it.
    """
    ranks = {number: RankStatus(WAITS) for number in spec.ranks}
    status = replace(initial(tag, {}, None), state="queued", ranks=ranks)
    with registered(folder, status, name, tag) as (_, unlisted):
        if unlisted:
            raise LaunchError(f"Nothing was submitted: {unlisted}")  # no command could follow or stop it
        number = _sbatch(folder)
        folder.write_status(replace(status, slurm_job=number))
        folder.append_event(time.time(), "notice", text=f"SLURM job {number} is queued")
        forget()


def _sbatch(folder: JobFolder) -> str:
    words = ["sbatch", "--parsable", f"--output={folder.launcher_log}", str(folder.path / JOB_SCRIPT), str(folder.path)]
    try:
        ran = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, timeout=SUBMITTED, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise LaunchError(f"sbatch does not answer ({error}): squeue --me shows whether the job is in the queue anyway") from None
    number = ran.stdout.decode(errors="replace").strip().partition(";")[0]
    if ran.returncode or not number.isdigit():
        reported = " ".join(sanitise(ran.stderr.decode(errors="replace")).replace("sbatch: error: ", "").split())
        raise LaunchError(f"SLURM refuses the job: {reported or 'sbatch gave no reason'}. cluster.slurm in the Plan sets what is requested")
    return number


def describe(folder: JobFolder) -> str:
    """Return one line with the number of a queued job and the next commands."""
    status = folder.read_status()
    number = status.slurm_job if status else None
    return f"SLURM job {number}: dstui attach {shlex.quote(folder.name)} follows it" if number else ""
