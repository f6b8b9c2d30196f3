"""Findings on the systems of systems.json: each rule triggers where it applies, and nowhere else."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import fakenvml
import pytest

from dstui.check.rules.machine.machine_finding import MachineFinding
from dstui.check.rules.machine.machine_findings import RULES, check_machine
from dstui.check.rules.machine.requirement import Requirement
from dstui.machine.binding import deepspeed_binding, even_binding, misplaced_ranks, near_binding, numactl_wrapper, physical_cores
from dstui.machine.choice import choose
from dstui.machine.snapshot import Disk, Driver, Fabric, Gpu, GpuProcess, Host, IbPort, Machine, Nic, NvLink, PciGpu, Software, Unknown
from dstui.machine.topology import islands
from dstui.machine.visible import launcher_reading, visible_gpus

GIB = 1 << 30


def system(name: str, **host: Any) -> Machine:
    """Return a system as a healthy Machine, built from its recorded matrix."""
    facts = fakenvml.SYSTEMS[name]
    model, mib, capability, count, _, speed, generation, watts = fakenvml.MODELS[facts["model"]]
    links = tuple(tuple(row.split()) for row in facts["links"])
    gpus = tuple(_gpu(facts, links, index, model, mib, capability, count, speed, generation, watts) for index in range(len(links)))
    status = tuple(tuple("X" if i == j else facts["p2p"] for j in range(len(links))) for i in range(len(links)))
    p2p = {"read": status, "write": status}
    known = {"shm_total": 64 * GIB, "virtual_machine": False, "wsl": False, "container": None, **host}
    return Machine(source="this machine", gpus=gpus, links=links, p2p=p2p, islands=islands(links, p2p, gpus), host=Host(**known))


def _gpu(facts: dict[str, Any], links: Any, index: int, *of_model: Any) -> Gpu:
    model, mib, capability, count, speed, generation, watts = of_model
    widths = {fakenvml.bus_id(j): int(cell[2:]) for j, cell in enumerate(links[index]) if cell.startswith("NV")}
    switched = max(widths.values(), default=0) if facts["wiring"] == "switch" else 0
    active = switched or sum(widths.values())
    return Gpu(
        index=index,
        name=model,
        bus_id=fakenvml.bus_id(index),
        uuid=f"GPU-{index}abc",
        memory_total=mib * fakenvml.MIB if mib else Unknown("unified"),
        memory_used=GIB // 2 if mib else Unknown("unified"),
        compute_capability=capability.replace(" ", "."),
        cpus=facts["cpus"][index] or Unknown("hidden"),
        numa_node=Unknown("hidden") if facts["numa"][index] is None else facts["numa"][index],
        pcie_generation_max=generation,
        pcie_width=16,
        pcie_width_max=16,
        power_limit=float(watts),
        power_limit_default=float(watts),
        mig=False,
        mig_pending=False,
        nvlink=NvLink(count=count, active=active, switched=switched, peers={} if switched else widths, speed=speed),
    )


def with_gpu(machine: Machine, index: int, **changes: Any) -> Machine:
    gpus = tuple(replace(gpu, **changes) if gpu.index == index else gpu for gpu in machine.gpus)
    return replace(machine, gpus=gpus, islands=islands(machine.links, machine.p2p, gpus))


def found(machine: Machine, code: str, **requirement: Any) -> list[MachineFinding]:
    return [finding for finding in check_machine(machine, Requirement(**requirement)) if finding.code == code]


def one(machine: Machine, code: str, **requirement: Any) -> MachineFinding:
    findings = found(machine, code, **requirement)
    assert len(findings) == 1, findings
    return findings[0]


def test_every_machine_rule_has_title_source_and_test() -> None:
    mine = Path(__file__).read_text()
    for rule in RULES:
        assert rule.title.endswith(".") and rule.source
        assert f'"{rule.code}"' in mine, f"{rule.code} ({rule.title}) has no test"


@pytest.mark.parametrize("name", fakenvml.SYSTEMS)
def test_healthy_system_with_a_plain_job_gets_no_error(name: str) -> None:
    assert [finding for finding in check_machine(system(name)) if finding.level == "error"] == []


def test_machine_without_gpus_gets_no_findings_on_gpus() -> None:
    assert check_machine(Machine(source="this machine", host=Host(shm_total=GIB * 8))) == []
    assert check_machine(Machine.unprobed()) == []


# -- the machine itself


def test_gpus_on_the_bus_without_a_driver_are_named() -> None:
    driver = Driver(state=Unknown("NVIDIA's kernel driver is not loaded"))
    machine = Machine(driver=driver, host=Host(pci_gpus=(PciGpu(bus_id="0000:1b:00.0"),)))
    finding = one(machine, "MC001")
    assert finding.message == "1 NVIDIA GPU on the PCI bus, but the driver does not answer: NVIDIA's kernel driver is not loaded"
    contained = replace(machine, host=replace(machine.host, container="docker"))
    assert "--gpus all" in one(contained, "MC001").fix
    assert found(Machine(driver=driver, host=Host(pci_gpus=())), "MC001") == []


def test_taken_port_is_named_with_an_alternative() -> None:
    machine = Machine(host=Host(ports=(22, 29500)))
    finding = one(machine, "MC021", port=29500)
    assert "port 29500" in finding.message and finding.sets == (("cluster.master_port", None),)
    assert found(machine, "MC021", port=29501) == found(machine, "MC021") == found(Machine.unprobed(), "MC021", port=29500) == []


def test_lost_gpu_blocks_every_job_of_the_machine() -> None:
    machine = with_gpu(system("dgx-h100"), 3, problem="the GPU is lost: it fell off the bus")
    finding = one(machine, "MC002", gpus=(0, 1))
    assert finding.level == "error" and "GPU 3" in finding.message and "hide it" in finding.fix


@pytest.mark.parametrize(("name", "words"), [("dgx-h100", "tensor parallelism up to 7 is cheap"), ("rtx3090-pair", "")])
def test_nothing_is_recommended_with_a_lost_gpu(name: str, words: str) -> None:
    """The lost GPU still has links in the matrix and, in an edited snapshot, in the islands."""
    whole = system(name)
    machine = with_gpu(whole, 1, problem="the GPU is lost: it fell off the bus")
    assert all(1 not in island.gpus or island.kind == "single" for island in machine.islands)
    for one_of_them in (machine, replace(machine, islands=whole.islands)):
        said = " ".join(finding.message for finding in check_machine(one_of_them) if finding.code == "MC212")
        assert said.count("tensor parallelism") == bool(words) and words in said
        assert "GPU 1 cannot be used" in one(one_of_them, "MC002").message


def test_active_links_without_peer_to_peer_point_to_fabric_manager() -> None:
    machine = system("dgx-a100")
    refused = tuple(tuple("X" if i == j else "NS" for j in range(8)) for i in range(8))
    finding = one(replace(machine, p2p={"nvlink": refused}), "MC003")
    assert finding.level == "error" and "GPUs 0 and 1 and 27 other pairs" in finding.message and "fabricmanager" in finding.fix


def test_incomplete_fabric_blocks() -> None:
    machine = with_gpu(system("dgx-h100"), 2, fabric=Fabric(state="in progress", status=0))
    assert one(machine, "MC004").message == "the NVSwitch fabric of GPU 2 is in progress"


def test_inactive_links_of_one_gpu_are_counted() -> None:
    machine = with_gpu(system("dgx-h100"), 5, nvlink=NvLink(count=18, active=16, switched=16))
    assert one(machine, "MC005").message == "GPU 5 has 16 of 18 NVLinks up, its neighbours 18"
    assert found(with_gpu(machine, 0, mig=True), "MC005") == [], "in MIG mode links read as down"
    assert found(system("a6000-pair-and-one"), "MC005") == [], "a card without a bridge is no fault"


def test_mig_slices_and_pending_changes_are_reported() -> None:
    assert "MIG-" in one(with_gpu(system("dgx-a100"), 0, mig=True, mig_pending=True), "MC006").fix
    assert one(with_gpu(system("dgx-a100"), 1, mig_pending=True), "MC006").level == "info"


def test_prohibited_compute_mode_is_an_error_and_exclusive_a_note() -> None:
    assert one(with_gpu(system("l40s-vm"), 0, compute_mode="prohibited"), "MC007").level == "error"
    assert one(with_gpu(system("l40s-vm"), 0, compute_mode="exclusive process"), "MC007").level == "info"


def test_narrow_slot_is_a_warning_on_metal_and_a_note_in_the_cloud() -> None:
    assert one(with_gpu(system("l40s-8"), 4, pcie_width=8), "MC008").level == "warning"
    assert one(with_gpu(system("l40s-8", virtual_machine=True), 4, pcie_width=8), "MC008").level == "info"


def test_different_gpus_are_reported_with_the_larger_group() -> None:
    machine = with_gpu(system("rtx4090-8"), 7, name="NVIDIA GeForce RTX 3060", memory_total=12 * GIB)
    finding = one(machine, "MC009")
    assert finding.sets == (("cluster.include", "localhost:0,1,2,3,4,5,6"),)
    assert found(machine, "MC009", gpus=(0, 1)) == []


def test_throttling_and_power_caps_make_stragglers() -> None:
    assert "hardware thermal" in one(with_gpu(system("l40s-8"), 1, throttle=("hardware thermal",)), "MC010").message
    assert one(with_gpu(system("l40s-8"), 1, power_limit=250.0), "MC010").level == "info"
    assert found(with_gpu(system("l40s-8"), 1, throttle=("power cap",)), "MC010") == []


def test_nothing_needs_setting_without_peer_to_peer() -> None:
    finding = one(system("rtx4090-8"), "MC011")
    assert "CNS" in finding.message and finding.fix.startswith("set nothing") and finding.sets == ()
    assert found(system("l40s-8"), "MC011") == []


def test_iommu_matters_only_on_bare_metal_over_pcie() -> None:
    assert "ACS" in one(system("l40s-8", iommu=True), "MC012").fix
    assert found(system("l40s-8", iommu=True, virtual_machine=True), "MC012") == []
    assert found(system("dgx-h100", iommu=True), "MC012") == []


def test_small_dev_shm_is_enlarged_as_the_container_allows() -> None:
    finding = one(system("dgx-h100", shm_total=64 << 20, container="docker"), "MC013")
    assert finding.message == "/dev/shm has 64 MB for 8 ranks" and "--shm-size" in finding.fix
    assert "emptyDir" in one(system("dgx-h100", shm_total=64 << 20, container="kubernetes"), "MC013").fix
    on_cpu = Machine(source="this machine", host=Host(shm_total=64 << 20, container="docker"))
    assert "66 MB for each rank" in one(on_cpu, "MC013", ranks=2).why
    assert found(replace(on_cpu, host=Host(shm_total=1 << 30)), "MC013", ranks=2) == []


@pytest.mark.parametrize(
    ("torch", "cuda", "driver", "words"),
    [
        ("2.13.0+cpu", None, "570.86", "built without CUDA"),
        ("2.9.1+cu130", "13.0", "570.86", "needs driver 580"),
        ("2.9.1+cu128", "12.8", "470.82", "needs driver 525"),
        ("2.9.1+cu128", "12.8", "570.86", None),
        (None, None, "570.86", None),
    ],
)
def test_torch_and_driver_must_be_compatible(torch: str | None, cuda: str | None, driver: str, words: str | None) -> None:
    software = Software(torch=torch, torch_cuda=cuda, torch_hip=None)
    machine = replace(system("dgx-h100"), software=software, driver=Driver(state="ok", version=driver, cuda="12.8"))
    messages = [finding.message for finding in found(machine, "MC014")]
    assert len(messages) == (words is not None)
    assert words is None or words in messages[0]


def test_another_interpreter_is_not_judged_by_this_ones_torch() -> None:
    machine = replace(system("dgx-h100"), software=Software(torch="2.13.0+cpu", torch_cuda=None, torch_hip=None))
    assert found(machine, "MC014", other_python=True) == []
    assert found(machine, "MC014", environment={"DS_ACCELERATOR": "cpu"}) == [], "a job that asks for the CPU is fine"
    assert found(machine, "MC014")


@pytest.mark.parametrize(
    ("integration", "transformers", "accelerate", "words"),
    [
        ("trainer", "5.23.0", None, "'accelerate>=1.1.0'"),
        ("trainer", "5.0.0", "1.0.9", "'accelerate>=1.1.0'"),
        ("trainer", "5.0.0", "1.1.0", None),
        ("trainer", "4.45.2", "0.25.0", "'accelerate>=0.26.0'"),
        ("trainer", "4.44.2", "0.25.0", None),
        ("trainer", "4.29.2", "0.10.0", None),
        ("trainer", "nightly", "0.10.0", None),
        ("accelerate", "5.23.0", None, "'accelerate'"),
        ("accelerate", "5.23.0", "0.10.0", None),
        ("deepspeed", "5.23.0", None, None),
    ],
)
def test_accelerate_must_be_there_for_the_trainer(integration: str, transformers: str, accelerate: str | None, words: str | None) -> None:
    software = Software(python_path="~/env/bin/python", deepspeed="0.19.8", transformers=transformers, accelerate=accelerate)
    machine = replace(system("dgx-h100"), software=software)
    findings = found(machine, "MC022", integration=integration)
    assert [(finding.fix, finding.level) for finding in findings] == [(f"~/env/bin/python -m pip install {words}", "error")] * bool(words)
    if words:
        assert one(machine, "MC022", integration=integration, environment={"PYTHONPATH": "/site"}).level == "warning"
        assert found(replace(machine, software=replace(software, deepspeed=None)), "MC022", integration=integration) == [], "it only plans"
        assert found(machine, "MC022", integration=integration, other_python=True) == []


def test_several_gpus_under_wsl_are_a_warning() -> None:
    assert one(system("rtx5090-2", wsl=True), "MC015").level == "warning"
    assert found(system("l40s-vm", wsl=True), "MC015") == []


def test_view_from_a_small_allocation_is_not_trusted() -> None:
    assert "GPUs 0, 1, 2 and 3" in one(system("h200-one-core-step"), "MC016").message


def test_only_fast_ports_of_mixed_adapters_are_given_to_nccl() -> None:
    ports = (
        *(IbPort(device=f"mlx5_{n}", port=1, state="ACTIVE", gbps=400.0, link_layer="InfiniBand") for n in (0, 1)),
        IbPort(device="mlx5_bond_0", port=1, state="ACTIVE", gbps=200.0, link_layer="Ethernet"),
        IbPort(device="mlx5_9", port=1, state="DOWN", gbps=400.0, link_layer="InfiniBand"),
    )
    findings = found(system("h200-rails", infiniband=ports), "MC017", nodes=2)
    assert "mlx5_9:1" in findings[0].message
    assert findings[1].sets == (("cluster.env.NCCL_IB_HCA", "=mlx5_0,mlx5_1"),)
    assert found(system("h200-rails", infiniband=ports), "MC017", nodes=1) == []


def test_flat_virtual_machine_gives_nothing_by_distance() -> None:
    assert found(system("v100-cube-mesh-vm", virtual_machine=True), "MC018")
    assert found(system("a10g-vm", virtual_machine=True), "MC018")
    assert found(system("rtx4090-8", virtual_machine=True), "MC018") == [], "two sockets explain it"


def test_nvlink_rack_is_one_domain() -> None:
    machine = system("gb200-tray")
    for index in range(4):
        machine = with_gpu(machine, index, fabric=Fabric(state="completed", status=0, cluster="6b1c" + "0" * 28, clique=2))
    assert "clique 2" in one(machine, "MC019", nodes=2).message
    assert found(with_gpu(system("dgx-h100"), 0, fabric=Fabric(state="completed", status=0, cluster="0" * 32, clique=0)), "MC019") == []


def test_failing_memory_is_a_warning_for_its_users() -> None:
    sick = with_gpu(system("dgx-h100"), 3, memory_errors=2)
    assert "2 uncorrected memory errors" in one(sick, "MC020").message
    assert found(sick, "MC020", gpus=(0, 1)) == []
    assert "replace rows" in one(with_gpu(system("dgx-h100"), 3, memory_errors=0, remap_pending=True), "MC020").message


# -- variables that guides recommend


@pytest.mark.parametrize(
    ("name", "level", "words"),
    [
        ("dgx-h100", "warning", "18 NVLinks between two GPUs stay unused"),
        ("l40s-8", "warning", "peer-to-peer over PCIe here"),
        ("rtx4090-8", "info", "nothing here"),
    ],
)
def test_nccl_p2p_disable_costs_what_the_machine_has(name: str, level: str, words: str) -> None:
    finding = one(system(name), "MC101", environment={"NCCL_P2P_DISABLE": "1"})
    assert finding.level == level and words in finding.why and finding.path == "cluster.env.NCCL_P2P_DISABLE"
    assert found(system(name), "MC101", environment={"NCCL_P2P_DISABLE": "0"}) == []


def test_nccl_shm_disable_costs_most_without_peer_to_peer() -> None:
    assert one(system("rtx4090-8"), "MC102", environment={"NCCL_SHM_DISABLE": "1"}).level == "warning"
    assert one(system("dgx-h100"), "MC102", environment={"NCCL_SHM_DISABLE": "1"}).level == "info"


def test_nccl_ib_disable_costs_the_adapters_of_a_cluster() -> None:
    ports = (IbPort(device="mlx5_0", port=1, state="ACTIVE", gbps=400.0, link_layer="InfiniBand"),)
    variable = {"NCCL_IB_DISABLE": "1"}
    assert "400 Gb/s" in one(system("dgx-h100", infiniband=ports), "MC103", environment=variable, nodes=2).why
    assert one(system("dgx-h100", infiniband=ports), "MC103", environment=variable).level == "info"
    assert one(system("dgx-h100", infiniband=()), "MC103", environment=variable, nodes=2).level == "info"


@pytest.mark.parametrize(
    ("value", "level", "words"),
    [
        ("eth", "info", "nothing here"),
        ("ib0", "error", "no interface here has this name (eth0, eth1)"),
        ("=eth1", "error", "eth1 is down"),
        ("=eth10", "error", "no interface here has this name"),
        ("docker0", "warning", "docker0 is slower than eth0"),
        ("^docker", "info", "nothing here"),
    ],
)
def test_nccl_socket_ifname_is_checked_against_the_interfaces(value: str, level: str, words: str) -> None:
    nics = (
        Nic(name="docker0", state="up", virtual=True, speed=10000),
        Nic(name="eth0", state="up", speed=100000),
        Nic(name="eth1", state="down"),
    )
    finding = one(system("dgx-h100", nics=nics), "MC104", environment={"NCCL_SOCKET_IFNAME": value}, nodes=2)
    assert finding.level == level and words in finding.why


def test_variable_set_in_the_shell_counts() -> None:
    assert one(system("dgx-h100", environment={"NCCL_P2P_DISABLE": "1"}), "MC101").path == "cluster.env"


@pytest.mark.parametrize(
    ("value", "filtered", "words"),
    [
        ("3,1", False, "--include localhost:1,3: sorted"),
        ("4,5", True, "ignores it"),
        ("GPU-1abc", False, "ValueError"),
        ("", False, "finds no GPU"),
        ("9", False, "there is no GPU 9"),
        ("0,1", False, None),
    ],
)
def test_launchers_use_of_visible_devices_is_reported(value: str, filtered: bool, words: str | None) -> None:
    findings = found(system("dgx-h100"), "MC105", environment={"CUDA_VISIBLE_DEVICES": value}, filtered=filtered)
    assert len(findings) == (words is not None)
    assert words is None or words in findings[0].message


def test_other_device_order_matters_with_different_gpus() -> None:
    machine = with_gpu(system("rtx3090-pair"), 1, name="NVIDIA T400")
    assert one(machine, "MC106", environment={"CUDA_DEVICE_ORDER": "FASTEST_FIRST"}).sets == (
        ("cluster.env.CUDA_DEVICE_ORDER", "PCI_BUS_ID"),
    )
    assert found(system("rtx3090-pair"), "MC106", environment={"CUDA_DEVICE_ORDER": "FASTEST_FIRST"}) == []


# -- where to run


@pytest.mark.parametrize(
    ("name", "count", "gpus"),
    [
        ("a100-pcie-bridged-pairs", 2, (0, 1)),
        ("a6000-pair-and-one", 2, (1, 2)),
        ("v100-cube-mesh", 4, (0, 1, 2, 3)),
        ("v100-cube-mesh", 2, (0, 3)),
        ("l40s-8", 2, (0, 1)),
        ("l40s-8", 4, (0, 1, 2, 3)),
        ("rtx4090-8", 4, (0, 1, 2, 3)),
        ("dgx-h100", 4, (0, 1, 2, 3)),
        ("dgx-2", 4, (0, 1, 2, 3)),
        ("power9-v100-pairs", 2, (0, 1)),
    ],
)
def test_best_connected_gpus_are_chosen(name: str, count: int, gpus: tuple[int, ...]) -> None:
    choice = choose(system(name), count)
    assert choice and choice.gpus == gpus


def test_free_gpus_precede_well_connected_ones_and_broken_ones_are_excluded() -> None:
    machine = with_gpu(system("a100-pcie-bridged-pairs"), 1, memory_used=70 * GIB)
    choice = choose(machine, 2)
    assert choice and choice.gpus == (2, 3)
    broken = with_gpu(machine, 3, problem="lost")
    assert (choose(broken, 2) or choice).gpus == (0, 2)
    assert choose(broken, 4) is None


def test_badly_connected_choice_is_improved() -> None:
    finding = one(system("a100-pcie-bridged-pairs"), "MC201", gpus=(0, 2))
    assert finding.sets == (("cluster.include", "localhost:0,1"),)
    assert found(system("a100-pcie-bridged-pairs"), "MC201", gpus=(2, 3)) == []
    assert found(system("dgx-h100"), "MC201", gpus=(1, 4, 6)) == [], "behind switches all sets are equal"


def test_busy_gpu_is_named_with_its_process_and_excluded() -> None:
    machine = with_gpu(system("dgx-h100"), 2, memory_used=73 * GIB, processes=(GpuProcess(pid=4711, name="python"),))
    finding = one(machine, "MC202")
    assert finding.message == "GPU 2 is busy: 73 GB in use, pid 4711 (python)"
    assert finding.sets == (("cluster.include", "localhost:0,1,3,4,5,6,7"),)
    assert found(machine, "MC202", gpus=(0, 1)) == []


def test_job_across_islands_is_told_which_island_fits() -> None:
    assert one(system("a100-pcie-bridged-pairs"), "MC203").sets == (("cluster.include", "localhost:0,1"),)
    assert found(system("l40s-8"), "MC203") == [] == found(system("dgx-h100"), "MC203")


def test_second_partition_pays_only_on_several_hosts() -> None:
    path = "deepspeed.zero_optimization.zero_hpz_partition_size"
    assert one(system("dgx-h100"), "MC204", stage=3, nodes=4).sets == ((path, 8),)
    assert "1.8 GB more per GPU" in one(system("dgx-h100"), "MC204", stage=3, nodes=4, params=7e9).why
    assert "or 2, the NVLink island" in one(system("a100-pcie-bridged-pairs"), "MC204", stage=3, nodes=2).why
    assert one(system("dgx-h100"), "MC204", stage=3, hpz=8).level == "warning"
    assert one(system("dgx-h100"), "MC204", stage=2, hpz=8, nodes=2).sets == ((path, 1),)
    assert found(system("dgx-h100"), "MC204", stage=3) == [] == found(system("dgx-h100"), "MC204", stage=3, nodes=2, hpz=8)


def test_parallel_groups_stay_within_nvlink() -> None:
    assert found(system("dgx-h100"), "MC205", tensor_parallel=8) == []
    assert "GPUs 0, 1, 2 and 3 into one group" in one(system("a100-pcie-bridged-pairs"), "MC205", tensor_parallel=4).message
    assert found(system("a100-pcie-bridged-pairs"), "MC205", tensor_parallel=2) == []
    assert "at most 4" in one(system("v100-cube-mesh"), "MC205", sequence_parallel=8).fix
    assert "reaches over hosts" in one(system("h100-mesh"), "MC205", tensor_parallel=8, nodes=2).message
    assert "without NVLink" in one(system("l40s-8"), "MC205", tensor_parallel=2).message


def test_stage_3_over_pcie_is_a_last_resort() -> None:
    finding = one(system("rtx4090-8"), "MC206", stage=3)
    assert "stage 2" in finding.fix and "zero_quantized_weights" in finding.fix
    assert "zero_quantized_weights" not in one(system("rtx4090-8"), "MC206", stage=3, quantized_weights=True).fix
    assert found(system("dgx-h100"), "MC206", stage=3) == [] == found(system("rtx4090-8"), "MC206", stage=2)


def test_overlap_is_enabled_with_smaller_buckets_on_small_gpus() -> None:
    zero = "deepspeed.zero_optimization"
    assert one(system("dgx-h100"), "MC207", stage=2).sets == ((f"{zero}.overlap_comm", True),)
    assert (f"{zero}.reduce_bucket_size", 200000000) in one(system("rtx4090-8"), "MC207", stage=1).sets
    assert found(system("dgx-h100"), "MC207", stage=2, overlap_comm=False) == [] == found(system("dgx-h100"), "MC207", stage=3)


@pytest.mark.parametrize(
    ("name", "cores", "far"),
    [
        ("dgx-a100", 128, 8),
        ("h100-mesh", 32, 4),
        ("pcie-uneven-sockets", 48, 1),
        ("dgx-h100", 112, 0),
        ("rtx4090-8", 112, 0),
        ("a100-pcie-bridged-pairs", 104, 0),
    ],
)
def test_deepspeeds_binding_is_simulated(name: str, cores: int, far: int) -> None:
    machine = system(name)
    gpus = range(len(machine.gpus))
    assert physical_cores(machine) == cores
    assert len(misplaced_ranks(machine, deepspeed_binding(machine, gpus))) == far
    assert len(found(machine, "MC208", cpu_binding="deepspeed")) == (far > 0)
    assert misplaced_ranks(machine, near_binding(machine, gpus)) == ()


@pytest.mark.xdist_group("torch")
def test_simulated_binding_equals_deepspeeds(monkeypatch: pytest.MonkeyPatch) -> None:
    numa = pytest.importorskip("deepspeed.utils.numa")
    machine = system("dgx-a100")
    monkeypatch.setattr(numa.psutil, "cpu_count", lambda logical: 128)
    monkeypatch.setattr(numa, "check_for_numactl_pkg", lambda: True)
    monkeypatch.setattr(numa, "get_numa_cores", lambda: [])
    for binding in deepspeed_binding(machine, range(8)):
        each, command = numa.get_numactl_cmd(None, 8, binding.rank)
        assert command == ["numactl", "-C", binding.cpu_list] and each == len(binding.cpus)


def test_offloading_ranks_on_two_sockets_should_be_bound() -> None:
    assert one(system("dgx-a100"), "MC209", offload="cpu").sets == (("cluster.cpu_binding", "numactl"),)
    assert one(system("dgx-h100"), "MC209", offload="cpu").sets == (("cluster.cpu_binding", "deepspeed"),)
    assert found(system("dgx-a100"), "MC209") == [] == found(system("rtx3090-pair"), "MC209", offload="cpu")


def test_offload_cost_is_given_in_seconds_of_this_machines_pcie() -> None:
    finding = one(system("rtx4090-8"), "MC210", offload="cpu", params=13e9)
    assert finding.message == "offload moves 52 GB per step, 0.3 s over PCIe at 26 GB/s per GPU"
    slow = with_gpu(system("rtx4090-8"), 3, pcie_width=8)
    assert "0.5 s over PCIe at 13 GB/s" in one(slow, "MC210", offload="cpu", params=13e9).message


def test_grace_system_is_offered_superoffload() -> None:
    machine = with_gpu(system("gb200-tray"), 0, c2c=True)
    assert one(machine, "MC210", offload="cpu", params=1e9).sets[0][0].endswith("super_offload")
    assert found(machine, "MC210", offload="cpu", params=1e9, super_offload=True) == []


def test_offload_to_other_than_nvme_is_a_warning() -> None:
    disks = (
        Disk(mount="/", filesystem="overlay", nvme=Unknown("hidden")),
        Disk(mount="/home", filesystem="nfs4", local=False, nvme=Unknown("network")),
        Disk(mount="/scratch", filesystem="xfs", nvme=True),
        Disk(mount="/tmp", filesystem="tmpfs", nvme=Unknown("hidden")),
    )
    machine = system("dgx-h100", disks=disks)
    assert found(machine, "MC211", offload="nvme", nvme_path="/scratch/jo") == []
    for path, mount in (("/home/jo/swap", "/home (nfs4, over the network)"), ("/tmp/x", "/tmp (tmpfs"), ("/var/x", "/ (overlay")):
        finding = one(machine, "MC211", offload="nvme", nvme_path=path)
        assert mount in finding.message and finding.fix == "a folder under /scratch"


def test_link_capabilities_are_one_sentence() -> None:
    assert one(system("dgx-h100"), "MC212").message == "one NVSwitch island: tensor parallelism up to 8 is cheap"
    assert "hybrid cube mesh of 8 GPUs: tensor parallelism up to 4" in one(system("v100-cube-mesh"), "MC212").message
    assert one(system("rtx3090-pair"), "MC212").why == "4 links between any two"
    assert "ring of 4 GPUs: tensor parallelism up to 2" in one(system("v100-ring"), "MC212").message


# -- the wrapper and the variable by themselves


def test_wrapper_runs_each_rank_on_the_cpus_near_its_gpu(tmp_path: Path) -> None:
    script = tmp_path / "bind.sh"
    script.write_text(numactl_wrapper(near_binding(system("dgx-a100"), range(8))))
    (tmp_path / "numactl").write_text('#!/bin/sh\necho "$OMP_NUM_THREADS $KMP_AFFINITY $*"\n')
    (tmp_path / "numactl").chmod(0o755)
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "LOCAL_RANK": "2", "KMP_AFFINITY": "compact"}
    ran = subprocess.run(["sh", str(script), "python", "-u", "my train.py"], env=environment, capture_output=True, text=True, check=True)
    assert ran.stdout == "16  --physcpubind=16-23,144-151 --membind=1 python -u my train.py\n"


@pytest.mark.parametrize(
    ("words", "becomes"),
    [
        ("--local_rank=2 python -u train.py --lr 1", "python -u train.py --local_rank=2 --lr 1"),
        ("--local_rank=2 python -u -m pkg.train --lr 1", "python -u -m pkg.train --local_rank=2 --lr 1"),
    ],
)
def test_wrapper_passes_the_local_rank_to_the_script(tmp_path: Path, words: str, becomes: str) -> None:
    script = tmp_path / "bind.sh"
    script.write_text(numactl_wrapper(near_binding(system("dgx-a100"), range(8))))
    (tmp_path / "numactl").write_text('#!/bin/sh\nshift 2\necho "$*"\n')
    (tmp_path / "numactl").chmod(0o755)
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "LOCAL_RANK": "2"}
    ran = subprocess.run(["sh", str(script), *words.split()], env=environment, capture_output=True, text=True, check=True)
    assert ran.stdout == becomes + "\n"


def test_cpu_ranks_share_the_cores_evenly() -> None:
    machine = Machine(host=Host(core_groups=("0,4", "1,5", "2,6", "3,7")))
    assert [binding.cpu_list for binding in even_binding(machine, 2)] == ["0-1,4-5", "2-3,6-7"]
    assert even_binding(machine, 5) == () == even_binding(Machine(), 2)


@pytest.mark.parametrize(
    ("value", "gpus", "exact"),
    [
        (None, (0, 1, 2, 3), True),
        ("", (), True),
        ("2,0", (2, 0), True),
        ("0,0", (), True),
        ("1,-1,2", (1,), True),
        ("9", (), True),
        ("0,9,1", (0,), True),
        ("GPU-3,GPU-1", (3, 1), True),
        ("GPU-", (), True),
        ("3x,1", (3, 1), True),
        (" 1 , 2 ", (1, 2), True),
        ("NoDevFiles", (), True),
    ],
)
def test_visible_devices_are_parsed_as_by_cuda(value: str | None, gpus: tuple[int, ...], exact: bool) -> None:
    seen = visible_gpus(value, system("a100-sxm-mesh").gpus)
    assert (seen.gpus, seen.exact) == (gpus, exact)


def test_order_of_different_gpus_is_a_guess_without_bus_order() -> None:
    gpus = with_gpu(system("a100-sxm-mesh"), 0, name="NVIDIA T400").gpus
    assert visible_gpus("0", gpus).exact is False
    assert visible_gpus("0", gpus, "PCI_BUS_ID").exact is True


def test_list_of_plain_slots_in_order_gives_no_finding() -> None:
    assert launcher_reading("0,2", filtered=False) == ""
