"""The meaning of CUDA_VISIBLE_DEVICES for CUDA, and for DeepSpeed's launcher, which understands less of it."""

from __future__ import annotations

import re
from collections.abc import Sequence

from dstui.base.dataclass import dataclass
from dstui.machine.codec import known
from dstui.machine.snapshot import Gpu, Machine

PCI_ORDER = "PCI_BUS_ID"


@dataclass(frozen=True, slots=True)
class Visible:
    """The GPUs that CUDA shows, by NVML's index and in CUDA's order, whether that is certain, and notes."""

    gpus: tuple[int, ...]
    exact: bool = True
    notes: tuple[str, ...] = ()


def visible_gpus(value: str | None, gpus: Sequence[Gpu], order: str | None = None) -> Visible:
    """Return how CUDA reads the variable's value (None if it is not set) with CUDA_DEVICE_ORDER=`order`."""
    ordered = sorted(gpus, key=lambda gpu: known(gpu.bus_id, "")) if order == PCI_ORDER else list(gpus)
    exact, notes = _order(gpus, order)
    if value is None:
        return Visible(tuple(gpu.index for gpu in ordered), exact, notes)
    found: list[int] = []
    for word in (part.strip() for part in value.split(",")) if value.strip() else ():
        gpu, note = _one(word, ordered)
        notes += (note,) if note else ()
        if gpu is None:
            break
        if gpu in found:
            return Visible((), True, (*notes, f"GPU {word} is in it twice: CUDA then shows no GPU"))
        found.append(gpu)
    if not value.strip():
        notes += ("it is empty, which hides every GPU",)
    return Visible(tuple(found), exact, notes)


def _order(gpus: Sequence[Gpu], order: str | None) -> tuple[bool, tuple[str, ...]]:
    if order == PCI_ORDER or len({(known(gpu.name, ""), known(gpu.compute_capability, "")) for gpu in gpus}) < 2:
        return True, ()
    return False, ("CUDA numbers different GPUs from the fastest on, unlike nvidia-smi, unless CUDA_DEVICE_ORDER=PCI_BUS_ID",)


def _one(word: str, ordered: Sequence[Gpu]) -> tuple[int | None, str]:
    """Return the GPU that one word names, with a note; None if CUDA stops reading."""
    if number := re.match(r"[+-]?\d+", word):
        index = int(number[0])
        note = f"CUDA reads only {number[0]} of {word!r}" if number[0] != word else ""
        if 0 <= index < len(ordered):
            return ordered[index].index, note
        return None, f"there is no GPU {index}: CUDA ignores it and what follows"
    if word.startswith("GPU-"):
        named = [gpu.index for gpu in ordered if known(gpu.uuid, "").startswith(word)]
        if len(named) == 1:
            return named[0], ""
        return None, f"{word} names {len(named)} GPUs: CUDA ignores it and what follows"
    if word.startswith("MIG-"):
        slices = [(gpu.index, known(device.uuid, "")) for gpu in ordered for device in gpu.mig_devices]
        named = [index for index, uuid in slices if uuid.startswith(word)]
        return (named[0], "a process sees one MIG slice only") if named else (None, f"there is no slice {word}")
    return None, f"{word!r} names no GPU: CUDA ignores it and what follows"


def launcher_slots(machine: Machine) -> tuple[int, ...] | None:
    """Return the slots that DeepSpeed's launcher takes from the variable without filters; None if it takes every GPU.

    Values that it cannot read are not judged here: the launcher reports them as errors.
    """
    value = machine.host.environment.get("CUDA_VISIBLE_DEVICES", "")
    words = [word.strip() for word in value.split(",") if word.strip()]
    if not words or not machine.gpus or not all(word.isdigit() for word in words):
        return None
    return tuple(sorted({int(word) for word in words}))


def launcher_reading(value: str, filtered: bool) -> str:
    """Describe how DeepSpeed's launcher treats the variable. `filtered`: --include, --exclude, --num_gpus or --num_nodes is set."""
    if filtered:
        return "DeepSpeed ignores it, since the GPUs are also chosen on the command line"
    words = [word.strip() for word in value.split(",") if word.strip()]
    if not words:
        return "DeepSpeed finds no GPU"
    if not all(word.isdigit() for word in words):
        return "DeepSpeed's launcher ends with a ValueError: it takes numbers only, no UUIDs and no MIG slices"
    slots = sorted({int(word) for word in words})
    if [str(slot) for slot in slots] == words:
        return ""
    return f"DeepSpeed takes it as --include localhost:{','.join(map(str, slots))}: sorted, each once"
