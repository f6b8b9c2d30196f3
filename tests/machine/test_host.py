"""Facts about the host, read from copies of /proc and /sys of containers, schedulers and large machines."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dstui.machine import host
from dstui.machine.child import run_lookup
from dstui.machine.probe import machine_from
from dstui.machine.snapshot import Driver, Host, Unknown

GIB = 1 << 30


class Tree:
    """A root folder to probe, and the host found in it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.write("/dev/shm/.keep", "")

    def write(self, path: str, text: str | int) -> None:
        file = self.root / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{text}\n")

    def look(self, **environment: str) -> tuple[Host, Driver]:
        clean = {key: value for key, value in os.environ.items() if not key.startswith(("SLURM", "NCCL", "CUDA", "KUBERNETES"))}
        lines = run_lookup("host", 10.0, env={**clean, "DSTUI_HOST_ROOT": str(self.root), **environment})
        assert lines[-1] == ("done", None), lines[-1]
        machine = machine_from([], lines, [], "a tree")
        return machine.host, machine.driver

    def host(self, **environment: str) -> Host:
        return self.look(**environment)[0]


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


def test_empty_tree_is_a_host_with_few_facts(tree: Tree) -> None:
    host = tree.host()
    assert host.memory_total == Unknown("/proc/meminfo has no MemTotal")
    assert host.memory_limit is None and host.infiniband == () and host.container is None
    assert isinstance(host.numa, Unknown) and isinstance(host.pci_gpus, Unknown)


def test_memory_is_the_smaller_of_machine_and_cgroup(tree: Tree) -> None:
    tree.write(
        "/proc/meminfo", f"MemTotal: {64 * GIB // 1024} kB\nMemAvailable: {60 * GIB // 1024} kB\nHugePages_Total: 4\nHugepagesize: 2048 kB"
    )
    assert tree.host().memory == 64 * GIB
    tree.write("/sys/fs/cgroup/cgroup.controllers", "cpu memory")
    tree.write("/sys/fs/cgroup/memory.max", 8 * GIB)
    host = tree.host()
    assert (host.memory_limit, host.memory, host.hugepages_total, host.hugepage_size) == (8 * GIB, 8 * GIB, 4, 2 << 20)


def test_limit_set_by_a_scheduler_on_a_parent_group_counts(tree: Tree) -> None:
    tree.write("/proc/self/cgroup", "0::/system.slice/job_77/step_0/user")
    tree.write("/sys/fs/cgroup/cgroup.controllers", "cpu memory")
    tree.write("/sys/fs/cgroup/system.slice/job_77/step_0/user/memory.max", "max")
    tree.write("/sys/fs/cgroup/system.slice/job_77/step_0/user/memory.current", 5 * GIB)
    tree.write("/sys/fs/cgroup/system.slice/job_77/memory.max", 32 * GIB)
    tree.write("/sys/fs/cgroup/system.slice/job_77/cpu.max", "400000 100000")
    tree.write("/sys/fs/cgroup/system.slice/cpu.max", "max 100000")
    host = tree.host()
    assert (host.memory_limit, host.memory_limit_used, host.cpu_quota) == (32 * GIB, 5 * GIB, 4.0)


def test_cgroup_v1_writes_a_huge_number_for_no_limit(tree: Tree) -> None:
    tree.write("/proc/self/cgroup", "9:memory:/kubepods/pod1\n3:cpu,cpuacct:/kubepods/pod1")
    tree.write("/sys/fs/cgroup/memory/memory.limit_in_bytes", 9223372036854771712)
    tree.write("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1")
    assert (tree.host().memory_limit, tree.host().cpu_quota) == (None, None)
    tree.write("/sys/fs/cgroup/memory/kubepods/pod1/memory.limit_in_bytes", 2 * GIB)
    tree.write("/sys/fs/cgroup/cpu/kubepods/pod1/cpu.cfs_quota_us", 150000)
    tree.write("/sys/fs/cgroup/cpu/kubepods/pod1/cpu.cfs_period_us", 100000)
    assert (tree.host().memory_limit, tree.host().cpu_quota) == (2 * GIB, 1.5)


def test_numa_node_without_cpus_is_kept(tree: Tree) -> None:
    for node, cpus in ((0, "0-71"), (2, "")):
        tree.write(f"/sys/devices/system/node/node{node}/cpulist", cpus)
        tree.write(f"/sys/devices/system/node/node{node}/meminfo", f"Node {node} MemTotal: {GIB // 1024} kB")
        tree.write(f"/sys/devices/system/node/node{node}/distance", "10 80")
    nodes = tree.host().numa
    assert not isinstance(nodes, Unknown)
    assert [(node.id, node.cpus, node.memory, node.distances) for node in nodes] == [(0, "0-71", GIB, (10, 80)), (2, "", GIB, (10, 80))]


def test_gpu_on_the_bus_is_found_without_a_driver(tree: Tree) -> None:
    for bus, kind in (("0000:1b:00.0", "0x030200"), ("0000:c0:00.0", "0x068000"), ("0000:2f:00.0", "0x020000")):
        tree.write(f"/sys/bus/pci/devices/{bus}/vendor", "0x10de")
        tree.write(f"/sys/bus/pci/devices/{bus}/class", kind)
        tree.write(f"/sys/bus/pci/devices/{bus}/numa_node", 1 if bus.startswith("0000:1b") else -1)
        tree.write(f"/sys/bus/pci/devices/{bus}/local_cpulist", "32-63")
    host, driver = tree.look()
    assert not isinstance(host.pci_gpus, Unknown)
    (gpu,) = host.pci_gpus
    assert (gpu.bus_id, gpu.numa_node, gpu.cpus, gpu.driver) == ("0000:1b:00.0", 1, "32-63", Unknown("no driver is bound"))
    assert host.nvswitches == 1
    assert driver.kernel_module == Unknown("the kernel module is not loaded")


@pytest.mark.parametrize(
    ("line", "version", "open_module"),
    [
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024", "550.54.15", False),
        ("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.172.08  Release Build", "570.172.08", True),
    ],
)
def test_kernel_module_gives_its_version_without_nvml(tree: Tree, line: str, version: str, open_module: bool) -> None:
    tree.write("/proc/driver/nvidia/version", line)
    tree.write("/proc/modules", "nvidia_uvm 4694016 4 - Live\nnvidia_peermem 16384 0 - Live\next4 1 0 - Live")
    tree.write("/dev/nvidia0", "")
    tree.write("/dev/nvidiactl", "")
    _, driver = tree.look()
    assert (driver.kernel_module, driver.open_module) == (version, open_module)
    assert driver.modules == ("nvidia_peermem", "nvidia_uvm") and driver.device_nodes == ("nvidia0", "nvidiactl")


def test_infiniband_and_roce_ports_are_distinguished(tree: Tree) -> None:
    for device, layer, rate in (("mlx5_0", "InfiniBand", "400 Gb/sec (4X NDR)"), ("mlx5_bond_0", "Ethernet", "200 Gb/sec (4X HDR)")):
        for name, text in (("state", "4: ACTIVE"), ("rate", rate), ("link_layer", layer)):
            tree.write(f"/sys/class/infiniband/{device}/ports/1/{name}", text)
        tree.write(f"/sys/class/infiniband/{device}/device/numa_node", 0)
    ports = tree.host().infiniband
    assert not isinstance(ports, Unknown)
    assert [(p.device, p.port, p.state, p.gbps, p.link_layer) for p in ports] == [
        ("mlx5_0", 1, "ACTIVE", 400.0, "InfiniBand"),
        ("mlx5_bond_0", 1, "ACTIVE", 200.0, "Ethernet"),
    ]


def test_interfaces_have_speed_kind_and_default_route(tree: Tree) -> None:
    for name, speed in (("eth0", "100000"), ("docker0", "-1"), ("lo", "")):
        tree.write(f"/sys/class/net/{name}/operstate", "up")
        tree.write(f"/sys/class/net/{name}/speed", speed)
        tree.write(f"/sys/class/net/{name}/mtu", 9000)
    tree.write("/proc/net/route", "Iface\tDestination\tGateway\neth0\t00000000\t0100000A\ndocker0\t000011AC\t00000000")
    nics = tree.host().nics
    assert not isinstance(nics, Unknown)
    assert [(n.name, n.virtual, n.default_route) for n in nics] == [("docker0", True, False), ("eth0", False, True)]
    assert (nics[1].speed, nics[1].mtu) == (100000, 9000) and isinstance(nics[0].speed, Unknown)


@pytest.mark.parametrize(
    ("files", "environment", "container"),
    [
        ({"/.dockerenv": ""}, {}, "docker"),
        ({"/run/.containerenv": "engine=podman"}, {}, "podman"),
        ({"/.dockerenv": ""}, {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, "kubernetes"),
        ({}, {"APPTAINER_CONTAINER": "/image.sif"}, "apptainer"),
        ({"/proc/1/cgroup": "12:memory:/lxc/box"}, {}, "lxc"),
        ({"/proc/1/cgroup": "0::/init.scope"}, {}, None),
    ],
)
def test_kind_of_container_is_recognised(tree: Tree, files: dict[str, str], environment: dict[str, str], container: Any) -> None:
    for path, text in files.items():
        tree.write(path, text)
    assert tree.host(**environment).container == container


def test_slurm_allocation_and_relevant_variables_are_kept_without_secrets(tree: Tree) -> None:
    host = tree.host(
        SLURM_JOB_ID="77", SLURM_NNODES="2", SLURM_JOB_USER="jo", NCCL_IB_DISABLE="1", CUDA_VISIBLE_DEVICES="2,3", HF_TOKEN="hf_secret"
    )
    assert host.scheduler == "slurm"
    assert host.allocation == {"SLURM_JOB_ID": "77", "SLURM_NNODES": "2"}
    assert host.environment["NCCL_IB_DISABLE"] == "1" and host.environment["CUDA_VISIBLE_DEVICES"] == "2,3"
    assert "hf_secret" not in str(host)


def test_wsl_is_recognised_by_its_kernel(tree: Tree) -> None:
    tree.write("/proc/version", "Linux version 5.15.153.1-microsoft-standard-WSL2")
    assert tree.host().wsl is True


def test_each_file_system_is_listed_once_and_local_ones_first(tree: Tree, tmp_path: Path) -> None:
    entries = [
        f"30 1 0:50 / {tmp_path} rw - nfs4 server:/home rw",
        "31 1 259:2 / / rw - ext4 /dev/nvme0n1p2 rw",
        "32 1 259:2 /var /var rw - ext4 /dev/nvme0n1p2 rw",
        "33 1 0:4 / /proc rw - proc proc rw",
    ]
    tree.write("/proc/self/mountinfo", "\n".join(entries))
    drive = tree.root / "sys/devices/pci0000:00/nvme/nvme0/nvme0n1/nvme0n1p2"
    drive.mkdir(parents=True)
    (tree.root / "sys/dev/block").mkdir(parents=True)
    (tree.root / "sys/dev/block/259:2").symlink_to(drive)
    tree.write("/sys/block/nvme0n1/device/model", "SAMSUNG MZQL23T8")
    disks = tree.host().disks
    assert not isinstance(disks, Unknown)
    assert [(d.mount, d.filesystem, d.local, d.nvme) for d in disks] == [
        ("/", "ext4", True, True),
        (str(tmp_path), "nfs4", False, Unknown("the device under it is not visible")),
    ]
    assert disks[0].model == "SAMSUNG MZQL23T8"
    assert isinstance(disks[0].free, int) and isinstance(disks[1].free, int)


def test_file_system_without_space_is_not_listed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    sizes = {"/": 1 << 40, "/secrets": 4096, "/mnt/answers-not": {"unknown": "stale file handle"}}
    listed = [{"mount": mount, "filesystem": "tmpfs", "local": True} for mount in sizes]
    monkeypatch.setattr(host, "disks", lambda: listed)
    monkeypatch.setattr(host, "space", lambda mount: {"total": sizes[mount], "free": sizes[mount]})
    host.main()
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    disks = [facts["disks"] for kind, facts in told if kind == "host" and "disks" in facts][-1]
    assert [disk["mount"] for disk in disks] == ["/", "/mnt/answers-not"]


def test_probe_programs_are_python_3_8_and_independent_of_dstui() -> None:
    folder = Path(sys.modules["dstui.machine"].__file__ or "").parent
    for name in ("host", "software", "nvml"):
        source = (folder / f"{name}.py").read_text()
        check = "import ast, sys; ast.parse(sys.stdin.read(), feature_version=(3, 8))"
        subprocess.run([sys.executable, "-c", check], input=source, text=True, check=True)
        assert "import dstui" not in source and "from dstui" not in source
