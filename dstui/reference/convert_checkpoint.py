"""Run DeepSpeed's checkpoint tools with torch's own reader of untrusted files: `python convert_checkpoint.py MODULE ARGS…`.

The tools load with `weights_only=False`, which executes what a file names. TORCH_FORCE_WEIGHTS_ONLY_LOAD overrides that: torch then creates
only classes that it knows to be harmless, and those added below. Others end the tool with an error that names them. Run by file path as a
child process; imports nothing else of dstui.
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
"""Classes in the checkpoints of training runs that are harmless to create; the same as in dstui.checkpoints.torch_file."""


def enum_member(owner: Any, name: Any) -> Any:
    """Replace `getattr`, with which Python 3.11.0 to 3.11.3 pickles the members of an Enum. Reads nothing else."""
    if not (isinstance(owner, enum.EnumMeta) and isinstance(name, str) and name in owner.__members__):
        raise pickle.UnpicklingError(f"getattr of anything but the member of an Enum: {name!r:.80}")
    return owner.__members__[name]


enum_member.__module__, enum_member.__qualname__ = "builtins", "getattr"  # the name that torch looks up


def harmless() -> list[Any]:
    """Return the classes that a checkpoint may contain and that exist in this release."""
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
    os.environ["TORCH_FORCE_WEIGHTS_ONLY_LOAD"] = "1"  # torch reads it at each load, also in the tool's own processes
    gc.disable()  # an import makes no garbage, and searching for some takes a fifth of its time
    import torch

    gc.enable()
    torch.serialization.add_safe_globals(harmless())
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    del sys.argv[0]
    main(sys.argv[0])
