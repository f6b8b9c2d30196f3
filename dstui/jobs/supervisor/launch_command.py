"""The launcher's command as a job starts it: the plain command plus the shim, a free port, the job folder and the tag."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from dstui.jobs.store.folder import JobFolder
from dstui.jobs.store.processes import SUPERVISES, TAG
from dstui.jobs.store.records import LaunchRecord

SHIM = Path(__file__).parents[1] / "rank/shim.py"
HOOK = Path(__file__).parents[1] / "rank/hook/sitecustomize.py"
"""Imported by the interpreter of each rank. Its folder has no other modules."""
PORT_OPTION = "--master_port"
LAUNCHER_ENV = ".launcher_env"
"""The file that DeepSpeed's launcher passes to processes on other hosts through their command lines: it contains only the tag."""
RANK_ENV = "rank_env.json"
"""The file on each host with the environment of its ranks."""
PORTS = range(20000, 32768)
"""Below the kernel's range for outgoing connections, since seconds pass between this check and rank 0's listen()."""


def remote_folder(tag: str) -> str:
    """Return the placeholder for the job's folder in commands for a host; the agent replaces it by the real path."""
    return f"/tmp/dstui-{tag}"


def command(record: LaunchRecord, folder: JobFolder, tag: str, attempt: int = 1, more: Sequence[str] = ()) -> list[str]:
    """Return the launcher's command with the shim as its script. `more`: what a further attempt appends to the script's arguments."""
    options = list(record.options)
    if not any(option.split("=")[0] == PORT_OPTION for option in options):
        options += [PORT_OPTION, str(free_port())]
    return [record.python, "-m", "deepspeed.launcher.runner", *options, *rank_command(record, folder, tag, attempt), *more]


def rank_command(record: LaunchRecord, folder: JobFolder, tag: str, attempt: int) -> list[str]:
    """Return what the launcher gets as the script: the shim, followed by the script and its arguments.

    Paths are those on the ranks' hosts.
    """
    shim, hook, there, env = str(SHIM), str(HOOK.parent), str(folder.attempt(attempt)), list[str]()
    if record.cluster:
        remote = JobFolder(record.cluster.folder)
        shim, hook, there = str(remote.path / SHIM.name), str(remote.path / HOOK.parent.name), str(remote.attempt(attempt))
        env = [f"env:{remote.path / RANK_ENV}"]
    bind = [f"bind:{record.bind}"] if record.bind else []
    observe = [f"hook:{record.observe}:{hook}"] if record.observe != "off" else []
    return [shim, there, tag, *env, *observe, *bind, *record.script, *record.args]


def environment(record: LaunchRecord, folder: JobFolder, tag: str) -> dict[str, str]:
    """Return the launcher's environment: dstui's own, the Plan's, the job's tag, and the interpreter's folder first on the PATH.

    A launcher of several hosts passes on only some variables: the tag goes through its file, everything else to the ranks through a file of
    dstui.
    """
    env = {**os.environ, "PYTHONUNBUFFERED": "1", **record.env, TAG: tag}
    if record.cluster:
        from dstui.hosts.ssh import SSH_OPTIONS  # not needed for a job of one host

        env |= {name: " ".join(filter(None, (os.environ.get(name), *words))) for name, words in SSH_OPTIONS.items()}
        env["DS_ENV_FILE"] = str(folder.path / LAUNCHER_ENV)
    env.pop(SUPERVISES, None)
    beside = os.path.dirname(record.python)  # noqa: PTH120 - "" where only a name is given
    if beside:
        env["PATH"] = os.pathsep.join(filter(None, [beside, env.get("PATH")]))
    return env


def free_port() -> int:
    """Return a port without a listener."""
    for _ in range(100):
        port = PORTS[int.from_bytes(os.urandom(4), "big") % len(PORTS)]
        with suppress(OSError), socket.socket() as probe:
            probe.bind(("", port))
            return port
    raise OSError(f"no free port between {PORTS.start} and {PORTS.stop}")
