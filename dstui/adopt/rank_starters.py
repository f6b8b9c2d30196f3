"""Convert the options of mpirun or srun in front of a Python script, where they start the ranks themselves, to keys of `cluster:`. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from dstui.base.limits import MAX_RANKS, MAX_SLOTS
from dstui.plan.hostfile import host_problem

LONGEST = 100
"""Characters of a command in a note."""
STARTERS = ("srun", "mpirun", "mpiexec")
HYDRA = frozenset(("-ppn", "-perhost", "-hosts", "-f", "-genv", "-genvall", "-genvlist", "-genvnone", "-bootstrap", "-launcher", "-iface"))
"""Options that MPICH and Intel MPI have, and Open MPI does not."""
RANKS = ("-np", "--np", "-n", "--n", "-c")
PER_HOST = ("-N", "-npernode", "--npernode", "-ppn", "--ppn", "-perhost")
HOSTS = ("-H", "-host", "--host", "-hosts", "--hosts")
HOSTFILE = ("-hostfile", "--hostfile", "-machinefile", "--machinefile", "-f")
VARIABLE = ("-x", "--x")
"""`-x NAME=VALUE` sets a variable, `-x NAME` passes it on."""
TASKS, TASKS_PER_NODE, NODES = ("-n", "--ntasks"), ("--ntasks-per-node",), ("-N", "--nodes")


def cluster_of_starter(words: Sequence[str], notes: list[str]) -> dict[str, Any]:
    """Return keys of `cluster:` for the words of srun or mpirun, and note how the Plan starts the ranks."""
    return _srun_keys(words, notes) if words[0] == "srun" else _mpirun_keys(words, notes)


def _srun_keys(words: Sequence[str], notes: list[str]) -> dict[str, Any]:
    tasks, each, nodes = (_number(words, names, MAX_RANKS) for names in (TASKS, TASKS_PER_NODE, NODES))
    if each is None and tasks is not None:
        each = tasks if nodes is None else tasks // nodes
    found: dict[str, Any] = {"launcher": "slurm"}
    if nodes is not None:
        found["num_nodes"] = nodes
    if each is not None and 1 <= each <= MAX_SLOTS:
        found["num_gpus"] = each
    count = "that many on each host" if "num_gpus" in found else "one for each GPU, unless cluster.num_gpus says how many on each host"
    notes.append(f"{_shown(words)} starts the ranks: the Plan starts them by srun too, on the hosts of the allocation, {count}")
    return found


def _mpirun_keys(words: Sequence[str], notes: list[str]) -> dict[str, Any]:
    ranks, each = _number(words, RANKS, MAX_RANKS), _number(words, PER_HOST, MAX_SLOTS)
    found: dict[str, Any] = {}
    if hosts := _hosts(_value(words, HOSTS), ranks, each):
        found["hosts"] = hosts
    elif hostfile := _value(words, HOSTFILE):
        found["hostfile"] = hostfile
    if found:
        found = {"launcher": "mpich" if HYDRA & set(words) else "openmpi", **found}
        notes.append(
            f"{_shown(words)} starts the ranks: the Plan starts them by {found['launcher']} (cluster.launcher): change it for another MPI"
        )
    elif ranks is not None and ranks <= MAX_SLOTS:
        found["hosts"] = {"localhost": ranks}
        notes.append(f"{_shown(words)} starts {ranks} ranks on this machine: the Plan starts as many by DeepSpeed's launcher")
    else:
        notes.append(f"{_shown(words)} starts the ranks: the Plan starts one on every GPU; write their number under cluster.hosts")
    given = dict(one.partition("=")[::2] for at, word in enumerate(words) for one in words[at + 1 : at + 2] if word in VARIABLE)
    if variables := {name: value for name, value in given.items() if value}:
        found["env"] = variables
    if passed := [name for name in given if name not in variables and "launcher" in found]:
        notes.append(f"{words[0]} passes on {', '.join(passed)}: write what the ranks need of them under cluster.env")
    return found


def _hosts(listed: str, ranks: int | None, each: int | None) -> dict[str, int]:
    """Return the ranks of each host of `a:2,b:2` or `a,b`, filled in this order; empty if the list is open or malformed."""
    parts = [part.partition(":") for part in listed.split(",")] if listed else []
    default = each or max((ranks or 0) // max(len(parts), 1), 1)
    found: dict[str, int] = {}
    left = ranks if ranks is not None else MAX_RANKS
    for host, _, slots in parts:
        if host_problem(host) or not re.fullmatch(r"\d{0,4}", slots):
            return {}
        count = min(int(slots or default), left, MAX_SLOTS)
        left -= count
        if count:
            found[host] = found.get(host, 0) + count
    return found


def _shown(words: Sequence[str]) -> str:
    text = " ".join(words)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def _number(words: Sequence[str], names: Sequence[str], most: int) -> int | None:
    value = _value(words, names)
    return int(value) if re.fullmatch(r"\d{1,9}", value) and 1 <= int(value) <= most else None


def _value(words: Sequence[str], names: Sequence[str]) -> str:
    """Return the value of the first of these options: `-n 4`, `--ntasks=4`, `-n4`; "" if there is none."""
    for at, word in enumerate(words[1:], 1):
        name, equals, value = word.partition("=")
        if name in names:
            return value if equals else next(iter(words[at + 1 : at + 2]), "")
        if (short := re.fullmatch(r"(-[A-Za-z])(\d+)", word)) and short[1] in names:
            return short[2]
    return ""
