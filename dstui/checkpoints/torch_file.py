"""A file that torch.save wrote, read without torch and without trust: its values, with every object in it a record that does nothing.

The file is a zip; its `data.pkl` is a pickle in which tensors name their storages. Unpickling calls what the pickle names: here every name
becomes an inert class, so nothing is imported and nothing is called. `names` tells what torch.load would import.
"""

from __future__ import annotations

import math
import pickle
import re
import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

MOST = 256 << 20
"""Bytes of a data.pkl that are read: the names and shapes of a million tensors take less."""
ALLOWED = re.compile(
    r"collections\.(OrderedDict|defaultdict|deque)|builtins\.(set|frozenset|slice|complex|bytearray|list|dict|tuple|int|float|bool|str)"
    r"|torch\.(\w+Storage|Size|Tensor|device|dtype|float\w*|bfloat16|int\w+|bool|Generator)|torch\._utils\._rebuild_\w+"
    r"|torch\._tensor\._rebuild_from_type_v2|torch\.nn\.parameter\.Parameter|torch\.storage\.(Untyped|Typed)Storage|torch\.serialization\._get_layout"
    r"|numpy\.(ndarray|dtype|core\.multiarray\.(_reconstruct|scalar)|_core\.multiarray\.(_reconstruct|scalar))"
    r"|deepspeed\.(runtime|utils|checkpoint|moe)\.[\w.]+|argparse\.Namespace|pathlib\.(Posix)?Path|_codecs\.encode"
)
"""What a checkpoint of a training run names. Anything else in a pickle may be a program."""


class TorchFileProblem(Exception):
    """The file cannot be read as one that torch.save wrote: a sentence."""


class Inert(dict):  # type: ignore[type-arg]
    """An object of a pickle: how its class is called, what it was made of and what was put into it. It does nothing."""

    qualified = ""

    def __init__(self, *args: Any, **_keywords: Any) -> None:
        super().__init__()
        self.args = args
        self.state: Any = None
        self.items_added: list[Any] = []

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def append(self, item: Any) -> None:
        """As a list would take it."""
        self.items_added.append(item)

    def extend(self, items: Any) -> None:
        """As a list would take them."""
        self.items_added.extend(items)

    def add(self, item: Any) -> None:
        """As a set would take it."""
        self.items_added.append(item)

    __hash__ = object.__hash__  # type: ignore[assignment]


@dataclass(frozen=True, slots=True)
class TorchFile:
    """What was read."""

    value: Any
    names: frozenset[str] = field(default_factory=frozenset)
    """What torch.load would import and call: `collections.OrderedDict`."""

    @property
    def strange(self) -> list[str]:
        """Names that no checkpoint of a training run has."""
        return sorted(name for name in self.names if not ALLOWED.fullmatch(name))


def read_torch_file(path: Path) -> TorchFile:
    """Read its values. Raises TorchFileProblem, also where the file was cut off."""
    try:
        with zipfile.ZipFile(path) as archive:
            member = next((info for info in archive.infolist() if info.filename.endswith("data.pkl")), None)
            if member is None:
                raise TorchFileProblem("a zip, but none that torch.save wrote: it has no data.pkl")
            if member.file_size > MOST:
                raise TorchFileProblem(f"its data.pkl has {member.file_size / 2**20:,.0f} MiB: no checkpoint's has")
            with archive.open(member) as stream:
                return _read(stream)
    except zipfile.BadZipFile:
        raise TorchFileProblem(
            "incomplete: a file of torch.save ends with a directory, which is missing (cut off while it was written?)"
        ) from None
    except (OSError, EOFError, ValueError, NotImplementedError, RuntimeError) as error:
        raise TorchFileProblem(f"cannot be read: {error}") from None


def _read(stream: Any) -> TorchFile:
    names: set[str] = set()

    class Reader(pickle.Unpickler):
        def find_class(self, module: str, name: str) -> type:
            names.add(f"{module}.{name}")
            return type(name[:100] or "Inert", (Inert,), {"qualified": f"{module}.{name}"})

        def persistent_load(self, pid: Any) -> Any:
            return pid

    try:
        value = Reader(stream).load()
    except (
        pickle.UnpicklingError,
        AttributeError,
        IndexError,
        KeyError,
        TypeError,
        ValueError,
        EOFError,
        MemoryError,
        RecursionError,
    ) as error:
        raise TorchFileProblem(f"its data.pkl is damaged: {type(error).__name__}") from None
    return TorchFile(value, frozenset(names))


def mapping(value: Any) -> dict[Any, Any]:
    """A dictionary or an OrderedDict of a pickle; empty for anything else."""
    return value if isinstance(value, dict) else {}


def elements(value: Any) -> int:
    """How many elements a shape stands for: torch.Size, or a tensor of a pickle."""
    if not isinstance(value, Inert):
        return 0
    if value.qualified == "torch.Size":
        shape = value.args[0] if value.args else ()
    elif value.qualified.endswith("_rebuild_from_type_v2"):
        shape = value.args[2][2] if len(value.args) > 2 and isinstance(value.args[2], tuple) and len(value.args[2]) > 2 else ()
    elif "_rebuild_tensor" in value.qualified:
        shape = value.args[2] if len(value.args) > 2 else ()
    else:
        return elements(value.args[0]) if value.args else 0
    return math.prod(size for size in shape if isinstance(size, int)) if isinstance(shape, (tuple, list)) else 0
