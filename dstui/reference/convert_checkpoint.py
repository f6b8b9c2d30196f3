"""DeepSpeed's tools for checkpoints, with torch's own reader of untrusted files: `python convert_checkpoint.py MODULE ARGS…`.

The tools load with `weights_only=False`, which executes what a file names. TORCH_FORCE_WEIGHTS_ONLY_LOAD overrides that: torch then makes
only what it knows to be harmless, and what is added below; anything else ends the tool with a sentence that names it.
Run by file path as a child process; imports nothing else of dstui.
"""

from __future__ import annotations

import argparse
import enum
import gc
import importlib
import os
import pathlib
import pickle
import runpy
import sys
from contextlib import suppress
from typing import Any

RECORDS = {
    "deepspeed.runtime.fp16.loss_scaler": ("LossScaler", "DynamicLossScaler"),
    "deepspeed.runtime.zero.config": ("ZeroStageEnum",),
    "deepspeed.utils.tensor_fragment": ("fragment_address",),
    "numpy": ("ndarray", "dtype"),
    "numpy.core.multiarray": ("_reconstruct", "scalar"),
    "numpy._core.multiarray": ("_reconstruct", "scalar"),
}
"""Classes that the checkpoints of a training run hold and that do nothing when they are made; those of dstui.checkpoints.torch_file."""


def enum_member(owner: Any, name: Any) -> Any:
    """Stand in for `getattr`, by which Python 3.11.0 to 3.11.3 pickles the members of an Enum. Reads nothing else."""
    if not (isinstance(owner, enum.EnumMeta) and isinstance(name, str) and name in owner.__members__):
        raise pickle.UnpicklingError(f"getattr of anything but the member of an Enum: {name!r:.80}")
    return owner.__members__[name]


enum_member.__module__, enum_member.__qualname__ = "builtins", "getattr"  # the name that torch looks for


def harmless() -> list[Any]:
    """Return the classes that a checkpoint may contain, as far as this release has them."""
    found: list[Any] = [argparse.Namespace, pathlib.PosixPath, pathlib.PurePosixPath, enum_member]
    for module, names in RECORDS.items():
        with suppress(ImportError):
            loaded = importlib.import_module(module)
            found += [getattr(loaded, name) for name in names if hasattr(loaded, name)]
    with suppress(ImportError):
        import numpy

        found += [type(numpy.dtype(kind)) for kind in ("float64", "float32", "int64", "uint32", "bool")]
    return found


def main(module: str) -> None:
    """Run the tool in this process."""
    os.environ["TORCH_FORCE_WEIGHTS_ONLY_LOAD"] = "1"  # torch asks for it at each load, also in the tool's own processes
    gc.disable()  # an import makes no garbage, and looking for some takes a fifth of it
    import torch

    gc.enable()
    torch.serialization.add_safe_globals(harmless())
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    del sys.argv[0]
    main(sys.argv[0])
