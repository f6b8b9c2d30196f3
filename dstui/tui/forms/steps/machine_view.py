"""A machine as rows: GPUs, the link matrix with its islands, host and software, and the findings.

Separate from the step, since the snapshot's module is only needed once there is a snapshot.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import Final

from rich.cells import cell_len

from dstui.machine.codec import Maybe, Unknown, known
from dstui.machine.report import describe_islands, format_size
from dstui.machine.snapshot import GIB, Gpu, Machine
from dstui.plan.finding import Finding
from dstui.tui.kit.text_row import BLANK, GLYPHS, STYLE_OF, Row, Span, fit, paragraph, row

LINK_STYLES: Final = {"X": "faint", "PIX": "value", "PXB": "value", "PHB": "", "NODE": "", "SYS": "warning"}
"""NVLink (NV#) is the fast one; SYS crosses the sockets."""
BESIDE: Final = 84
"""Cells from which links and host are side by side."""


def bar(part: float, cells: int = 8) -> str:
    """Return a share of 0 to 1 as filled and empty cells."""
    full = round(min(max(part, 0.0), 1.0) * cells)
    return "█" * full + "░" * (cells - full)


def gpu_line(gpu: Gpu) -> str:
    """Return memory, load, temperature and users of a GPU, the most important first."""
    total, used = known(gpu.memory_total, 0), known(gpu.memory_used, 0)
    memory = f"{bar(used / total)} {used / GIB:4.1f} / {total / GIB:.1f} GB" if total else "memory unknown"
    facts = [memory, _unit(gpu.utilization, "%", 3), _unit(gpu.temperature, "C", 2), _unit(gpu.power, "W", 3)]
    processes = known(gpu.processes, ())
    facts += [f"busy: {known(processes[0].name, 'a process')}"] if processes else []
    facts += [f"NUMA {gpu.numa_node}"] if isinstance(gpu.numa_node, int) and not processes else []
    return "  ".join(filter(None, facts))


def _unit(value: Maybe[int] | Maybe[float], unit: str, width: int) -> str:
    return "" if isinstance(value, Unknown) else f"{value:>{width}.0f}{unit}"  # in nvidia-smi's format


def gpu_help(gpu: Gpu) -> str:
    """Return the facts of a GPU for which its row has no room."""
    facts = [str(known(gpu.name, "a GPU")), f"bus {gpu.bus_id}" if gpu.bus_id else ""]
    facts += [f"PCIe {gpu.pcie_generation_max} x{gpu.pcie_width_max}" if gpu.pcie_width_max else ""]
    facts += [f"NUMA node {gpu.numa_node}, CPUs {gpu.cpus}" if gpu.cpus else "", f"compute capability {gpu.compute_capability}"]
    facts += [f"used by {known(p.name, '?')} (pid {p.pid}, {format_size(p.memory)})" for p in known(gpu.processes, ())]
    return "; ".join(filter(None, facts)) + "."


def machine_rows(machine: Machine, findings: Sequence[Finding], width: int) -> list[Row]:
    """Return links, host and findings, below the GPUs."""
    links = _links(machine)
    left = max(_width(r) for r in links) + 3 if links and width >= BESIDE else 0
    host = _host(machine, width - left - 1)
    if left:
        pairs = zip_longest(links, host, fillvalue=BLANK)
        facts = [Row((*a.left, Span(" " * (left - _width(a))), *b.left)) for a, b in pairs]
    else:
        facts = [*links, *([BLANK] if links else []), *host]
    return [BLANK, *facts, BLANK, *_meaning(machine, findings, width)]


def _width(shown: Row) -> int:
    return sum(cell_len(s.text) for s in shown.left)


def _links(machine: Machine) -> list[Row]:
    """Return the link matrix with nvidia-smi's names, and the island of each GPU in the last column."""
    if len(machine.gpus) < 2 or not machine.links:
        return []
    cells = max(len(cell) for line in machine.links for cell in line) + 1
    rows = [row(("Links, as nvidia-smi topo -m names them", "accent"))]
    rows.append(row(("   " + "".join(f"{n:>{cells}}" for n in range(len(machine.links))), "dim")))
    for number, line in enumerate(machine.links):
        fragments = [(f"{cell:>{cells}}", "ok" if cell.startswith("NV") else LINK_STYLES.get(cell, "dim")) for cell in line]
        rows.append(row((f"{number:>3}", "dim"), *fragments, (f"  {_island_letter(machine, number)}", "accent")))
    return rows


def _island_letter(machine: Machine, gpu: int) -> str:
    """Return a, B, … for GPUs that NVLink connects; empty for a single one."""
    joined = [island for island in machine.islands if len(island.gpus) > 1]
    return next((chr(ord("A") + n) for n, island in enumerate(joined) if gpu in island.gpus), "")


def _nodes(count: int) -> str:
    return f"{count} NUMA node{'s' * (count > 1)}" if count else "NUMA nodes unknown"


def _host(machine: Machine, room: int) -> list[Row]:
    host, software, driver = machine.host, machine.software, machine.driver
    limit = " (cgroup limit)" if isinstance(host.memory_limit, int) else ""
    rdma = [p for p in known(host.infiniband, ()) if p.state == "ACTIVE"]
    facts = {
        "CPUs": f"{known(host.cpus_usable, '?')} usable, {_nodes(len(known(host.numa, ())))}",
        "RAM": f"{format_size(host.memory)}{limit}, {format_size(host.memory_available)} free",
        "/dev/shm": f"{format_size(host.shm_total)}, {format_size(host.shm_free)} free",
        "RDMA": f"{len(rdma)} x {rdma[0].gbps:.0f} Gb/s" if rdma and not isinstance(rdma[0].gbps, Unknown) else "none seen",
        "torch": _torch(machine),
        "deepspeed": known(software.deepspeed, "unknown") or "not installed here",
        "driver": f"{driver.version}, up to CUDA {driver.cuda}" if driver.version else "none",
        "compiler": known(software.gxx, "unknown") or "none: ops cannot be built",
    }
    return [
        row(("Host and software", "accent")),
        *(row((fit(name, 10), "dim"), fit(text, min(cell_len(text), room - 10))) for name, text in facts.items()),
    ]


def _torch(machine: Machine) -> str:
    version, cuda = machine.software.torch, known(machine.software.torch_cuda, None)
    if isinstance(version, Unknown) or not version:
        return "unknown" if version is not None else "not installed here"
    return f"{version}, {f'CUDA {cuda}' if cuda else 'no CUDA'}"


def _meaning(machine: Machine, findings: Sequence[Finding], width: int) -> list[Row]:
    """Return every finding about the machine with its fix; the islands in words if no finding names them."""
    rows = [row(("What it means", "accent"))]
    words = describe_islands(machine.islands)
    rows += [row(f"{words[0].upper()}{words[1:]}.")] if words and not any(words in f.message for f in findings) else []
    for finding in findings:
        style = STYLE_OF[finding.severity]
        rows += paragraph(finding.message, width - 1, first=(Span(f"{GLYPHS.get(finding.severity, 'i')} ", style),))
        if finding.fix:
            first = (Span("  x ", "accent"),) if finding.fix.by_key else (Span("  → ", "dim"),)
            rows += paragraph(finding.fix.text, width - 1, "value" if finding.fix.by_key else "dim", first=first)
    return rows if len(rows) > 1 else [*rows, row((GLYPHS["ok"], "ok"), " nothing here prevents training")]
