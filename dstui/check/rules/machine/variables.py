"""Rules about variables that guides recommend: what each does, when it helps, what it costs on this machine."""

from __future__ import annotations

from itertools import combinations

from dstui.base.dataclass import dataclass
from dstui.check.rules.machine.machine_finding import Level, MachineFinding, MachineFindings, machine_rule
from dstui.check.rules.machine.requirement import Requirement
from dstui.machine.codec import known
from dstui.machine.snapshot import Machine, Nic
from dstui.machine.topology import width
from dstui.machine.visible import PCI_ORDER, launcher_reading, visible_gpus

ENV = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html"
OFF = ("", "0")


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of a variable on a machine, with its severity."""

    words: str
    level: Level = "warning"


def _place(requirement: Requirement, name: str) -> str:
    return f"cluster.env.{name}" if name in requirement.environment else "cluster.env"


def _joined(machine: Machine, requirement: Requirement) -> int:
    """Return the width of the widest NVLink between two of the chosen GPUs."""
    return max((width(machine.links[i][j]) for i, j in combinations(requirement.slots(machine), 2) if machine.links), default=0)


def _peer_to_peer(machine: Machine, requirement: Requirement) -> bool:
    table = machine.p2p.get("read")
    return bool(table) and any(table[i][j] == "OK" for i, j in combinations(requirement.slots(machine), 2)) if table else False


@machine_rule("MC101", "warning", source=f"{ENV}#nccl-p2p-disable")
def p2p_disable(machine: Machine, requirement: Requirement) -> MachineFindings:
    """NCCL_P2P_DISABLE: transfers between GPUs go through the host's memory."""
    if requirement.variables(machine).get("NCCL_P2P_DISABLE", "0") in OFF:
        return
    links = _joined(machine, requirement)
    if links:
        cost = Cost(f"{links} NVLinks between two GPUs stay unused here: collectives run at PCIe speed or less")
    elif _peer_to_peer(machine, requirement):
        cost = Cost("the driver allows peer-to-peer over PCIe here, which is then given up")
    else:
        cost = Cost("nothing here: these GPUs have no peer-to-peer anyway, and NCCL sees that by itself", "info")
    yield _about(
        requirement,
        "NCCL_P2P_DISABLE",
        "sends everything between GPUs through the host's memory",
        "a run hangs in its first collective (ACS, broken peer-to-peer)",
        cost,
    )


@machine_rule("MC102", "warning", source=f"{ENV}#nccl-shm-disable")
def shm_disable(machine: Machine, requirement: Requirement) -> MachineFindings:
    """NCCL_SHM_DISABLE: ranks of one host communicate over the network instead of shared memory."""
    if requirement.variables(machine).get("NCCL_SHM_DISABLE", "0") in OFF:
        return
    if _joined(machine, requirement) or _peer_to_peer(machine, requirement):
        cost = Cost("little here while peer-to-peer works; a lot for pairs without it", "info")
    else:
        cost = Cost("a lot here: without peer-to-peer, shared memory is the only fast way between these GPUs")
    yield _about(
        requirement,
        "NCCL_SHM_DISABLE",
        "forbids shared memory between ranks of one host",
        "/dev/shm is tiny and cannot be enlarged (a last resort)",
        cost,
    )


@machine_rule("MC103", "warning", source=f"{ENV}#nccl-ib-disable")
def ib_disable(machine: Machine, requirement: Requirement) -> MachineFindings:
    """NCCL_IB_DISABLE: hosts communicate over TCP instead of RDMA."""
    if requirement.variables(machine).get("NCCL_IB_DISABLE", "0") in OFF:
        return
    ports = [port for port in known(machine.host.infiniband, ()) if port.state == "ACTIVE"]
    if requirement.nodes < 2:
        cost = Cost("nothing on one host", "info")
    elif ports:
        fastest = max(known(port.gbps, 0.0) for port in ports)
        cost = Cost(f"{len(ports)} active RDMA ports of up to {fastest:g} Gb/s stay unused here: traffic between hosts goes over TCP")
    else:
        cost = Cost("nothing here: there is no active RDMA port", "info")
    yield _about(
        requirement,
        "NCCL_IB_DISABLE",
        "sends traffic between hosts over TCP sockets",
        "RDMA is present but broken, until it is repaired",
        cost,
    )


@machine_rule("MC104", "warning", source=f"{ENV}#nccl-socket-ifname")
def socket_interface(machine: Machine, requirement: Requirement) -> MachineFindings:
    """NCCL_SOCKET_IFNAME: the network interface for bootstrap and TCP traffic."""
    value = requirement.variables(machine).get("NCCL_SOCKET_IFNAME")
    nics = known(machine.host.nics, ())
    if value is None or not nics:
        return
    exact = value.startswith(("=", "^="))
    wanted = [part for part in value.lstrip("^=").split(",") if part]
    named = [nic for nic in nics if any(nic.name == part if exact else nic.name.startswith(part) for part in wanted)]
    if value.startswith("^"):
        named = [nic for nic in nics if nic not in named]
    if not named:
        there = ", ".join(nic.name for nic in nics if not nic.virtual)
        cost = Cost(f"the run: no interface here has this name ({there}); NCCL ends with `no socket interface found`", "error")
    elif all(nic.state == "down" for nic in named):
        cost = Cost(f"the run: {named[0].name} is down here", "error" if requirement.nodes > 1 else "warning")
    elif slower := _faster(named, nics):
        cost = Cost(f"speed: {named[0].name} is slower than {slower.name}")
    else:
        cost = Cost("nothing here", "info")
    yield _about(
        requirement,
        "NCCL_SOCKET_IFNAME",
        "fixes the interface over which ranks find each other",
        "NCCL takes the wrong one of several (a VPN, a bridge)",
        cost,
    )


def _faster(named: list[Nic], nics: tuple[Nic, ...]) -> Nic | None:
    best = max(known(nic.speed, 0) for nic in named)
    return next((nic for nic in nics if not nic.virtual and nic.state == "up" and best and known(nic.speed, 0) > best), None)


def _about(requirement: Requirement, name: str, does: str, helps: str, cost: Cost) -> MachineFinding:
    fix = f"remove {name}" if cost.level != "info" else ""
    return MachineFinding(
        f"{name} {does}", f"It helps where {helps}. It costs {cost.words}.", fix, path=_place(requirement, name), level=cost.level
    )


@machine_rule("MC105", "warning", source="CUDA programming guide, environment variables; deepspeed/launcher/runner.py, main")
def visible_devices(machine: Machine, requirement: Requirement) -> MachineFindings:
    """CUDA_VISIBLE_DEVICES is set, and DeepSpeed's launcher interprets it differently."""
    value = requirement.variables(machine).get("CUDA_VISIBLE_DEVICES")
    if value is None or not machine.gpus or requirement.cpu:
        return
    reading = launcher_reading(value, requirement.filtered)
    reading_of_cuda = visible_gpus(value, machine.gpus, requirement.variables(machine).get("CUDA_DEVICE_ORDER", PCI_ORDER))
    notes = [note for note in (reading, *reading_of_cuda.notes) if note]
    if notes:
        level: Level = "error" if "ValueError" in reading or "finds no GPU" in reading else "warning"
        fix = "unset it, and choose the GPUs in the Plan (cluster.include)"
        yield MachineFinding(
            f"CUDA_VISIBLE_DEVICES={value}: {notes[0]}",
            "; ".join(notes[1:]),
            fix,
            path=_place(requirement, "CUDA_VISIBLE_DEVICES"),
            level=level,
        )


@machine_rule("MC106", "warning", source="CUDA programming guide, CUDA_DEVICE_ORDER")
def device_order(machine: Machine, requirement: Requirement) -> MachineFindings:
    """CUDA_DEVICE_ORDER other than PCI_BUS_ID where the GPUs differ."""
    value = requirement.environment.get("CUDA_DEVICE_ORDER")
    if value not in (None, PCI_ORDER) and len({gpu.short_name for gpu in machine.gpus}) > 1:
        why = "the numbers of --include then mean other GPUs than in nvidia-smi and here"
        sets = (("cluster.env.CUDA_DEVICE_ORDER", PCI_ORDER),)
        yield MachineFinding(
            f"CUDA_DEVICE_ORDER={value}, and the GPUs differ", why, f"write {PCI_ORDER}", path="cluster.env.CUDA_DEVICE_ORDER", sets=sets
        )
