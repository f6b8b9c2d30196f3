"""A pasted `nvidia-smi topo -m`, with the damage that pasting causes."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import fakenvml
import pytest
from fakenvml import rows_of

from dstui.base.files import FileProblem
from dstui.machine.recorded import read_machine
from dstui.machine.report import summarise
from dstui.machine.snapshot import Machine, Unknown

LEGEND = """
Legend:

  X    = Self
  SYS  = Connection traversing PCIe as well as the SMP interconnect between NUMA nodes (e.g., QPI/UPI)
  NODE = Connection traversing PCIe as well as the interconnect between PCIe Host Bridges within a NUMA node
  NV#  = Connection traversing a bonded set of # NVLinks
"""


def printed(system: str, separator: str = "\t", nics: int = 0, titles: str = "CPU Affinity\tNUMA Affinity\tGPU NUMA ID") -> str:
    """Return the output of nvidia-smi for a system, with a fixed PCIe label for the NICs."""
    facts = fakenvml.SYSTEMS[system]
    names = [*(f"GPU{i}" for i in range(len(facts["links"]))), *(f"NIC{i}" for i in range(nics))]
    lines = ["\t" + separator.join([*names, *titles.split("\t")])]
    for gpu, row in enumerate(facts["links"]):
        cells = [" X " if cell == "X" else cell for cell in row.split()] + ["NODE"] * nics
        lines.append(separator.join([names[gpu], *cells, facts["cpus"][gpu] or "", str(facts["numa"][gpu]), "", "N/A"]))
    lines += [
        separator.join([f"NIC{i}", *["NODE"] * len(facts["links"]), *[" X " if i == j else "PIX" for j in range(nics)]])
        for i in range(nics)
    ]
    return "\n".join(lines) + "\n" + LEGEND


@pytest.fixture
def paste(tmp_path: Path) -> object:
    """Return a function that reads a text as --machine FILE does."""

    def read(text: str) -> Machine:
        file = tmp_path / "topo.txt"
        file.write_text(text)
        return read_machine(file)

    return read


@pytest.mark.parametrize("system", fakenvml.SYSTEMS)
def test_output_of_nvidia_smi_is_read_back(paste, system: str) -> None:
    expected = fakenvml.SYSTEMS[system]
    for separator, nics in product(("\t", "    "), (0, 10)):
        machine = paste(printed(system, separator, nics))
        assert rows_of(machine.links) == expected["links"]
        assert [list(island.gpus) for island in machine.islands] == expected["islands"]
        assert max(machine.islands, key=lambda island: len(island.gpus)).kind == expected["kind"]


def test_affinity_columns_are_read(paste) -> None:
    gpu = paste(printed("a100-pcie-two-sockets")).gpus[2]
    assert (gpu.cpus, gpu.numa_node) == (fakenvml.SYSTEMS["a100-pcie-two-sockets"]["cpus"][2], 1)


def test_empty_cpu_column_does_not_shift_the_numa_column(paste) -> None:
    gpu = paste("\tGPU0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\nGPU0\t X \t\t3\t\tN/A\n").gpus[0]
    assert isinstance(gpu.cpus, Unknown) and gpu.numa_node == 3


def test_first_of_several_numa_nodes_is_the_cpus_only_if_others_are_gpu_memory(paste) -> None:
    header = "\tGPU0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\n"
    grace = paste(header + "GPU0\t X \t0-71\t0,2-9,11-17\t\t2\n").gpus[0]
    assert (grace.numa_node, grace.memory_node) == (0, 2)
    assert isinstance(paste(header + "GPU0\t X \t0-63\t0-1\t\tN/A\n").gpus[0].numa_node, Unknown)


def test_cells_glued_together_by_the_terminal_are_separated(paste) -> None:
    machine = paste(" GPU0GPU1NIC0NIC1\tCPU Affinity\nGPU0\t X \tNV12NODEPXB\t0-3\nGPU1\tNV12 X SYSSYS\t0-3\n")
    assert rows_of(machine.links) == ["X NV12", "NV12 X"]
    assert machine.gpus[0].cpus == "0-3"


def test_old_name_soc_is_sys(paste) -> None:
    assert rows_of(paste("\tGPU0\tGPU1\nGPU0\t X \tSOC\nGPU1\tSOC\t X \n").links) == ["X SYS", "SYS X"]


def test_terminal_colours_and_underlines_are_ignored(paste) -> None:
    assert rows_of(paste("\t\x1b[4mGPU0\tGPU1\x1b[0m\nGPU0\t X \tPHB\nGPU1\tPHB\t X \n").links) == ["X PHB", "PHB X"]


def test_adapters_named_by_device_are_columns(paste) -> None:
    machine = paste("\tGPU0\tGPU1\tmlx5_0\tmlx5_bond_0\nGPU0\t X \tNV4\tPIX\tSYS\nGPU1\tNV4\t X \tSYS\tPIX\n")
    assert rows_of(machine.links) == ["X NV4", "NV4 X"]


def test_peer_to_peer_table_after_the_matrix_splits_the_island(paste) -> None:
    matrix = "\tGPU0\tGPU1\nGPU0\t X \tNV4\nGPU1\tNV4\t X \n\n"
    allowed = paste(matrix + "$ nvidia-smi topo -p2p n\n \tGPU0\tGPU1\n GPU0\tX\tOK\n GPU1\tOK\tX\n")
    refused = paste(matrix + "$ nvidia-smi topo -p2p n\n \tGPU0\tGPU1\n GPU0\tX\tNS\n GPU1\tNS\tX\n")
    assert allowed.p2p["nvlink"][0][1] == "OK" and len(allowed.islands) == 1
    assert refused.p2p["nvlink"][0][1] == "NS" and len(refused.islands) == 2


def test_nvlink_table_shows_which_pairs_are_joined(paste) -> None:
    rows = " GPU0\tX\tOK\tNS\tNS\n GPU1\tOK\tX\tNS\tNS\n GPU2\tNS\tNS\tX\tOK\n GPU3\tNS\tNS\tOK\tX\n"
    machine = paste(
        "$ nvidia-smi topo -p2p n\n \tGPU0\tGPU1\tGPU2\tGPU3\n" + rows + "\nLegend:\n  OK   = Status Ok\n  NS   = Not supported\n"
    )
    assert rows_of(machine.links)[0] == "X NV? ? ?"
    assert [island.gpus for island in machine.islands] == [(0, 1), (2, 3)]
    assert summarise(machine) == "4 x GPU, 2 NVLink pairs" and machine.islands[0].width is None


def test_peer_to_peer_table_without_command_line_is_nvlinks(paste) -> None:
    machine = paste("\tGPU0\tGPU1\nGPU0\t X \tPHB\nGPU1\tPHB\t X \n\n\tGPU0\tGPU1\n GPU0\tX\tGNS\n GPU1\tGNS\tX\n")
    assert list(machine.p2p) == ["nvlink"]
    assert rows_of(machine.links) == ["X PHB", "PHB X"]


def test_names_and_speeds_of_nvlink_s_are_read(paste) -> None:
    links = "".join(f"\t Link {link}: 14.062 GB/s\n" for link in range(4))
    text = "\tGPU0\tGPU1\nGPU0\t X \tNV4\nGPU1\tNV4\t X \n\n" + "".join(
        f"GPU {gpu}: NVIDIA GeForce RTX 3090 (UUID: GPU-{gpu})\n{links}" for gpu in (0, 1)
    )
    machine = paste(text)
    assert summarise(machine) == "2 x RTX 3090, one NVLink pair"
    assert machine.islands[0].bandwidth == 4 * 14062


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("hello\n", "neither a snapshot of `dstui machine --save` nor a matrix: paste the output of `nvidia-smi topo -m`"),
        ("nvidia-smi topo -p2p r\n\tGPU0\tGPU1\n GPU0\tX\tOK\n GPU1\tOK\tX\n", "but not how: paste `nvidia-smi topo -m` before it"),
        ("\tGPU0\tGPU1\n GPU0\tX\tOK\n GPU1\tOK\tX\n", "or the line with its command (-p2p n is NVLink)"),
        ("\tGPU0\tGPU1\nGPU0\t X \tNV4\n", "line 1) names 2 GPUs, but GPU 1 has no row"),
        ("\tGPU0\tGPU1\nGPU0\t X \tNV4\nGPU1\tNV4\n", "line 3: the row of GPU1 has 1 readable cells of 2"),
        ("\tGPU0\tGPU1\nGPU0\tNV4\t X \nGPU1\tNV4\t X \n", "line 2: the X of GPU0 is not in its own column"),
        ("\tGPU0\tGPU1\nGPU0\t X \tNV4\nGPU1\tNV2\t X \n", "GPU1 to GPU0 is NV2, but GPU0 to GPU1 is NV4"),
        ("\tGPU0\tGPU1\nGPU0\t X \tNV4\nGPU1\tNV4\t X \nGPU2\tNV4\tNV4\n", "line 4: GPU2 has a row, but the header (line 1) names only 2"),
        ("\tGPU0\tGPU1\nGPU0\t X \tPEX\nGPU1\tPEX\t X \n", "line 2: the row of GPU0 has 1 readable cells of 2"),
        (
            "\tGPU0\tGPU1\nGPU0\t X \tNV4\nGPU1\tNV4\t X \n# topo -p2p r\n\tGPU0\n GPU0\tX\n GPU1\tOK\tX\n",
            "line 7: GPU1 has a row, but the header (line 5) names only 1",
        ),
    ],
)
def test_broken_table_gives_a_message_with_its_line(paste, text: str, words: str) -> None:
    with pytest.raises(FileProblem) as problem:
        paste(text)
    assert words in str(problem.value) and "topo.txt" in str(problem.value)


def test_tables_of_two_machines_cannot_be_combined(paste) -> None:
    one = "# topo -p2p r\n\tGPU0\tGPU1\tGPU2\n GPU0\tX\tOK\tOK\n GPU1\tOK\tX\tOK\n GPU2\tOK\tOK\tX\n"
    with pytest.raises(FileProblem, match="has 3 GPUs, the one of `topo -m` has 2"):
        paste("\tGPU0\tGPU1\nGPU0\t X \tNV4\nGPU1\tNV4\t X \n" + one)
