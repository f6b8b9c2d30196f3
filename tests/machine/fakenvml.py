"""Build the fake NVIDIA driver library, and write its profiles from the systems in systems.json."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

from dstui.machine.snapshot import Machine

Look = Callable[..., Machine]
"""The fixture `probe_system`: probe_system(system, *lines of the profile) -> Machine."""

HERE = Path(__file__).parent
SOURCE = HERE / "fakenvml.c"
LIBRARY = "libnvidia-ml.so.1"
SYSTEMS: dict[str, dict[str, Any]] = json.loads((HERE / "systems.json").read_text())
FUNCTIONS = sorted(set(re.findall(r"\b(nvml(?:Init|Shutdown|System|Device)\w+)\b(?=[(,)])", SOURCE.read_text())))

# name, MiB, capability, NVLinks, NVML's number of their version, MB/s of one, PCIe generation, watts
MODELS = {
    "P100": ("Tesla P100-SXM2-16GB", 16280, "6 0", 4, 1, 19531, 3, 300),
    "V100-16": ("Tesla V100-SXM2-16GB", 16160, "7 0", 6, 2, 25781, 3, 300),
    "V100-32": ("Tesla V100-SXM3-32GB", 32510, "7 0", 6, 2, 25781, 3, 350),
    "A100-SXM-40": ("NVIDIA A100-SXM4-40GB", 40960, "8 0", 12, 4, 25000, 4, 400),
    "A100-SXM-80": ("NVIDIA A100-SXM4-80GB", 81920, "8 0", 12, 4, 25000, 4, 400),
    "A100-PCIE-40": ("NVIDIA A100-PCIE-40GB", 40960, "8 0", 12, 4, 25000, 4, 250),
    "A100-PCIE-80": ("NVIDIA A100 80GB PCIe", 81920, "8 0", 12, 4, 25000, 4, 300),
    "A800": ("NVIDIA A800-SXM4-80GB", 81920, "8 0", 8, 4, 25000, 4, 400),
    "H100": ("NVIDIA H100 80GB HBM3", 81559, "9 0", 18, 6, 26562, 5, 700),
    "H200": ("NVIDIA H200", 143771, "9 0", 18, 6, 26562, 5, 700),
    "B200": ("NVIDIA B200", 183359, "10 0", 18, 7, 53125, 5, 1000),
    "GB200": ("NVIDIA GB200", 189471, "10 0", 18, 7, 53125, 6, 1200),
    "RTX3090": ("NVIDIA GeForce RTX 3090", 24576, "8 6", 4, 5, 14062, 4, 350),
    "RTX4090": ("NVIDIA GeForce RTX 4090", 24564, "8 9", 0, 0, 0, 4, 450),
    "RTX5090": ("NVIDIA GeForce RTX 5090", 32607, "12 0", 0, 0, 0, 5, 575),
    "A6000": ("NVIDIA RTX A6000", 49140, "8 6", 4, 5, 14062, 4, 300),
    "L40S": ("NVIDIA L40S", 46068, "8 9", 0, 0, 0, 4, 350),
    "A10G": ("NVIDIA A10G", 23028, "8 6", 0, 0, 0, 4, 300),
    "GB10": ("NVIDIA GB10", None, "12 1", 0, 0, 0, 5, 140),
}
ANCESTOR = {"PIX": 10, "PXB": 20, "PHB": 30, "NODE": 40, "SYS": 50}
STATUS = {"OK": 0, "CNS": 1, "GNS": 2, "TNS": 3, "DR": 4, "NS": 5, "U": 6}
MIB = 1 << 20


def build(folder: Path, absent: Iterable[str] = ()) -> Path:
    """Compile the library into `folder` without the functions in `absent`, which old drivers lack, and return the folder."""
    missing = set(absent)
    script = folder / "exports.map"
    script.write_text(
        "{ global: " + "".join(f"{name}; " for name in [*FUNCTIONS, "nvmlErrorString"] if name not in missing) + "local: *; };\n"
    )
    library = folder / LIBRARY
    options = ["-std=gnu11", "-O1", "-fPIC", "-shared", "-Wall", f"-Wl,-soname,{LIBRARY}", f"-Wl,--version-script={script}"]
    subprocess.run(["gcc", *options, "-o", str(library), str(SOURCE)], check=True)
    return folder


def current(factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the library of a current driver, compiled by the first test process that needs it.

    Skips without gcc, which `.ci/run` installs.
    """
    if not shutil.which("gcc"):
        pytest.skip("no gcc: the fake NVIDIA library cannot be compiled")
    of_all = factory.getbasetemp() if "PYTEST_XDIST_WORKER" not in os.environ else factory.getbasetemp().parent
    folder = of_all / "driver"
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return folder if (folder / LIBRARY).exists() else build(folder)


def profile(name: str) -> str:
    """Return the answers of a whole system."""
    system = SYSTEMS[name]
    rows = [row.split() for row in system["links"]]
    lines = ["= nvmlSystemGetDriverVersion - - 570.172.08", "= nvmlSystemGetNVMLVersion - - 13.570.172.08"]
    lines += ["= nvmlSystemGetCudaDriverVersion_v2 - - 12080", f"= nvmlDeviceGetCount_v2 - - {len(rows)}"]
    for gpu in range(len(rows)):
        lines += [*_gpu(system, gpu), *_links(system, rows, gpu)]
        lines += [line for other in range(gpu + 1, len(rows)) for line in _pair(system, rows, gpu, other)]
    return "\n".join(lines) + "\n"


def bus_id(gpu: int) -> str:
    """Return the bus id of a GPU, which is the same in every profile."""
    return f"0000:{0x10 + 8 * gpu:02x}:00.0"


def _gpu(system: dict[str, Any], gpu: int) -> list[str]:
    name, mib, capability, _, _, _, generation, watts = MODELS[system["model"]]
    facts = {
        "nvmlDeviceGetHandleByIndex_v2": "",
        "nvmlDeviceGetName": name,
        "nvmlDeviceGetUUID": f"GPU-{gpu:08x}-1111-2222-3333-444444444444",
        "nvmlDeviceGetSerial": f"16509{gpu:08d}",
        "nvmlDeviceGetPciInfo_v3": bus_id(gpu),
        "nvmlDeviceGetCudaComputeCapability": capability,
        "nvmlDeviceGetComputeMode": "0",
        "nvmlDeviceGetPersistenceMode": "1",
        "nvmlDeviceGetCurrPcieLinkGeneration": "1",
        "nvmlDeviceGetMaxPcieLinkGeneration": generation,
        "nvmlDeviceGetCurrPcieLinkWidth": "16",
        "nvmlDeviceGetMaxPcieLinkWidth": "16",
        "nvmlDeviceGetPowerUsage": watts * 250,
        "nvmlDeviceGetEnforcedPowerLimit": watts * 1000,
        "nvmlDeviceGetPowerManagementDefaultLimit": watts * 1000,
        "nvmlDeviceGetTemperature": 35 + gpu,
        "nvmlDeviceGetUtilizationRates": "7 3",
        "nvmlDeviceGetClockInfo": 1200,
        "nvmlDeviceGetMaxClockInfo": 1980,
        "nvmlDeviceGetCurrentClocksEventReasons": 1,
        "nvmlDeviceGetVirtualizationMode": 0,
        "nvmlDeviceGetModuleId": gpu,
        "nvmlDeviceGetEccMode": "1 1",
        "nvmlDeviceGetMigMode": "0 0",
        "nvmlDeviceGetTotalEccErrors": "0",
        "nvmlDeviceGetRemappedRows": "0 0 0 0",
    }
    if mib:
        facts["nvmlDeviceGetMemoryInfo"] = f"{mib * MIB} {480 * MIB} {(600 + gpu) * MIB}"
    if system["cpus"][gpu]:
        facts["nvmlDeviceGetCpuAffinity"] = system["cpus"][gpu]
    if system["numa"][gpu] is not None:
        facts["nvmlDeviceGetMemoryAffinity"] = system["numa"][gpu]
    if "gpu_memory_nodes" in system:
        facts["nvmlDeviceGetNumaNodeId"] = system["gpu_memory_nodes"][gpu]
        facts["nvmlDeviceGetC2cModeInfoV"] = 1
    if system["wiring"] == "switch" and float(capability.replace(" ", ".")) >= 9:
        facts["nvmlDeviceGetGpuFabricInfoV"] = f"3 0 {system.get('clique', 0)} 0 {system.get('cluster', '0' * 32)}"
    return [f"= {function} {gpu} - {value}" for function, value in facts.items()]


def _links(system: dict[str, Any], rows: list[list[str]], gpu: int) -> list[str]:
    """Return the NVLinks of a GPU, in order of peers or to the switch; links that lead nowhere are down."""
    _, _, _, count, version, speed, _, _ = MODELS[system["model"]]
    widths = {peer: int(cell[2:]) for peer, cell in enumerate(rows[gpu]) if cell.startswith("NV")}
    if system["wiring"] == "switch":
        ends = [(f"0000:c{n % 6}:00.0", 2) for n in range(max(widths.values()))]
    else:
        ends = [(bus_id(peer), 0) for peer, width in widths.items() for _ in range(width)]
    if system is SYSTEMS["power9-v100-pairs"]:
        ends += [("0004:04:00.0", 1)] * (count - len(ends))
    lines = [f"= field:91 {gpu} - {count}", f"= field:90 {gpu} - {speed}"] if count else []
    for link in range(count):
        lines.append(f"= nvmlDeviceGetNvLinkState {gpu} {link} {int(link < len(ends))}")
        if link < len(ends):
            lines.append(f"= nvmlDeviceGetNvLinkVersion {gpu} {link} {version}")
            lines.append(f"= nvmlDeviceGetNvLinkRemotePciInfo_v2 {gpu} {link} {ends[link][0]}")
            lines.append(f"= nvmlDeviceGetNvLinkRemoteDeviceType {gpu} {link} {ends[link][1]}")
    return lines


def _pair(system: dict[str, Any], rows: list[list[str]], gpu: int, other: int) -> list[str]:
    cell = rows[gpu][other]
    beside = system["numa"][gpu] == system["numa"][other]
    ancestor = ANCESTOR.get(cell, ANCESTOR["NODE" if beside else "SYS"])
    status = STATUS[system["p2p"]]
    nvlink = STATUS["OK" if cell.startswith("NV") else "NS"]
    return [
        f"= nvmlDeviceGetTopologyCommonAncestor {gpu} {other} {ancestor}",
        f"= nvmlDeviceGetP2PStatus {gpu} {other} {status} {status} {nvlink} {STATUS['NS']} {status}",
    ]


def rows_of(matrix: Sequence[Sequence[str]]) -> list[str]:
    """Return a matrix in the format of systems.json."""
    return [" ".join(row) for row in matrix]
