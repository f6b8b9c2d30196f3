"""Probe this machine: three look-up programs in parallel, each killed at its deadline; their facts make a Machine."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from dataclasses import replace
from threading import Thread
from typing import Any

from dstui.machine.child import Line, run_lookup
from dstui.machine.codec import Unknown, decode
from dstui.machine.snapshot import Driver, Gpu, Host, Machine, Matrix, Software
from dstui.machine.topology import NO_ANSWER, Pair, islands, link_matrix

P2P_KINDS = ("read", "write", "nvlink", "atomics", "pci")


def machine_from(nvml: Iterable[Line], host: Iterable[Line], software: Iterable[Line], source: str) -> Machine:
    """Build the Machine from the output of three programs.

    A fact that a program did not deliver is Unknown, with the program's end as the reason.
    """
    driver, gpus, ancestors, p2p = _nvml_facts(nvml)
    host_facts, host_end = _merged(host, "host")
    found_host = decode(Host, host_facts, host_end)
    gpus = tuple(_placed(gpu, found_host) for gpu in gpus)
    kernel, _ = _merged(host, "driver")
    software_facts, software_end = _merged(software, "software")
    links = link_matrix(gpus, ancestors)
    statuses = {kind: _status_matrix(len(gpus), p2p, kind) for kind in P2P_KINDS} if gpus else {}
    return Machine(
        source=source,
        gpus=gpus,
        links=links,
        p2p=statuses,
        islands=islands(links, statuses, gpus),
        driver=_driver({**kernel, **driver}),
        host=found_host,
        software=decode(Software, software_facts, software_end),
    )


def _driver(facts: dict[str, Any]) -> Driver:
    """Build the Driver. If NVML did not start, its facts are Unknown for that reason."""
    state = facts.get("state")
    why = state["unknown"] if isinstance(state, dict) else "not reported by the driver"
    return decode(Driver, facts, Unknown(why))


def _merged(lines: Iterable[Line], kind: str) -> tuple[dict[str, Any], Unknown]:
    """Return all facts of one kind, and the reason for missing ones."""
    facts: dict[str, Any] = {}
    for line_kind, value in lines:
        if line_kind == kind:
            facts.update(value)
    return facts, _ending(lines)


def _ending(lines: Iterable[Line]) -> Unknown:
    reasons = [str(value).splitlines()[-1] for kind, value in lines if kind in ("late", "failed")]
    return Unknown(reasons[0] if reasons else "not reported by this host")


def _nvml_facts(lines: Iterable[Line]) -> tuple[dict[str, Any], tuple[Gpu, ...], dict[Pair, str], dict[Pair, Mapping[str, str]]]:
    lines = list(lines)
    driver, ending = _merged(lines, "driver")
    found = {value["index"]: decode(Gpu, value, Unknown("not reported by the driver")) for kind, value in lines if kind == "gpu"}
    ancestors: dict[Pair, str] = {}
    p2p: dict[Pair, Mapping[str, str]] = {}
    for kind, value in lines:
        if kind == "pair":
            i, j, ancestor, statuses = value
            p2p[i, j] = statuses
            if isinstance(ancestor, str):
                ancestors[i, j] = ancestor
        elif kind == "lost" and value[0] in found:
            found[value[0]] = replace(found[value[0]], problem=value[1])
    if not any(kind == "done" for kind, _ in lines):
        driver["state"] = {"unknown": ending.reason}
    return driver, tuple(found[index] for index in sorted(found)), ancestors, p2p


def _status_matrix(size: int, p2p: Mapping[Pair, Mapping[str, str]], kind: str) -> Matrix:
    def cell(i: int, j: int) -> str:
        return "X" if i == j else p2p.get((min(i, j), max(i, j)), {}).get(kind, NO_ANSWER)

    return tuple(tuple(cell(i, j) for j in range(size)) for i in range(size))


def _placed(gpu: Gpu, host: Host) -> Gpu:
    """Return the GPU with the CPUs that the kernel names: NVML's answer is limited to this process's cpuset and may be empty."""
    if isinstance(host.pci_gpus, Unknown):
        return gpu
    device = next((device for device in host.pci_gpus if device.bus_id == gpu.bus_id), None)
    if device is None:
        return gpu
    node = gpu.numa_node if isinstance(device.numa_node, Unknown) else device.numa_node
    cpus = gpu.cpus if isinstance(device.cpus, Unknown) else device.cpus
    return replace(gpu, numa_node=node, cpus=cpus)


def probe(deadline: float = 5.0, *, python: str = sys.executable, serials: bool = False) -> Machine:
    """Return the Machine as it is now. Blocks for at most `deadline` seconds and never raises; late facts are Unknown.

    The packages are those of the interpreter `python`. Serial numbers are left out by default.
    """
    found: dict[str, list[Line]] = {}

    def ask(program: str, *args: str, python: str = sys.executable) -> None:
        found[program] = run_lookup(program, deadline, *args, python=python)

    threads = [  # concurrent.futures would import logging, which takes a twentieth of dstui's start
        Thread(target=ask, args=("nvml", *(["--serials"] if serials else []))),
        Thread(target=ask, args=("host",)),
        Thread(target=ask, args=("software",), kwargs={"python": python}),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return machine_from(found["nvml"], found["host"], found["software"], "this machine")
