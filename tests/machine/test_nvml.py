"""The unmodified pynvml over a compiled fake driver library: what a probe finds on healthy and on broken systems."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import fakenvml
import pytest
from fakenvml import Look, rows_of

from dstui.machine.child import HERE
from dstui.machine.report import summarise
from dstui.machine.snapshot import Machine, Unknown

LOST, RESET, NO_PERMISSION, MISMATCH, NOT_SUPPORTED, UNKNOWN_ERROR = 15, 16, 4, 18, 3, 999
OLD_DRIVER = {
    "nvmlDeviceGetMemoryInfo_v2",
    "nvmlDeviceGetGpuFabricInfoV",
    "nvmlDeviceGetGpuFabricInfo",
    "nvmlDeviceGetC2cModeInfoV",
    "nvmlDeviceGetNvLinkRemoteDeviceType",
    "nvmlDeviceGetMigMode",
    "nvmlDeviceGetNumaNodeId",
    "nvmlDeviceGetModuleId",
    "nvmlDeviceGetMemoryAffinity",
    "nvmlDeviceGetComputeRunningProcesses_v3",
    "nvmlDeviceGetGraphicsRunningProcesses_v3",
    "nvmlDeviceGetCurrentClocksEventReasons",
    "nvmlSystemGetConfComputeState",
}


@pytest.mark.parametrize("system", fakenvml.SYSTEMS)
def test_matrix_and_islands_of_a_real_system_are_found(probe_system: Look, system: str) -> None:
    expected = fakenvml.SYSTEMS[system]
    machine = probe_system(system)
    assert rows_of(machine.links) == expected["links"]
    assert [list(island.gpus) for island in machine.islands] == expected["islands"]
    assert max(machine.islands, key=lambda island: len(island.gpus)).kind == expected["kind"]
    assert [gpu.numa_node if isinstance(gpu.numa_node, int) else None for gpu in machine.gpus] == expected["numa"]
    assert Machine.from_json(machine.to_json()) == machine


def test_every_gpu_fact_has_the_snapshots_unit(probe_system: Look) -> None:
    gpu = probe_system("dgx-h100", "= nvmlDeviceGetCurrentClocksEventReasons 1 - 0x48").gpus[1]
    mib = 1 << 20
    assert (gpu.name, gpu.short_name, gpu.bus_id) == ("NVIDIA H100 80GB HBM3", "H100 80GB", "0000:18:00.0")
    assert (gpu.memory_total, gpu.memory_reserved, gpu.memory_used) == (81559 * mib, 480 * mib, 601 * mib)
    assert (gpu.power, gpu.power_limit, gpu.temperature, gpu.utilization, gpu.memory_utilization) == (175.0, 700.0, 36, 7, 3)
    assert (gpu.compute_capability, gpu.compute_mode, gpu.persistence, gpu.ecc, gpu.mig) == ("9.0", "default", True, True, False)
    assert (gpu.pcie_generation, gpu.pcie_generation_max, gpu.pcie_width, gpu.cpus) == (1, 5, 16, "0-55,112-167")
    assert gpu.throttle == ("hardware slowdown", "hardware thermal")
    assert gpu.nvlink and (gpu.nvlink.active, gpu.nvlink.switched, gpu.nvlink.version, gpu.nvlink.speed) == (18, 18, "4.0", 26562)
    assert gpu.fabric and (gpu.fabric.state, gpu.fabric.cluster) == ("completed", "0" * 32)


def test_failing_memory_is_reported(probe_system: Look) -> None:
    gpus = probe_system("dgx-h100", "= nvmlDeviceGetTotalEccErrors 2 1 4", "= nvmlDeviceGetRemappedRows 3 - 1 0 1 0").gpus
    assert [gpu.memory_errors for gpu in gpus[1:4]] == [0, 4, 0]
    assert [gpu.remap_pending for gpu in gpus[1:4]] == [False, False, True]


def test_driver_gives_its_versions(probe_system: Look) -> None:
    driver = probe_system("l40s-vm").driver
    assert (driver.state, driver.version, driver.nvml, driver.cuda) == ("ok", "570.172.08", "13.570.172.08", "12.8")


def test_serial_numbers_are_left_out_unless_requested(probe_system: Look) -> None:
    assert isinstance(probe_system("rtx3090-pair").gpus[0].serial, Unknown)
    assert probe_system("rtx3090-pair", serials=True).gpus[1].serial == "1650900000001"


@pytest.mark.parametrize(
    ("system", "words"),
    [
        ("dgx-h100", "8 x H100 80GB, one NVSwitch island"),
        ("a100-pcie-bridged-pairs", "4 x A100 80GB, 2 NVLink pairs"),
        ("a6000-pair-and-one", "3 x RTX A6000 48GB, one NVLink pair + 1 alone"),
        ("v100-cube-mesh", "8 x V100 32GB, one NVLink hybrid cube mesh"),
        ("l40s-8", "8 x L40S 45GB, no NVLink"),
        ("l40s-vm", "1 x L40S 45GB"),
        ("gb10", "1 x GB10"),
    ],
)
def test_machine_is_summarised_in_one_line(probe_system: Look, system: str, words: str) -> None:
    assert summarise(probe_system(system)) == words


def test_gpu_with_unified_memory_has_no_memory_of_its_own(probe_system: Look) -> None:
    assert probe_system("gb10").gpus[0].memory_total == Unknown("not supported by this GPU or driver")


def test_lost_gpu_leaves_the_others_and_their_islands(probe_system: Look) -> None:
    machine = probe_system("dgx-h100", f"! nvmlDeviceGetHandleByIndex_v2 3 - {LOST}")
    assert machine.gpus[3].problem == "the GPU is lost: it fell off the bus"
    assert [gpu.problem for gpu in machine.gpus if gpu.index != 3] == [None] * 7
    assert machine.islands[0].gpus == (0, 1, 2, 4, 5, 6, 7)
    assert machine.links[0][3] == machine.links[3][0] == "?"
    assert summarise(machine) == "7 x H100 80GB, one NVSwitch island, GPU 3 not usable"


def test_gpu_that_dies_during_the_probe_is_named(probe_system: Look) -> None:
    machine = probe_system("rtx3090-pair", f"! nvmlDeviceGetUUID 1 - {RESET}")
    assert machine.gpus[1].problem == "the GPU needs a reset"
    assert machine.gpus[0].problem is None


def test_active_links_make_no_island_without_peer_to_peer(probe_system: Look) -> None:
    refused = [f"= nvmlDeviceGetP2PStatus {i} {j} 0 0 5 5 0" for i in range(8) for j in range(i + 1, 8)]
    machine = probe_system("dgx-h100", *refused)
    assert machine.links[0][1] == "NV18"
    assert [len(island.gpus) for island in machine.islands] == [1] * 8


def test_switch_links_make_no_island_while_the_fabric_starts(probe_system: Look) -> None:
    machine = probe_system("dgx-h100", "= nvmlDeviceGetGpuFabricInfoV - - 2 0 0 0 " + "0" * 32)
    assert machine.gpus[0].fabric and machine.gpus[0].fabric.state == "in progress"
    assert [len(island.gpus) for island in machine.islands] == [1] * 8


def test_unknown_peer_to_peer_status_is_no_refusal(probe_system: Look) -> None:
    machine = probe_system("rtx3090-pair", f"! nvmlDeviceGetP2PStatus - - {UNKNOWN_ERROR}")
    assert machine.p2p["read"][0][1] == "U"
    assert machine.islands[0].gpus == (0, 1)


def test_inactive_links_reduce_the_pairs_bandwidth(probe_system: Look) -> None:
    machine = probe_system("rtx3090-pair", "= nvmlDeviceGetNvLinkState 0 2 0", "= nvmlDeviceGetNvLinkState 1 2 0")
    assert machine.links[0][1] == "NV3"
    assert machine.islands[0].width == (3, 3)
    assert machine.gpus[0].nvlink and (machine.gpus[0].nvlink.count, machine.gpus[0].nvlink.active) == (4, 3)


def test_one_unreadable_link_does_not_hide_the_others(probe_system: Look) -> None:
    machine = probe_system("rtx3090-pair", f"! nvmlDeviceGetNvLinkState 0 1 {UNKNOWN_ERROR}")
    assert machine.links[0][1] == "NV3" and machine.links[1][0] == "NV4"
    assert machine.islands[0].width == (3, 3)


def test_worst_connected_pair_sets_the_bandwidth_of_an_island(probe_system: Look) -> None:
    assert probe_system("v100-cube-mesh").islands[0].bandwidth == 25781
    assert probe_system("dgx-a100").islands[0].bandwidth == 12 * 25000


def test_old_driver_without_newer_functions_gives_what_it_has(probe_system: Look, tmp_path: Path) -> None:
    machine = probe_system("dgx-a100", driver=fakenvml.build(tmp_path, OLD_DRIVER))
    assert rows_of(machine.links) == fakenvml.SYSTEMS["dgx-a100"]["links"]
    assert machine.islands[0].gpus == tuple(range(8))
    gpu = machine.gpus[0]
    assert gpu.memory_used == (600 + 480) << 20, "the first form of the call counts the driver's own memory as used"
    assert gpu.memory_reserved == Unknown("this driver does not have the function yet")
    assert isinstance(gpu.processes, Unknown) and isinstance(gpu.mig, Unknown)


def test_mig_slices_are_found_across_numbering_gaps(probe_system: Look) -> None:
    slices = [f"= nvmlDeviceGet{what} {64 + k} {'0' if what == 'Name' else '-'} {value}" for k, what, value in (
        (1, "Name", "NVIDIA A100-SXM4-40GB MIG 3g.20gb"), (1, "UUID", "MIG-aaaa"), (1, "MemoryInfo", f"{20 << 30} 0 0"),
        (5, "Name", "NVIDIA A100-SXM4-40GB MIG 1g.5gb"), (5, "UUID", "MIG-bbbb"), (5, "MemoryInfo", f"{5 << 30} 0 0"),
    )]  # fmt: skip
    machine = probe_system("dgx-a100", "= nvmlDeviceGetMigMode 0 - 1 1", "= nvmlDeviceGetMaxMigDeviceCount 0 - 7", *slices)
    assert machine.gpus[0].mig is True and machine.gpus[1].mig is False
    assert [device.uuid for device in machine.gpus[0].mig_devices] == ["MIG-aaaa", "MIG-bbbb"]
    assert machine.gpus[0].mig_devices[1].memory_total == 5 << 30


def test_gpu_processes_are_named_by_the_system(probe_system: Look) -> None:
    machine = probe_system("l40s-vm", f"= nvmlDeviceGetComputeRunningProcesses_v3 0 - {os.getpid()}:1048576 999999999:2097152")
    processes = machine.gpus[0].processes
    assert not isinstance(processes, Unknown)
    assert [(p.pid, p.memory) for p in processes] == [(os.getpid(), 1048576), (999999999, 2097152)]
    assert processes[0].name == Path("/proc/self/comm").read_text().strip()
    assert isinstance(processes[1].name, Unknown)


@pytest.mark.parametrize(
    ("code", "words"),
    [(9, "kernel driver is not loaded"), (MISMATCH, "reboot, or reload the driver"), (UNKNOWN_ERROR, "unknown error"), (17, "blocked")],
)
def test_failing_driver_start_is_a_reason(probe_system: Look, code: int, words: str) -> None:
    machine = probe_system("dgx-h100", f"! nvmlInitWithFlags - - {code}")
    assert machine.gpus == () and machine.accelerator == "cpu"
    assert isinstance(machine.driver.state, Unknown) and words in machine.driver.state.reason
    assert isinstance(machine.driver.version, Unknown) and words in machine.driver.version.reason
    assert machine.host.cpus_usable and machine.software.python


def test_driver_without_gpus_is_a_machine_without_gpus(probe_system: Look) -> None:
    machine = probe_system("", "= nvmlDeviceGetCount_v2 - - 0")
    assert machine.driver.state == "ok" and machine.gpus == () and machine.accelerator == "cpu"


@pytest.mark.deadline
@pytest.mark.parametrize("where", ["nvmlInitWithFlags - -", "nvmlDeviceGetHandleByIndex_v2 1 -", "nvmlDeviceGetP2PStatus 0 1"])
def test_hanging_driver_is_abandoned_at_the_deadline_and_the_rest_kept(probe_system: Look, where: str) -> None:
    began = time.monotonic()
    machine = probe_system("rtx3090-pair", f"~ {where} 600000", deadline=3)
    assert time.monotonic() - began < 60
    assert machine.driver.state == Unknown("no answer within 3 s")
    assert machine.host.cpus_usable and machine.software.python
    assert [gpu.name for gpu in machine.gpus] == ["NVIDIA GeForce RTX 3090"] * (2 if "P2P" in where else 0)


def test_slow_call_for_each_gpu_is_waited_for(probe_system: Look) -> None:
    machine = probe_system("a100-sxm-mesh", "~ nvmlDeviceGetHandleByIndex_v2 - - 50")
    assert machine.driver.state == "ok" and len(machine.gpus) == 4


def test_only_reading_functions_of_the_driver_are_called(probe_system: Look, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = tmp_path / "calls"
    monkeypatch.setenv("FAKENVML_LOG", str(log))
    probe_system("dgx-h100")
    calls = [line.split()[0] for line in log.read_text().splitlines()]
    assert {name for name in calls if "Get" not in name and not name.startswith("field:")} == {"nvmlInitWithFlags"}
    assert len(calls) < 900, "a probe of eight GPUs behind switches has a budget of calls"


def test_gpu_is_the_same_whichever_other_is_broken(probe_system: Look) -> None:
    healthy, sick = (
        probe_system("a100-pcie-bridged-pairs"),
        probe_system("a100-pcie-bridged-pairs", f"! nvmlDeviceGetHandleByIndex_v2 0 - {NO_PERMISSION}"),
    )
    assert sick.gpus[0].problem == "no permission"
    assert sick.gpus[2:] == healthy.gpus[2:]
    assert sick.islands[-1] == healthy.islands[-1]


def test_driver_without_pynvml_is_reported_and_pynvml_without_driver_not_imported(library: Path, tmp_path: Path) -> None:
    def state(*options: str, **env: str) -> list[object]:
        words = [sys.executable, *options, str(HERE / "nvml.py")]
        lines = subprocess.run(words, env={**os.environ, **env}, capture_output=True, text=True, check=True).stdout.splitlines()
        return [json.loads(line) for line in lines]

    bare = state("-S", LD_LIBRARY_PATH=str(library), PYTHONPATH="")  # the standard library alone
    assert bare == [["driver", {"state": {"unknown": "the Python module pynvml (nvidia-ml-py) is not installed"}}], ["done", None]]
    (tmp_path / "pynvml.py").write_text("raise SystemExit('imported')")
    (tmp_path / "ctypes.py").write_text("def CDLL(name):\n    raise OSError(name)\n")  # works on machines with a driver too
    none = state(PYTHONPATH=str(tmp_path))
    assert none == [["driver", {"state": {"unknown": "no NVIDIA driver library (libnvidia-ml.so.1) here"}}], ["done", None]]
