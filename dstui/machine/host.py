"""Print the host's facts as JSON lines. A standalone program that reads /proc and /sys and starts no processes.

It runs as a child process (`python host.py`), because asking a dead network file system for its free space blocks forever. It is plain
Python 3.8 without imports of dstui, so that it can be sent to other hosts, and imports little, since every start of dstui waits for it. The
environment variable DSTUI_HOST_ROOT names another folder to read as /, for a copy of /proc and /sys.

Lines: ["host", {...}] repeatedly, each with some fields of the snapshot's Host; ["driver", {...}]; ["done", null].
"""

from __future__ import annotations

import json
import os
import re
import resource
import sys
import time

TYPE_CHECKING = False  # only type checkers import these modules
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

ROOT = os.environ.get("DSTUI_HOST_ROOT", "/")
LOCAL = {"ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "tmpfs", "overlay"}
NETWORK = {"nfs", "nfs4", "lustre", "gpfs", "beegfs", "cifs", "smb3", "fuse.sshfs", "ceph", "wekafs", "9p", "virtiofs"}
SYSTEM_MOUNTS = ("/proc", "/sys", "/etc/", "/run/", "/boot", "/snap/", "/dev/")
VIRTUAL_NIC = re.compile(r"(docker|veth|br-|virbr|cni|flannel|cali|tun|tap|kube|lxc|wg|nodelocaldns|bonding_masters|dummy|ifb)")
TOO_SMALL = 64 << 20
"""Bytes of a file system that is too small for any file of a job: mounts of single files and keys in containers often have 4 KB."""
NO_LIMIT = 1 << 60  # cgroup v1 writes a slightly larger number for no limit
STEERING = re.compile(r"(CUDA|NCCL|NVIDIA|GLOO|UCX|OMP|KMP|DS|TORCH|HF|PYTORCH)_\w+$")
SECRET = re.compile(r"TOKEN|SECRET|KEY|PASSWORD")
LISTENING = "0A"  # include/net/tcp_states.h
DRIVER_MODULES = {"nvidia", "nvidia_uvm", "nvidia_peermem", "nv_peer_mem", "gdrdrv", "nvidia_fs", "nouveau", "nvidia_drm"}
DEVICE_NODES = re.compile(r"nvidia\d+|nvidiactl|nvidia-uvm|nvidia-nvswitch\d+|nvidia-caps-imex-channels|dxg")
CPU_FLAGS = ("avx2", "avx512f", "amx_tile", "sve", "asimd")
SCHEDULERS = (("slurm", "SLURM_JOB_ID"), ("pbs", "PBS_JOBID"), ("lsf", "LSB_JOBID"), ("flux", "FLUX_JOB_ID"), ("sge", "SGE_TASK_ID"))
ALLOCATION = re.compile(
    r"SLURM_(JOB_ID|JOB_NODELIST|NNODES|JOB_NUM_NODES|NTASKS|TASKS_PER_NODE|GPUS\w*|JOB_GPUS|STEP_GPUS|CPUS_PER_TASK|CPUS_ON_NODE|MEM_PER_NODE|JOB_END_TIME)$"
    r"|(PBS|LSB)_JOBID$|FLUX_JOB_ID$"
)


def path(name: str) -> str:
    """Return the real path of a path of the host."""
    return os.path.join(ROOT, name.lstrip("/"))


def read(name: str) -> str | None:
    """Return the stripped text of a small file; None if it cannot be read."""
    try:
        with open(path(name), encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return None


def number(name: str) -> int | None:
    """Return the number in a file; None if there is none or it is -1, which means unknown."""
    text = read(name)
    return int(text) if text and re.fullmatch(r"\d+", text) else None


def entries(name: str) -> list[str]:
    """Return the sorted names in a folder; empty if it cannot be read."""
    try:
        return sorted(os.listdir(path(name)))
    except OSError:
        return []


def or_unknown(value: Any, reason: str) -> Any:
    """Return the value, or an unknown with the reason."""
    return {"unknown": reason} if value is None else value


def identity() -> dict[str, Any]:
    """Name, system, clock."""
    release = dict(re.findall(r'^(\w+)="?([^"\n]*)', read("/etc/os-release") or "", re.M))
    return {
        "name": os.uname().nodename,
        "system": or_unknown(release.get("PRETTY_NAME"), "not in /etc/os-release"),
        "kernel": os.uname().release,
        "clock": time.time(),
    }


def memory() -> dict[str, Any]:
    """Return RAM, swap and huge pages of the machine."""
    facts = dict(re.findall(r"^(\w+):\s+(\d+)", read("/proc/meminfo") or "", re.M))

    def fact(key: str, unit: int) -> Any:
        return int(facts[key]) * unit if key in facts else {"unknown": f"/proc/meminfo has no {key}"}

    return {
        "memory_total": fact("MemTotal", 1024),
        "memory_available": fact("MemAvailable", 1024),
        "swap_free": fact("SwapFree", 1024),
        "hugepages_total": fact("HugePages_Total", 1),
        "hugepages_free": fact("HugePages_Free", 1),
        "hugepage_size": fact("Hugepagesize", 1024),
    }


def cgroup() -> dict[str, Any]:
    """Return the limits of this process's cgroup: the lowest up to the root, since a scheduler may set it on a parent."""
    lines = [line.split(":", 2) for line in (read("/proc/self/cgroup") or "").splitlines() if line.count(":") >= 2]
    if os.path.exists(path("/sys/fs/cgroup/cgroup.controllers")):
        own = next((where for number, _, where in lines if number == "0"), "/")
        return _cgroup2(_upwards("/sys/fs/cgroup", own))
    own_of = {controller: where for _, controllers, where in lines for controller in controllers.split(",")}
    memory_groups = _upwards("/sys/fs/cgroup/memory", own_of.get("memory", "/"))
    cpu_groups = _upwards("/sys/fs/cgroup/cpu", own_of.get("cpu", "/"))
    return _cgroup1(memory_groups, cpu_groups)


def _upwards(base: str, own: str) -> list[str]:
    """Return the existing folders of this process's cgroup and its parents (containers often hide the lower ones)."""
    parts = [part for part in own.split("/") if part and part != ".."]
    folders = ["/".join([base, *parts[:depth]]) for depth in range(len(parts), -1, -1)]
    return [folder for folder in folders if os.path.isdir(path(folder))]


def _cgroup2(folders: list[str]) -> dict[str, Any]:
    limits = [number(f"{folder}/memory.max") for folder in folders]
    used = [number(f"{folder}/memory.current") for folder in folders]
    quotas = [re.match(r"(\d+) (\d+)", read(f"{folder}/cpu.max") or "") for folder in folders]
    return _limits(limits, used, [int(q[1]) / int(q[2]) for q in quotas if q])


def _cgroup1(memory_folders: list[str], cpu_folders: list[str]) -> dict[str, Any]:
    limits = [number(f"{folder}/memory.limit_in_bytes") for folder in memory_folders]
    used = [number(f"{folder}/memory.usage_in_bytes") for folder in memory_folders]
    quotas = [(number(f"{folder}/cpu.cfs_quota_us"), number(f"{folder}/cpu.cfs_period_us")) for folder in cpu_folders]
    return _limits(limits, used, [quota / period for quota, period in quotas if quota and period])


def _limits(limits: list[int | None], used: list[int | None], quotas: list[float]) -> dict[str, Any]:
    finite = [limit for limit in limits if limit is not None and limit < NO_LIMIT]
    spent = next((value for value in used if value is not None), None)
    return {
        "memory_limit": min(finite, default=None),
        "memory_limit_used": or_unknown(spent, "not counted by a cgroup"),
        "cpu_quota": min(quotas, default=None),
    }


def limits() -> dict[str, Any]:
    """Return the limits of one process; null means no limit."""

    def limit(which: int) -> int | None:
        soft = resource.getrlimit(which)[0]
        return None if soft == resource.RLIM_INFINITY else soft

    return {
        "memlock": limit(resource.RLIMIT_MEMLOCK),
        "nofile": limit(resource.RLIMIT_NOFILE),
        "nproc": limit(resource.RLIMIT_NPROC),
        "cpu_set": ranges(sorted(os.sched_getaffinity(0))),
        "cpus_usable": len(os.sched_getaffinity(0)),
        "cpus": or_unknown(os.cpu_count(), "not reported by the system"),
    }


def ranges(numbers: list[int]) -> str:
    """Format [0, 1, 2, 3, 8] as 0-3,8."""
    found: list[list[int]] = []
    for item in numbers:
        if found and found[-1][1] == item - 1:
            found[-1][1] = item
        else:
            found.append([item, item])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in found)


def shared_memory() -> dict[str, Any]:
    """Return the size of /dev/shm, through which ranks of one host communicate."""
    shm = os.statvfs(path("/dev/shm"))
    return {"shm_total": shm.f_blocks * shm.f_frsize, "shm_free": shm.f_bavail * shm.f_frsize}


def cpu() -> dict[str, Any]:
    """Return the CPU's model, the flags that DeepSpeed's kernels need, and the usable physical cores."""
    text = read("/proc/cpuinfo") or ""
    model = re.search(r"^(?:model name|Model|cpu)\s*:\s*(.+)$", text, re.M)
    flags = set((re.search(r"^(?:flags|Features)\s*:\s*(.+)$", text, re.M) or ["", ""])[1].split())
    siblings_of = "/sys/devices/system/cpu/{}/topology/thread_siblings_list"
    numbered = [name for name in entries("/sys/devices/system/cpu") if re.fullmatch(r"cpu\d+", name)]
    cores = {read(siblings_of.format(name)) for name in numbered} - {None}
    groups: dict[str, list[int]] = {}
    for item in sorted(os.sched_getaffinity(0)):
        siblings = read(siblings_of.format(f"cpu{item}")) or str(item)
        groups.setdefault(siblings, []).append(item)
    return {
        "cpu": or_unknown(model and model[1], "not in /proc/cpuinfo"),
        "cpu_flags": [flag for flag in CPU_FLAGS if flag in flags],
        "virtual_machine": "hypervisor" in flags,
        "cores": or_unknown(len(cores) or None, "the kernel does not show its cores"),
        "cores_usable": len(groups),
        "core_groups": [ranges(group) for group in groups.values()],
    }


def numa() -> dict[str, Any]:
    """Return NUMA nodes with their CPUs, memory and distances."""
    folder = "/sys/devices/system/node"
    ids = sorted(int(name[4:]) for name in entries(folder) if re.fullmatch(r"node\d+", name))
    nodes = []
    for node in ids:
        total = re.search(r"MemTotal:\s+(\d+)", read(f"{folder}/node{node}/meminfo") or "")
        distances = read(f"{folder}/node{node}/distance")
        nodes.append(
            {
                "id": node,
                "cpus": read(f"{folder}/node{node}/cpulist") or "",
                "memory": or_unknown(int(total[1]) * 1024 if total else None, "not reported by the node"),
                "distances": or_unknown([int(d) for d in distances.split()] if distances else None, "not reported by the node"),
            }
        )
    balancing = number("/proc/sys/kernel/numa_balancing")
    return {
        "numa": or_unknown(nodes or None, "the kernel shows no NUMA nodes"),
        "numa_balancing": or_unknown(None if balancing is None else balancing > 0, "not reported by the kernel"),
    }


def pci() -> dict[str, Any]:
    """Return NVIDIA's devices on the bus, which needs no driver."""
    folder, gpus, switches = "/sys/bus/pci/devices", [], 0
    if not os.path.isdir(path(folder)):
        return {"pci_gpus": {"unknown": f"{folder} is not here"}, "nvswitches": {"unknown": f"{folder} is not here"}}
    for bus_id in entries(folder):
        device = f"{folder}/{bus_id}"
        if read(f"{device}/vendor") != "0x10de":
            continue
        kind = read(f"{device}/class") or ""
        switches += kind.startswith("0x0680")
        if kind.startswith("0x03"):
            driver = path(f"{device}/driver")
            gpus.append(
                {
                    "bus_id": bus_id,
                    "numa_node": or_unknown(number(f"{device}/numa_node"), "the firmware reports no NUMA node"),
                    "cpus": or_unknown(read(f"{device}/local_cpulist") or None, "the kernel reports no CPUs"),
                    "driver": os.path.basename(os.path.realpath(driver)) if os.path.exists(driver) else {"unknown": "no driver is bound"},
                }
            )
    return {"pci_gpus": gpus, "nvswitches": switches, "iommu": bool(entries("/sys/class/iommu"))}


def nics() -> dict[str, Any]:
    """Return the network interfaces except the loopback."""
    routes = [line.split() for line in (read("/proc/net/route") or "").splitlines()[1:]]
    default = {fields[0] for fields in routes if len(fields) > 1 and fields[1] == "00000000"}
    found = []
    for name in entries("/sys/class/net"):
        folder = f"/sys/class/net/{name}"
        if name == "lo" or not os.path.isdir(path(folder)):
            continue
        speed = number(f"{folder}/speed")
        found.append(
            {
                "name": name,
                "state": or_unknown(read(f"{folder}/operstate"), "not reported by the kernel"),
                "speed": or_unknown(speed or None, "the interface reports no speed"),
                "mtu": or_unknown(number(f"{folder}/mtu"), "not reported by the kernel"),
                "virtual": bool(VIRTUAL_NIC.match(name)),
                "wireless": os.path.exists(path(f"{folder}/wireless")),
                "default_route": name in default,
                "numa_node": or_unknown(number(f"{folder}/device/numa_node"), "not reported by the kernel"),
            }
        )
    return {"nics": found}


def ports() -> dict[str, Any]:
    """Return the TCP ports with a listener in this network namespace."""
    tables = [read(f"/proc/net/{table}") for table in ("tcp", "tcp6")]
    if tables[0] is None:
        return {"ports": {"unknown": "not reported by the kernel"}}
    sockets = [line.split() for table in tables for line in (table or "").splitlines()[1:]]
    return {"ports": sorted({int(fields[1].rpartition(":")[2], 16) for fields in sockets if fields[3] == LISTENING})}


def infiniband() -> dict[str, Any]:
    """Return the ports of RDMA adapters."""
    found = []
    for device in entries("/sys/class/infiniband"):
        for port in entries(f"/sys/class/infiniband/{device}/ports"):
            folder = f"/sys/class/infiniband/{device}/ports/{port}"
            rate = re.match(r"[\d.]+", read(f"{folder}/rate") or "")
            found.append(
                {
                    "device": device,
                    "port": int(port),
                    "state": or_unknown((read(f"{folder}/state") or "").split(":")[-1].strip() or None, "not reported by the port"),
                    "gbps": or_unknown(float(rate[0]) if rate else None, "not reported by the port"),
                    "link_layer": or_unknown(read(f"{folder}/link_layer"), "not reported by the port"),
                    "numa_node": or_unknown(number(f"/sys/class/infiniband/{device}/device/numa_node"), "not reported by the kernel"),
                }
            )
    return {"infiniband": found}


def surroundings() -> dict[str, Any]:
    """Return the container, WSL, the scheduler, and the variables that configure NCCL, CUDA and similar libraries."""
    env = os.environ
    version = read("/proc/version") or ""
    steering = {key: value for key, value in sorted(env.items()) if STEERING.match(key) and not SECRET.search(key)}
    return {
        "container": container(),
        "wsl": "microsoft" in version.lower(),
        "scheduler": next((name for name, key in SCHEDULERS if key in env), None),
        "allocation": {key: value for key, value in sorted(env.items()) if ALLOCATION.match(key)},
        "environment": steering,
    }


def container() -> str | None:
    """Return the kind of container, as far as it is visible."""
    env = os.environ
    if os.path.exists(path("/run/.containerenv")):
        return "podman"
    if "KUBERNETES_SERVICE_HOST" in env:
        return "kubernetes"
    if "APPTAINER_CONTAINER" in env or "SINGULARITY_CONTAINER" in env:
        return "apptainer"
    if os.path.exists(path("/.dockerenv")):
        return "docker"
    groups = read("/proc/1/cgroup") or ""
    return next((name for name in ("docker", "kubepods", "lxc", "libpod", "containerd") if name in groups), None)


def kernel_driver() -> dict[str, Any]:
    """Return the state of NVIDIA's kernel module, found without NVML."""
    text = read("/proc/driver/nvidia/version") or ""
    found = re.search(r"Kernel Module(?: for \S+)?\s+([\d.]+)", text)
    loaded = {line.split()[0] for line in (read("/proc/modules") or "").splitlines() if line}
    version = found[1] if found else read("/sys/module/nvidia/version")
    return {
        "kernel_module": or_unknown(version, "the kernel module is not loaded"),
        "open_module": "Open Kernel" in text if text else {"unknown": "the kernel module is not loaded"},
        "modules": sorted(loaded & DRIVER_MODULES),
        "device_nodes": [name for name in entries("/dev") if DEVICE_NODES.fullmatch(name)],
    }


def disks() -> list[dict[str, Any]]:
    """Return each file system with data once. Local ones are asked for their space first: a dead network mount never answers."""
    late = {"unknown": "it did not answer in time"}
    found: list[dict[str, Any]] = []
    mounts: set[str] = set()
    for line in (read("/proc/self/mountinfo") or "").splitlines():
        left, _, right = line.partition(" - ")
        fields, (kind, device) = left.split(), [*right.split(), "", ""][:2]
        mount = fields[4].replace("\\040", " ")
        if kind not in LOCAL | NETWORK or mounts & {fields[2], mount} or mount.startswith(SYSTEM_MOUNTS):
            continue
        mounts |= {fields[2], mount}
        facts = {"mount": mount, "filesystem": kind, "device": device, "local": kind in LOCAL, "read_only": "ro" in fields[5].split(",")}
        found.append({**facts, "total": late, "free": late, **block_device(fields[2] if kind in LOCAL else "")})
    return sorted(found, key=lambda disk: not disk["local"])


def block_device(number_of_it: str) -> dict[str, Any]:
    """Return what /sys says about the device with this major:minor: whether it is NVMe, its model, its NUMA node."""
    folder = os.path.realpath(path(f"/sys/dev/block/{number_of_it}"))
    name = re.search(r"/(nvme\d+n\d+)", folder)
    if not number_of_it or not os.path.isdir(folder):
        return {"nvme": {"unknown": "the device under it is not visible"}}
    if not name:
        return {"nvme": False}
    device = f"/sys/block/{name[1]}/device"
    return {
        "nvme": True,
        "model": or_unknown(read(f"{device}/model"), "not reported by the drive"),
        "numa_node": or_unknown(number(f"{device}/device/numa_node") or number(f"{device}/numa_node"), "not reported by the kernel"),
    }


def space(mount: str) -> dict[str, Any]:
    """Return total and free bytes of a file system. May block forever on a dead network mount."""
    try:
        answer = os.statvfs(mount)
    except OSError as error:
        return {"total": {"unknown": error.strerror}, "free": {"unknown": error.strerror}}
    return {"total": answer.f_blocks * answer.f_frsize, "free": answer.f_bavail * answer.f_frsize}


def roomy(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Drop the file systems that are known to be too small."""
    return [disk for disk in found if not isinstance(disk["total"], int) or disk["total"] >= TOO_SMALL]


def emit(kind: str, value: Any) -> None:
    """Print one fact, unbuffered."""
    sys.stdout.write(json.dumps([kind, value]) + "\n")
    sys.stdout.flush()


SECTIONS: tuple[Callable[[], dict[str, Any]], ...] = (
    identity,
    memory,
    cgroup,
    limits,
    shared_memory,
    cpu,
    numa,
    pci,
    nics,
    ports,
    infiniband,
    surroundings,
)


def facts(section: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Return the facts of a section; empty if its files have an unexpected form."""
    try:
        return section()
    except (OSError, ValueError, IndexError, KeyError):
        return {}


def main() -> None:
    """Run as a program."""
    for section in SECTIONS:
        emit("host", facts(section))
    emit("driver", facts(kernel_driver))
    found = disks()
    for disk in found:
        if not disk["local"]:
            emit("host", {"disks": roomy(found)})  # the next step may never return
        disk.update(space(disk["mount"]))
    emit("host", {"disks": roomy(found)})
    emit("done", None)


if __name__ == "__main__":
    main()
