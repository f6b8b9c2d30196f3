"""Read a file of torch.save without torch and without trusting it: every object in it becomes an inert record.

The file is a zip; its `data.pkl` is a pickle in which tensors name their storages. Unpickling calls what the pickle names. Here every name
becomes an inert class, so that nothing is imported or called. `names` has what torch.load would import.
"""

from __future__ import annotations

import os
import pickle
import re
import zipfile
from _compat_pickle import IMPORT_MAPPING, NAME_MAPPING
from collections.abc import Iterable
from dataclasses import field
from pathlib import Path
from typing import IO, Any, ClassVar

from dstui.base.dataclass import dataclass
from dstui.base.regular_files import open_regular
from dstui.base.zips import open_member, open_zip

MAX_PICKLE_BYTES = 32 << 20
"""Bytes of a data.pkl that are read. Names and shapes of a hundred thousand tensors take less, and each byte may become an object."""
MAX_STEPS = 4_000_000
"""Instructions of a pickle that are executed, each of which may make an object: a tensor takes about 35, but 31 KB of a zip can contain 31
million."""
MAX_NAMES = 1000
"""Classes that one pickle may name. A checkpoint names about twenty."""
LONGEST_NAME = 500
MAX_DIMENSIONS, MAX_ELEMENTS = 64, 1 << 63
"""torch's own limits of a tensor."""
ALLOWED = re.compile(
    r"collections\.(OrderedDict|defaultdict|deque)|builtins\.(set|frozenset|slice|complex|list|dict|tuple|int|float|bool|str)"
    r"|torch\.(\w+Storage|Size|Tensor|device|dtype|float\w*|bfloat16|int\w+|bool|Generator)"
    r"|torch\._utils\._rebuild_(tensor|tensor_v2|tensor_v3|parameter|parameter_with_state|device_tensor_from_numpy|sparse_tensor|qtensor)"
    r"|torch\._tensor\._rebuild_from_type_v2|torch\.nn\.parameter\.Parameter|torch\.storage\.(Untyped|Typed)Storage|torch\.serialization\._get_layout"
    r"|numpy\.(ndarray|dtype|core\.multiarray\.(_reconstruct|scalar)|_core\.multiarray\.(_reconstruct|scalar))"
    r"|deepspeed\.runtime\.fp16\.loss_scaler\.(Dynamic)?LossScaler|deepspeed\.runtime\.zero\.config\.ZeroStageEnum"
    r"|deepspeed\.utils\.tensor_fragment\.fragment_address|argparse\.Namespace|pathlib\.(Pure)?(Posix)?Path|_codecs\.encode"
)
"""Names in the checkpoints of training runs, each in full: a pickle may also name an attribute of an attribute
(`deepspeed.runtime.engine.os.system`). Any other name may be a program."""
GETATTR = "builtins.getattr"
ENUMS = {
    "deepspeed.runtime.zero.config.ZeroStageEnum": {"disabled": 0, "optimizer_states": 1, "gradients": 2, "weights": 3, "max_stage": 3},
}
"""Members of the Enum classes among these names. Python 3.11.0 to 3.11.3 pickle one as `getattr(Class, 'name')`, others as `Class(value)`.
"""


class TorchFileProblem(Exception):
    """The file cannot be read as a file of torch.save. Holds a sentence."""


class Inert(dict[Any, Any]):
    """An inert object of a pickle: the name of its class, its constructor arguments and its state.

    It is a dictionary, since pickles fill an OrderedDict item by item, and hashable, since they may use any object as a key.
    """

    qualified = ""
    args: tuple[Any, ...]
    state: Any

    def __new__(cls, *args: Any, **_keywords: Any) -> Inert:
        made = super().__new__(cls)
        made.args, made.state = args, None
        return made

    def __init__(self, *_args: Any, **_keywords: Any) -> None:
        super().__init__()

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def append(self, item: Any) -> None:
        """Accept an item like a list."""

    def extend(self, items: Any) -> None:
        """Accept items like a list."""

    def add(self, item: Any) -> None:
        """Accept an item like a set."""

    def __hash__(self) -> int:  # type: ignore[override]  # typeshed says of a dictionary that it has none
        return id(self)


@dataclass(frozen=True, slots=True)
class TorchFile:
    """The values of a file."""

    value: Any
    names: frozenset[str] = field(default_factory=frozenset)
    """A function that torch.load would import and call: `collections.OrderedDict`."""

    @property
    def strange(self) -> list[str]:
        """The names in the pickle that no checkpoint of a training run contains."""
        return sorted(name for name in self.names if not ALLOWED.fullmatch(name))


def read_torch_file(path: Path) -> TorchFile:
    """Read the values of a file. Raises TorchFileProblem, also if the file is truncated."""
    try:
        with (
            os.fdopen(open_regular(path.resolve()), "rb") as file,
            open_zip(file) as archive,
            open_member(archive, _pickle_in(archive)) as stream,
        ):
            return _read(stream)
    except zipfile.BadZipFile as error:
        raise TorchFileProblem(
            "incomplete: a file of torch.save ends with a directory, which is missing (cut off while it was written?)"
            if "File is not a zip file" in str(error)
            else f"damaged: {error}"
        ) from None
    except (OSError, EOFError, ValueError, NotImplementedError, RuntimeError) as error:  # zipfile raises these for encrypted members
        raise TorchFileProblem(f"cannot be read: {error}") from None


def _pickle_in(archive: zipfile.ZipFile) -> zipfile.ZipInfo:
    """Return the only data.pkl. torch takes the first match regardless of case: of two, it might read the other."""
    members = archive.infolist()
    found = [member for member in members if member.filename.lower().endswith("data.pkl")]
    if not found:
        raise TorchFileProblem("a zip that torch.save did not write: it has no data.pkl")
    if len(found) > 1:
        raise TorchFileProblem(f"it has {len(found)} data.pkl: torch.save writes one")
    if any(member.filename.lower().endswith("constants.pkl") for member in members):
        raise TorchFileProblem("it holds a TorchScript program, which no checkpoint does")
    if found[0].file_size > MAX_PICKLE_BYTES:
        raise TorchFileProblem(f"its data.pkl has {found[0].file_size / 2**20:,.0f} MiB: no checkpoint's has")
    return found[0]


PYTHON_UNPICKLER: Any = pickle._Unpickler
"""Any, since typeshed lacks most of its attributes."""


class _Memo(dict[int, Any]):
    """The memo of a pickle. It counts how often `getattr` is pushed: from the memo, by name or by DUP."""

    def __init__(self, getattr_: type[Inert]) -> None:
        super().__init__()
        self.getattr, self.pushed = getattr_, 0

    def __getitem__(self, index: int) -> Any:
        value = super().__getitem__(index)
        self.pushed += value is self.getattr
        return value


class _Reader(PYTHON_UNPICKLER):  # type: ignore[misc]  # of type Any, see above
    """The pure Python unpickler. The C version allocates what a pickle merely announces: gigabytes for an index of its memo."""

    dispatch: ClassVar[dict[int, Any]] = {code: load for code, load in PYTHON_UNPICKLER.dispatch.items() if code != pickle.BYTEARRAY8[0]}

    def __init__(self, stream: IO[bytes]) -> None:
        super().__init__(stream)
        self.classes: dict[str, type[Inert]] = {}
        self.getattr = type("Named", (Inert,), {"qualified": GETATTR})
        self.memo = _Memo(self.getattr)
        self.members_read = 0

    @property
    def names(self) -> frozenset[str]:
        """The names in the pickle; `getattr` only if it does more than read members of `ENUMS`.

        Counting is enough: each push of `getattr` is either used up by reading a member, or used for something else.
        """
        data = self.memo.pushed == self.members_read
        return frozenset(name for name in self.classes if name != GETATTR or not data)

    def load(self) -> Any:
        """Load as pickle does, with a limit on the steps."""
        self._unframer = pickle._Unframer(self._file_read, self._file_readline)  # type: ignore[attr-defined]
        self.read, self.readline, self.readinto = self._unframer.read, self._unframer.readline, self._unframer.readinto
        self.metastack: list[Any] = []
        self.stack: list[Any] = []
        self.append = self.stack.append
        try:
            for _step in range(MAX_STEPS):
                if not (key := self.read(1)):
                    raise EOFError
                self.dispatch[key[0]](self)
        except pickle._Stop as end:  # type: ignore[attr-defined]
            return end.value
        raise TorchFileProblem("its data.pkl is larger than any checkpoint's")

    def find_class(self, module: str, name: str) -> type[Inert]:
        if self.proto < 3:  # names of Python 2, translated as the unpickler does
            module, name = NAME_MAPPING.get((module, name), (IMPORT_MAPPING.get(module, module), name))
        qualified = f"{module}.{name}"
        if len(self.classes) > MAX_NAMES or len(qualified) > LONGEST_NAME:
            raise pickle.UnpicklingError("it names more classes than any checkpoint")
        if qualified == GETATTR:
            self.memo.pushed += 1
            return self.classes.setdefault(qualified, self.getattr)
        return self.classes.setdefault(qualified, type("Named", (Inert,), {"qualified": qualified}))

    def load_reduce(self) -> None:
        if len(self.stack) > 1 and self.stack[-2] is self.getattr and (member := _member(self.stack[-1])) is not None:
            self.members_read += 1
            self.stack[-2:] = [member]
        else:
            super().load_reduce()

    def load_dup(self) -> None:
        self.memo.pushed += self.stack[-1] is self.getattr
        super().load_dup()

    def persistent_load(self, pid: Any) -> Any:
        return pid

    def _check_keys(self, keys: Iterable[Any]) -> None:
        """Check keys before they are hashed: nested tuples that repeat a tuple can take exponential time."""
        for key in keys:
            if isinstance(key, tuple) and any(isinstance(part, tuple) for part in key):
                raise pickle.UnpicklingError("a key of nested tuples")

    def load_setitem(self) -> None:
        self._check_keys(self.stack[-2:-1])
        super().load_setitem()

    def load_setitems(self) -> None:
        self._check_keys(self.stack[::2])
        super().load_setitems()

    def load_dict(self) -> None:
        self._check_keys(self.stack[::2])
        super().load_dict()

    def load_additems(self) -> None:
        self._check_keys(self.stack)
        super().load_additems()

    def load_frozenset(self) -> None:
        self._check_keys(self.stack)
        super().load_frozenset()

    dispatch |= {
        pickle.REDUCE[0]: load_reduce,
        pickle.DUP[0]: load_dup,
        pickle.SETITEM[0]: load_setitem,
        pickle.SETITEMS[0]: load_setitems,
        pickle.DICT[0]: load_dict,
        pickle.ADDITEMS[0]: load_additems,
        pickle.FROZENSET[0]: load_frozenset,
    }


def _member(args: Any) -> Inert | None:
    """Return the Enum member that `getattr(*args)` reads, as `Class(value)` creates it; None for other arguments."""
    if not isinstance(args, tuple) or len(args) != 2:
        return None
    owner, name = args
    if not (isinstance(owner, type) and issubclass(owner, Inert) and isinstance(name, str)):
        return None
    value = ENUMS.get(owner.qualified, {}).get(name)
    return None if value is None else owner(value)


DAMAGED = (
    AttributeError,
    EOFError,
    IndexError,
    KeyError,
    MemoryError,
    OverflowError,
    RecursionError,
    TypeError,
    ValueError,
    pickle.UnpicklingError,
)


def _read(stream: IO[bytes]) -> TorchFile:
    reader = _Reader(stream)
    try:
        value = reader.load()
    except DAMAGED as error:
        raise TorchFileProblem(f"its data.pkl is damaged: {type(error).__name__}") from None
    return TorchFile(value, reader.names)


def as_mapping(value: Any) -> dict[Any, Any]:
    """Return a dictionary or OrderedDict of a pickle; empty for other values."""
    return value if isinstance(value, dict) else {}


def count_elements(value: Any) -> int:
    """Return the number of elements of a shape (torch.Size, or a tensor of a pickle); 0 for invalid values."""
    shape = _shape(value)
    if not isinstance(shape, (tuple, list)) or len(shape) > MAX_DIMENSIONS:
        return 0
    count = 1
    for size in shape:
        if not isinstance(size, int) or not 0 <= size * count < MAX_ELEMENTS:
            return 0
        count *= size
    return count


def _shape(value: Any) -> Any:
    """Return the shape in the constructor arguments of an object; None if it has none."""
    for _wrapped in range(8):  # a Parameter wraps a tensor
        if not isinstance(value, Inert) or not value.args:
            return None
        if value.qualified == "torch.Size":
            return value.args[0]
        if value.qualified.endswith("_rebuild_from_type_v2"):
            made_of = value.args[2] if len(value.args) > 2 else ()
            return made_of[2] if isinstance(made_of, tuple) and len(made_of) > 2 else None
        if "_rebuild_tensor" in value.qualified:
            return value.args[2] if len(value.args) > 2 else None
        value = value.args[0]
    return None
