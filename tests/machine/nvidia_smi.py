"""Convert the output of `nvidia-smi -q -x` to the snapshot's terms, to compare the two."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from xml.etree import ElementTree

from dstui.machine.codec import Unknown
from dstui.machine.snapshot import Gpu

MIB = 1 << 20
Field = tuple[str, Callable[[str], Any]]


def switch(text: str) -> bool:
    """Convert Enabled or Disabled."""
    return text == "Enabled"


def number(text: str) -> int:
    """Convert 16x, 5 or 41 C."""
    return int(text.rstrip("x").split()[0])


def bytes_of(text: str) -> int:
    """Convert 81559 MiB."""
    return number(text) * MIB


def bus_id(text: str) -> str:
    """Convert 00000000:53:00.0 to the kernel's format."""
    return text.lower()[4:] if text.startswith("0000") else text.lower()


SHARED: dict[str, Field] = {
    "name": ("product_name", str),
    "uuid": ("uuid", str),
    "serial": ("serial", str),
    "bus_id": ("pci/pci_bus_id", bus_id),
    "persistence": ("persistence_mode", switch),
    "mig": ("mig_mode/current_mig", switch),
    "mig_pending": ("mig_mode/pending_mig", switch),
    "ecc": ("ecc_mode/current_ecc", switch),
    "ecc_pending": ("ecc_mode/pending_ecc", switch),
    "compute_mode": ("compute_mode", lambda text: text.lower().replace("_", " ")),
    "memory_total": ("fb_memory_usage/total", bytes_of),
    "memory_reserved": ("fb_memory_usage/reserved", bytes_of),
    "pcie_generation_max": ("pci/pci_gpu_link_info/pcie_gen/max_link_gen", number),
    "pcie_width": ("pci/pci_gpu_link_info/link_widths/current_link_width", number),
    "pcie_width_max": ("pci/pci_gpu_link_info/link_widths/max_link_width", number),
    "module_id": ("platformInfo/module_id", number),
    "c2c": ("c2c_mode", switch),
}
"""Field of the snapshot -> its place in nvidia-smi's output and its conversion. Values that change by the second are left out."""
NOTHING = ("N/A", "[N/A]", "None", "Not Active", "Requested functionality has been deprecated", "")


def disagreements(xml: str, gpus: tuple[Gpu, ...]) -> list[str]:
    """Return a sentence for each shared field that differs; facts missing in both are equal."""
    told = ElementTree.fromstring(xml).findall("gpu")
    found = [] if len(told) == len(gpus) else [f"nvidia-smi lists {len(told)} GPUs, the snapshot {len(gpus)}"]
    for element, gpu in zip(told, gpus, strict=False):
        for name, (path, read) in SHARED.items():
            text, ours = (element.findtext(path) or "").strip(), getattr(gpu, name)
            if text in NOTHING and isinstance(ours, Unknown):
                continue
            theirs = None if text in NOTHING else read(text)
            near = isinstance(theirs, int) and isinstance(ours, int) and theirs > MIB and abs(theirs - ours) < MIB  # they round down to MiB
            if theirs is not None and theirs != ours and not near:
                found.append(f"GPU {gpu.index}: {name} is {ours!r} in the snapshot, {theirs!r} for nvidia-smi")
    return found
