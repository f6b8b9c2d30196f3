"""Read pasted output of `nvidia-smi topo -m`, optionally followed by that of `topo -p2p` and `nvlink -s`.

Real pastes are messy: cells without a separator (`NODEPXB`), a header without its first tab, colour codes, the old name SOC, tables that
end early. Cells are therefore found by their known names, and each row is checked against its own X.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import field

from dstui.base.dataclass import dataclass
from dstui.machine.codec import Maybe, Unknown
from dstui.machine.snapshot import Driver, Gpu, Host, Machine, Matrix, NvLink, Software
from dstui.machine.topology import NO_ANSWER, SOME_LINKS, islands

CELL = re.compile(r"\s*(X|NV\d+|PIX|PXB|PHB|PSB|NODE|SYS|SOC|OK|CNS|GNS|TNS|NS|DR|U(?![A-Za-z]))")
DEVICE = r"(?:GPU\d+|NIC\d+|[A-Za-z][A-Za-z0-9]*(?:_[A-Za-z]+)*_\d+|ib\w*\d+|rocep\w+)"
NAME = re.compile(rf"\s*({DEVICE})")
TITLES = re.compile(r"\s*(CPU ?Affinity.*)?$")
GPU_ROW = re.compile(r"\s*GPU(\d{1,4})(?=[\sX])(.*)")
COMMAND = re.compile(r"topo\s+(?:-p2p|--p2p_capabilities|-p)\s*=?\s*(\w+)")
LINK_OF_GPU = re.compile(r"GPU (\d{1,4}): (.+?)(?: \(UUID: .*\))?$")
LINK_SPEED = re.compile(r"\s*Link \d+: (\d{1,9}(?:\.\d{1,9})?) GB/s")
COLOURS = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
P2P_KINDS = {"r": ("read",), "w": ("write",), "rw": ("read", "write"), "n": ("nvlink",), "a": ("atomics",), "p": ("pci",)}
STATUSES = frozenset({"OK", "CNS", "GNS", "TNS", "NS", "DR", "U"})
LONGEST = 2000
"""Characters of a line that are read: sixteen GPUs and as many NICs need 300."""
AGAIN = ": paste the whole table again"
NOT_PASTED = Unknown("not in a pasted matrix")


class PasteError(Exception):
    """The text has no matrix, or a broken one. Holds a sentence and its line."""


@dataclass(slots=True)
class _Table:
    """One table while it is read: the devices of its header and the cells of its GPU rows."""

    line: int
    names: list[str]
    p2p: tuple[str, ...]
    rows: dict[int, list[str]] = field(default_factory=dict)
    affinity: dict[int, tuple[str, str, str]] = field(default_factory=dict)
    titles: str = ""

    @property
    def gpus(self) -> list[str]:
        return [name for name in self.names if name.startswith("GPU")]

    @property
    def is_p2p(self) -> bool:
        return any(cell in STATUSES for row in self.rows.values() for cell in row)


def machine_from_text(text: str, source: str) -> Machine:
    """Build the Machine of a pasted matrix. What the text does not contain is Unknown. Raises PasteError."""
    text = "\n".join(line[:LONGEST] for line in COLOURS.sub("", text).splitlines())
    tables = list(_tables(text))
    if not tables:
        what = "neither a snapshot of `dstui machine --save` nor a matrix"
        raise PasteError(f"{what}: paste the output of `nvidia-smi topo -m`, from the line with GPU0 on")
    topology = next((table for table in tables if not table.is_p2p), None)
    of_nvlink = next((table for table in tables if table.p2p == ("nvlink",)), None)
    if topology is not None:
        links = _matrix(topology)
    elif of_nvlink is not None:  # `topo -p2p n` lists the pairs that NVLink joins
        topology, links = of_nvlink, _joined(_matrix(of_nvlink))
    else:
        raise PasteError(
            "the table of `topo -p2p` shows which GPUs reach each other, but not how: "
            "paste `nvidia-smi topo -m` before it, or the line with its command (-p2p n is NVLink)"
        )
    p2p = {kind: _matrix(table) for table in tables if table.is_p2p for kind in table.p2p or ("nvlink",)}
    for kind, matrix in p2p.items():
        if len(matrix) != len(links):
            counts = f"{len(matrix)} GPUs, the one of `topo -m` has {len(links)}"
            raise PasteError(f"the table of `topo -p2p` ({kind}) has {counts}: paste both of one machine")
    gpus = _gpus(topology, _nvlinks(text))
    return Machine(
        source=source,
        gpus=gpus,
        links=links,
        p2p=p2p,
        islands=islands(links, p2p, gpus),
        driver=Driver(state=NOT_PASTED),
        host=Host(),
        software=Software(),
    )


def _tables(text: str) -> Iterator[_Table]:
    """Yield each table of the text, with the command line above it if there is one."""
    table: _Table | None = None
    p2p: tuple[str, ...] = ()
    for number, line in enumerate(text.splitlines(), 1):
        if command := COMMAND.search(line):
            p2p = P2P_KINDS.get(command[1], ())
        elif header := _header(line):
            if table:
                yield table
            table = _Table(number, header[0], p2p, titles=header[1])
            p2p = ()
        elif table and (row := GPU_ROW.match(line)):
            _read_row(table, int(row[1]), row[2], number)
    if table:
        yield table


def _header(line: str) -> tuple[list[str], str] | None:
    """Return the devices in a header and the titles after them; None for other lines. Matches name by name, without backtracking."""
    names, at = list[str](), 0
    while name := NAME.match(line, at):
        names.append(name[1])
        at = name.end()
    titles = TITLES.match(line, at)
    return (names, titles[1] or "") if titles and names[:1] == ["GPU0"] else None


def _read_row(table: _Table, gpu: int, rest: str, line: int) -> None:
    """Read the cells of one GPU, and the affinity columns after them."""
    cells: list[str] = []
    position, count = 0, len(table.gpus)
    while len(cells) < len(table.names) and (cell := CELL.match(rest, position)):
        cells.append("SYS" if cell[1] == "SOC" else cell[1])
        position = cell.end()
    if gpu >= count:
        raise PasteError(f"line {line}: GPU{gpu} has a row, but the header (line {table.line}) names only {count} GPUs{AGAIN}")
    if len(cells) < count:
        raise PasteError(f"line {line}: the row of GPU{gpu} has {len(cells)} readable cells of {count}: the columns are broken{AGAIN}")
    if cells[gpu] != "X" or cells[:count].count("X") != 1:
        raise PasteError(f"line {line}: the X of GPU{gpu} is not in its own column: a cell is missing or doubled{AGAIN}")
    table.rows[gpu] = cells[:count]
    if len(cells) == len(table.names):
        table.affinity[gpu] = _affinity(rest[position:], table.titles)


def _affinity(text: str, titles: str) -> tuple[str, str, str]:
    """Return the CPU list, the NUMA list and the NUMA node of the GPU's own memory; "" for missing columns."""
    columns = [part.strip() for part in (text.lstrip(" ").split("\t")[1:] if "\t" in text else re.split(r"\s{2,}", text.strip()))]
    cpus = columns[0] if columns and "CPU Affinity" in titles else ""
    others = [column for column in columns[1:] if column]
    own = others.pop() if others and "GPU NUMA ID" in titles else ""
    return cpus, others[0] if others else "", own


def _matrix(table: _Table) -> Matrix:
    missing = [str(gpu) for gpu in range(len(table.gpus)) if gpu not in table.rows]
    if missing:
        raise PasteError(f"the table (line {table.line}) names {len(table.gpus)} GPUs, but GPU {', '.join(missing)} has no row{AGAIN}")
    matrix = tuple(tuple(table.rows[gpu]) for gpu in range(len(table.gpus)))
    for i, row in enumerate(matrix):
        for j, cell in enumerate(row[:i]):
            if cell != matrix[j][i]:
                raise PasteError(f"GPU{i} to GPU{j} is {cell}, but GPU{j} to GPU{i} is {matrix[j][i]}: the columns are broken{AGAIN}")
    return matrix


def _joined(capability: Matrix) -> Matrix:
    """Return the pairs that NVLink joins, from its column of `topo -p2p n`. The path between other pairs is unknown."""
    kinds = {"X": "X", "OK": SOME_LINKS}
    return tuple(tuple(kinds.get(cell, NO_ANSWER) for cell in row) for row in capability)


def _nvlinks(text: str) -> Mapping[int, tuple[str, list[float]]]:
    """Return GPU -> name and GB/s of its links, from `nvidia-smi nvlink -s` or `-L` in the same text."""
    found: dict[int, tuple[str, list[float]]] = {}
    speeds: list[float] = []
    for line in text.splitlines():
        if gpu := LINK_OF_GPU.match(line.strip()):
            speeds = []
            found[int(gpu[1])] = (gpu[2], speeds)
        elif link := LINK_SPEED.match(line):
            speeds.append(float(link[1]))
    return found


def _gpus(table: _Table, reported: Mapping[int, tuple[str, list[float]]]) -> tuple[Gpu, ...]:
    return tuple(_gpu(index, table.affinity.get(index, ("", "", "")), reported.get(index)) for index in range(len(table.gpus)))


def _gpu(index: int, affinity: tuple[str, str, str], reported: tuple[str, list[float]] | None) -> Gpu:
    cpus, nodes, own = affinity
    links: Maybe[NvLink] = NOT_PASTED
    if reported and reported[1]:
        links = NvLink(count=len(reported[1]), active=len(reported[1]), speed=round(min(reported[1]) * 1000))
    return Gpu(
        index=index,
        name=reported[0] if reported else NOT_PASTED,
        cpus=cpus if re.fullmatch(r"[\d,-]+", cpus) else Unknown("the table names no CPUs for this GPU"),
        numa_node=_cpu_node(nodes, own),
        memory_node=int(own) if own.isdecimal() else NOT_PASTED,
        nvlink=links,
    )


def _cpu_node(nodes: str, own: str) -> Maybe[int]:
    """Return the NUMA node of the CPUs: the only one, or the first if the others are the memory of GPUs."""
    numbers = re.findall(r"\d+", nodes)
    if len(numbers) == 1 or (numbers and own.isdecimal()):
        return int(numbers[0])
    return Unknown(f"the table names several NUMA nodes ({nodes})" if numbers else "the table names no NUMA node for this GPU")
