"""Steps of a SLURM allocation: the user's, or outside of any the job's own for each host, which is released at the end."""

from __future__ import annotations

import os
import shlex
import subprocess

from dstui.hosts.connection import boot_command

UNBUFFERED = ("--unbuffered", "--input=0", "--quiet", "--mpi=none", "--kill-on-bad-exit=0")
IN_OWN_ALLOCATION = """\
job=$(squeue --noheader --states=RUNNING --format=%A --name="$0" --nodelist="$1" | head -n 1)
name=$0 && shift && exec srun --job-name="$name" ${job:+--jobid="$job"} "$@"
"""
"""The first connection to a host makes the allocation; later ones find it by its name."""
ANSWERS = 30.0
"""Seconds for SLURM's controller to answer."""


def allocation_name(tag: str) -> str:
    """Return the name in squeue of the allocations that a job makes for itself."""
    return f"dstui-{tag}"


def agent_by_srun(host: str, python: str, *, tag: str, allocation: str) -> list[str]:
    """Return the command of an agent on a host, beside other steps. `allocation`: SLURM's job number; "" if the job makes its own."""
    # The ranks of a step use all CPUs of the job.
    step = ["--overlap", "--nodes=1", "--ntasks=1", "--cpu-bind=none", f"--nodelist={host}", *UNBUFFERED, *boot_command(python, "python3")]
    if allocation:
        return ["srun", f"--jobid={allocation}", *step]
    return ["sh", "-c", IN_OWN_ALLOCATION, allocation_name(tag), host, *step]


def release(tag: str) -> str:
    """Cancel the allocations that a job made for itself. Return why that failed; "" if it did not."""
    words = ["scancel", f"--user={os.geteuid()}", f"--name={allocation_name(tag)}"]
    try:
        ran = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, timeout=ANSWERS, check=False)
        problem = ran.stderr.decode(errors="replace").strip().rpartition("\n")[2] if ran.returncode else ""
    except (OSError, subprocess.TimeoutExpired) as error:
        problem = str(error)
    return f"SLURM's allocation could not be released ({problem}): {shlex.join(words)} does it" if problem else ""
