"""Print NVML's facts as JSON lines. A standalone program, and the only code that imports pynvml.

It runs as a child process (`python nvml.py [--serials] [--watch SECONDS]`), because a hanging driver blocks a call forever and only a
process can be abandoned. Each fact is printed at once, so that the output before a hang is kept. It is plain Python 3.8 without imports of
dstui, so that it can be sent to other hosts together with pynvml's single file, and imports little, since every start of dstui waits for
it. It only reads and changes no setting.

Lines: ["driver", {...}], ["gpu", {...}], ["pair", [i, j, ancestor, {p2p}]], ["done", null]; with --watch ["sample", [{...}, ...]].
"""

from __future__ import annotations

import ctypes
import json
import select
import sys
from importlib import import_module

TYPE_CHECKING = False  # only type checkers import these modules
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

WHY = {
    1: "NVML is not initialised",
    3: "not supported by this GPU or driver",
    4: "no permission",
    9: "NVIDIA's kernel driver is not loaded",
    10: "the driver did not answer in time",
    12: "no NVIDIA driver library (libnvidia-ml.so.1) here",
    13: "this driver does not have the function yet",
    15: "the GPU is lost: it fell off the bus",
    16: "the GPU needs a reset",
    17: "the operating system blocked the call",
    18: "the driver's library and kernel module have different versions: reboot, or reload the driver",
    999: "the driver answers: unknown error",
}
FATAL = (4, 15, 16)  # after these no further question about a GPU makes sense
END_OF_LINKS = (2, 3, 13)  # drivers report these for a link that does not exist

# NVML's own numbers. pynvml's first constant is a tuple by mistake, others are missing in old releases of it.
P2P = (("read", 0), ("write", 1), ("nvlink", 2), ("atomics", 3), ("pci", 4))
P2P_STATUS = ("OK", "CNS", "GNS", "TNS", "DR", "NS", "U")
ANCESTOR = {0: "PIX", 10: "PIX", 20: "PXB", 30: "PHB", 40: "NODE", 50: "SYS"}
LINK_SPEED, LINK_COUNT, C2C_BANDWIDTH = 90, 91, 172
LINKS_BY_CAPABILITY = {6: 4, 7: 6, 8: 12}  # if the driver is too old to tell; 18 in later generations
LINK_VERSION = {1: "1.0", 2: "2.0", 3: "2.2", 4: "3.0", 5: "3.1", 6: "4.0", 7: "5.0", 8: "6.0"}
NPU, SWITCH = 1, 2
UNCORRECTED, SINCE_RESTART = 1, 0
FABRIC_STATE = ("not supported", "not started", "in progress", "completed")
COMPUTE_MODE = ("default", "exclusive thread", "prohibited", "exclusive process")
VIRTUALIZATION = ("none", "passthrough", "vGPU", "host vGPU", "host vSGA")
THROTTLE = (
    (2, "application clocks"),
    (4, "power cap"),
    (8, "hardware slowdown"),
    (32, "software thermal"),
    (64, "hardware thermal"),
    (128, "power brake"),
)


def loaded() -> tuple[Any, str]:
    """Return pynvml, or None and the reason. The driver's library is tried first, since importing pynvml takes longer than all the rest."""
    try:
        ctypes.CDLL("libnvidia-ml.so.1")
        return import_module("pynvml"), ""
    except OSError:
        return None, WHY[12]
    except ImportError:
        return None, "the Python module pynvml (nvidia-ml-py) is not installed"


pynvml, not_loaded = loaded()


class NoAnswer(Exception):
    """A call failed. Holds NVML's code (0 if the call did not reach NVML) and the reason in words."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code


def call(name: str, *args: Any) -> Any:
    """Call pynvml's function `name`. Raises only NoAnswer."""
    try:
        return getattr(pynvml, name)(*args)
    except AttributeError:
        raise NoAnswer(13, "the installed pynvml is too old for this") from None
    except Exception as error:  # pynvml also raises plain Exception, TypeError and errors of ctypes
        code = int(getattr(error, "value", 0)) if isinstance(error, pynvml.NVMLError) else 0
        raise NoAnswer(code, WHY.get(code, str(error) or type(error).__name__)) from None


def attempt(name: str, *args: Any) -> Any:
    """Return the answer, or the NoAnswer as a value."""
    try:
        return call(name, *args)
    except NoAnswer as failure:
        return failure


def unknown(failure: NoAnswer) -> dict[str, Any]:
    """Return an unknown fact in the snapshot's form."""
    return {"unknown": str(failure)}


def ask(name: str, *args: Any, as_: Callable[[Any], Any] | None = None) -> Any:
    """Return the answer, converted by `as_` if given, or the reason for none."""
    try:
        answer = call(name, *args)
        return as_(answer) if as_ else plain(answer)
    except NoAnswer as failure:
        return unknown(failure)
    except Exception as error:  # an answer of an unexpected form
        return {"unknown": f"unexpected answer of NVML: {error}"}


def plain(value: Any) -> Any:
    """Decode text, which some releases of pynvml return as bytes."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def emit(kind: str, value: Any) -> None:
    """Print one fact at once, since a later call may hang."""
    sys.stdout.write(json.dumps([kind, value]) + "\n")
    sys.stdout.flush()


def driver() -> dict[str, Any]:
    """Return the facts of the driver and the system."""
    cuda = ask("nvmlSystemGetCudaDriverVersion_v2", as_=lambda v: f"{v // 1000}.{v % 1000 // 10}")
    confidential = ask("nvmlSystemGetConfComputeState", as_=lambda s: bool(s.ccFeature))
    return {
        "state": "ok",
        "version": ask("nvmlSystemGetDriverVersion"),
        "nvml": ask("nvmlSystemGetNVMLVersion"),
        "cuda": cuda,
        "confidential_compute": confidential,
    }


def bus_id(info: Any) -> str:
    """Format a bus id in lower case with a domain of four digits, as the kernel and lspci do: 0000:1b:00.0."""
    text: str = plain(info.busId).lower()
    return text[4:] if text.startswith("0000") and len(text) == 16 else text


def identity(handle: Any) -> dict[str, Any]:
    """Return the facts of a GPU that do not change."""
    return {
        "name": ask("nvmlDeviceGetName", handle),
        "uuid": ask("nvmlDeviceGetUUID", handle),
        "bus_id": ask("nvmlDeviceGetPciInfo", handle, as_=bus_id),
        "compute_capability": ask("nvmlDeviceGetCudaComputeCapability", handle, as_=lambda v: "{}.{}".format(*v)),
        "compute_mode": ask("nvmlDeviceGetComputeMode", handle, as_=lambda v: COMPUTE_MODE[v]),
        "persistence": ask("nvmlDeviceGetPersistenceMode", handle, as_=bool),
        "pcie_generation": ask("nvmlDeviceGetCurrPcieLinkGeneration", handle),
        "pcie_generation_max": ask("nvmlDeviceGetMaxPcieLinkGeneration", handle),
        "pcie_width": ask("nvmlDeviceGetCurrPcieLinkWidth", handle),
        "pcie_width_max": ask("nvmlDeviceGetMaxPcieLinkWidth", handle),
        "power_limit": ask("nvmlDeviceGetEnforcedPowerLimit", handle, as_=watts),
        "power_limit_default": ask("nvmlDeviceGetPowerManagementDefaultLimit", handle, as_=watts),
        "clock_sm_max": ask("nvmlDeviceGetMaxClockInfo", handle, 1),
        "memory_node": ask("nvmlDeviceGetNumaNodeId", handle),
        "module_id": ask("nvmlDeviceGetModuleId", handle),
        "virtualization": ask("nvmlDeviceGetVirtualizationMode", handle, as_=lambda v: VIRTUALIZATION[v]),
        "cpus": ask("nvmlDeviceGetCpuAffinity", handle, 16, as_=cpu_list),
        "numa_node": ask("nvmlDeviceGetMemoryAffinity", handle, 4, 0, as_=first_bit),
    }


def state(handle: Any) -> dict[str, Any]:
    """Return the state of a GPU that changes by the second."""
    return {
        **memory(handle),
        **utilization(handle),
        "temperature": ask("nvmlDeviceGetTemperature", handle, 0),
        "power": ask("nvmlDeviceGetPowerUsage", handle, as_=watts),
        "throttle": ask("nvmlDeviceGetCurrentClocksEventReasons", handle, as_=lambda v: [why for bit, why in THROTTLE if v & bit]),
    }


def more_state(handle: Any) -> dict[str, Any]:
    """Return the state of a GPU that changes more slowly."""
    found = {
        "clock_sm": ask("nvmlDeviceGetClockInfo", handle, 1),
        "clock_memory": ask("nvmlDeviceGetClockInfo", handle, 2),
        "processes": processes(handle),
        "memory_errors": ask("nvmlDeviceGetTotalEccErrors", handle, UNCORRECTED, SINCE_RESTART),
        "remap_pending": ask("nvmlDeviceGetRemappedRows", handle, as_=lambda rows: bool(rows[2] or rows[3])),
    }
    for key, name in (("ecc", "nvmlDeviceGetEccMode"), ("mig", "nvmlDeviceGetMigMode")):
        modes = ask(name, handle, as_=lambda pair: [bool(mode) for mode in pair])
        found[key], found[key + "_pending"] = modes if isinstance(modes, list) else (modes, modes)
    if found["mig"] is True:
        found["mig_devices"] = mig_devices(handle)
    return found


def watts(milliwatts: int) -> float:
    """Convert NVML's mW to W."""
    return milliwatts / 1000


def memory(handle: Any) -> dict[str, Any]:
    """Return total, used and reserved bytes. An old driver counts its own reserve as used."""
    try:
        info = call("nvmlDeviceGetMemoryInfo", handle, getattr(pynvml, "nvmlMemory_v2", None))
        return {"memory_total": info.total, "memory_used": info.used, "memory_reserved": info.reserved}
    except (NoAnswer, AttributeError):
        pass
    try:
        info = call("nvmlDeviceGetMemoryInfo", handle)
    except NoAnswer as failure:
        return dict.fromkeys(("memory_total", "memory_used", "memory_reserved"), unknown(failure))
    return {"memory_total": info.total, "memory_used": info.used, "memory_reserved": {"unknown": WHY[13]}}


def utilization(handle: Any) -> dict[str, Any]:
    """Return the percentages of time in which a kernel ran, and in which memory was accessed."""
    rates = ask("nvmlDeviceGetUtilizationRates", handle, as_=lambda v: [v.gpu, v.memory])
    gpu, moved = rates if isinstance(rates, list) else (rates, rates)
    return {"utilization": gpu, "memory_utilization": moved}


def processes(handle: Any) -> Any:
    """Return compute and graphics processes by pid, with the memory of each."""
    found: dict[int, int | None] = {}
    for name in ("nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetGraphicsRunningProcesses"):
        listed = ask(name, handle, as_=lambda v: [(p.pid, p.usedGpuMemory) for p in v])
        if isinstance(listed, dict):
            return listed
        found.update(listed)
    hidden = {"unknown": WHY[3]}
    return [{"pid": pid, "name": process_name(pid), "memory": hidden if used is None else used} for pid, used in sorted(found.items())]


def process_name(pid: int) -> Any:
    """Return the name of a process; unknown for a pid of another namespace."""
    try:
        with open(f"/proc/{pid}/comm") as file:
            return file.read().strip()
    except OSError:
        return {"unknown": "no such process is visible from here"}


def mig_devices(handle: Any) -> list[dict[str, Any]]:
    """Return the slices of a GPU in MIG mode. Their indices have gaps."""
    found = []
    most = ask("nvmlDeviceGetMaxMigDeviceCount", handle)
    for index in range(most if isinstance(most, int) else 0):
        device = attempt("nvmlDeviceGetMigDeviceHandleByIndex", handle, index)
        if isinstance(device, NoAnswer):
            continue
        total = ask("nvmlDeviceGetMemoryInfo", device, as_=lambda info: info.total)
        found.append({"uuid": ask("nvmlDeviceGetUUID", device), "name": ask("nvmlDeviceGetName", device), "memory_total": total})
    return found


def bits(words: Sequence[int]) -> list[int]:
    """Return the positions of the set bits in ascending order."""
    return [64 * place + bit for place, word in enumerate(words) for bit in range(64) if word >> bit & 1]


def cpu_list(words: Sequence[int]) -> Any:
    """Format a CPU mask as the kernel does (0-15,32-47). An empty mask is unknown: the cpuset hides the CPUs."""
    ranges: list[list[int]] = []
    for cpu in bits(words):
        if ranges and ranges[-1][1] == cpu - 1:
            ranges[-1][1] = cpu
        else:
            ranges.append([cpu, cpu])
    if not ranges:
        return {"unknown": "none of the CPUs beside this GPU may be used here"}
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in ranges)


def first_bit(words: Sequence[int]) -> Any:
    """Return the lowest NUMA node. Higher ones beside it are the memory of GPUs."""
    nodes = bits(words)
    return nodes[0] if nodes else {"unknown": "the driver reports no NUMA node"}


def field_values(handle: Any, *ids: Any) -> dict[int, Any]:
    """Read NVML's numbered fields in one call as id -> value. Fields with an error are left out."""
    values = ask("nvmlDeviceGetFieldValues", handle, list(ids), as_=list)
    readers = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
    if isinstance(values, dict):
        return {}
    return {v.fieldId: getattr(v.value, readers[v.valueType], v.value.ullVal) for v in values if v.nvmlReturn == 0}


class Links:
    """Follows NVLinks to their other ends. The device of a bus id is looked up once per system, not once per link."""

    def __init__(self, gpus: set[str]) -> None:
        self.gpus = gpus
        self.types: dict[str | None, int] = {}

    def of(self, handle: Any, capability: Any) -> dict[str, Any]:
        """Return the NVLinks of one GPU in the form of the snapshot."""
        fields = field_values(handle, LINK_COUNT, LINK_SPEED)
        major = int(capability.split(".")[0]) if isinstance(capability, str) else 9
        count = fields.get(LINK_COUNT)
        speed = fields.get(LINK_SPEED, {"unknown": WHY[3]})
        found: dict[str, Any] = {"count": count, "active": 0, "switched": 0, "peers": {}, "speed": speed}
        listed = 0
        for link in range(LINKS_BY_CAPABILITY.get(major, 18) if count is None else count):
            try:
                active = call("nvmlDeviceGetNvLinkState", handle, link) == 1
            except NoAnswer as failure:
                if failure.code in END_OF_LINKS:
                    break
                continue
            listed += 1
            if active:
                found["active"] += 1
                self.follow(handle, link, found)
        found["count"] = listed if count is None else count
        return found

    def follow(self, handle: Any, link: int, found: dict[str, Any]) -> None:
        """Count the target of one active link."""
        if "version" not in found:
            found["version"] = ask("nvmlDeviceGetNvLinkVersion", handle, link, as_=lambda v: LINK_VERSION.get(v, str(v)))
        remote = ask("nvmlDeviceGetNvLinkRemotePciInfo", handle, link, as_=bus_id)
        if isinstance(remote, str) and remote in self.gpus:
            found["peers"][remote] = found["peers"].get(remote, 0) + 1
        elif self.kind(handle, link, remote) != NPU:  # a switch, or an invisible end, which is a switch too
            found["switched"] += 1

    def kind(self, handle: Any, link: int, remote: Any) -> int:
        """Return NVML's number for the device at the other end; a switch if an old driver cannot tell."""
        key = remote if isinstance(remote, str) else None
        if key not in self.types:
            answer = ask("nvmlDeviceGetNvLinkRemoteDeviceType", handle, link)
            self.types[key] = answer if isinstance(answer, int) else SWITCH
        return self.types[key]


def fabric(handle: Any) -> dict[str, Any]:
    """Return the state of the NVSwitch fabric, by the newest call that the driver knows."""
    for function, structure in (
        ("nvmlDeviceGetGpuFabricInfoV", "c_nvmlGpuFabricInfo_v3_t"),
        ("nvmlDeviceGetGpuFabricInfoV", "c_nvmlGpuFabricInfo_v2_t"),
        ("nvmlDeviceGetGpuFabricInfo", "c_nvmlGpuFabricInfo_t"),
    ):
        try:
            info = getattr(pynvml, structure)()
            call(function, handle, pynvml.byref(info))
        except (NoAnswer, AttributeError):
            continue
        cluster = bytes(bytearray(info.clusterUuid)).hex()
        return {
            "state": FABRIC_STATE[info.state] if info.state < len(FABRIC_STATE) else str(info.state),
            "status": info.status,
            "cluster": cluster,
            "clique": info.cliqueId,
            "health": getattr(info, "healthMask", {"unknown": WHY[13]}),
        }
    return {"unknown": WHY[3]}


def chip_to_chip(handle: Any) -> dict[str, Any]:
    """Return the coherent link between CPU and GPU (Grace systems)."""
    enabled = ask("nvmlDeviceGetC2cModeInfoV", handle, as_=lambda info: bool(info.isC2cEnabled))
    return {"c2c": enabled, "c2c_bandwidth": field_values(handle, (C2C_BANDWIDTH, 0)).get(C2C_BANDWIDTH, {"unknown": WHY[3]})}


def gpu(index: int, handle: Any, links: Links, serials: bool) -> dict[str, Any]:
    """Return all facts of one GPU."""
    found = {"index": index, **identity(handle), **state(handle), **more_state(handle), **chip_to_chip(handle)}
    found["fabric"] = fabric(handle)
    found["nvlink"] = links.of(handle, found["compute_capability"])
    found["serial"] = ask("nvmlDeviceGetSerial", handle) if serials else {"unknown": "left out by default"}
    return found


def pair(a: Any, b: Any) -> list[Any]:
    """Return how PCIe joins two GPUs, and which peer-to-peer transfers the driver allows."""
    ancestor = ask("nvmlDeviceGetTopologyCommonAncestor", a, b, as_=lambda v: ANCESTOR[v])
    allowed = {key: ask("nvmlDeviceGetP2PStatus", a, b, number, as_=lambda v: P2P_STATUS[v]) for key, number in P2P}
    return [ancestor, {key: status if isinstance(status, str) else "U" for key, status in allowed.items()}]


def handles() -> dict[int, Any]:
    """Return index -> handle, or the reason for none, for every GPU. Raises NoAnswer if their number is unknown."""
    return {index: attempt("nvmlDeviceGetHandleByIndex", index) for index in range(call("nvmlDeviceGetCount"))}


def snapshot(serials: bool) -> None:
    """Print all facts once."""
    emit("driver", driver())
    all_gpus = handles()
    alive = {index: handle for index, handle in all_gpus.items() if not isinstance(handle, NoAnswer)}
    links = Links({bus for bus in (ask("nvmlDeviceGetPciInfo", handle, as_=bus_id) for handle in alive.values()) if isinstance(bus, str)})
    for index, handle in all_gpus.items():
        emit("gpu", {"index": index, "problem": str(handle)} if index not in alive else gpu(index, handle, links, serials))
    for i, a in alive.items():
        for j, b in alive.items():
            if i < j:
                emit("pair", [i, j, *pair(a, b)])
    for index, handle in alive.items():  # a GPU can die while others are read
        answer = attempt("nvmlDeviceGetUUID", handle)
        if isinstance(answer, NoAnswer) and answer.code in FATAL:
            emit("lost", [index, str(answer)])
    emit("done", None)


def watch(seconds: float) -> None:
    """Print the state of every GPU each `seconds` until standard input closes, which means that the parent has ended."""
    alive = {index: handle for index, handle in handles().items() if not isinstance(handle, NoAnswer)}
    while True:
        emit("sample", [{"index": index, **state(handle)} for index, handle in alive.items()])
        if select.select([sys.stdin], [], [], seconds)[0]:
            return


def report(args: list[str]) -> None:
    """Print the facts, or why there are none."""
    if not_loaded:
        emit("driver", {"state": {"unknown": not_loaded}})
        emit("done", None)
        return
    try:
        call("nvmlInit")
        if "--watch" in args:
            watch(float(args[args.index("--watch") + 1]))
        else:
            snapshot("--serials" in args)
    except NoAnswer as failure:
        emit("driver", {"state": unknown(failure)})
        emit("done", None)


def main() -> None:
    """Run as a program."""
    try:
        report(sys.argv[1:])
    except BrokenPipeError:
        sys.exit(0)


if __name__ == "__main__":
    main()
