"""The software's facts as JSON lines on standard output: what the interpreter that runs this file has, importing none of it.

It runs as a child process (`PYTHON software.py`), so it answers for any interpreter: the one of the job too. Plain Python 3.8
without anything of dstui, so that it can be sent to another host as it is. Versions come from the packages' own metadata: importing
torch takes seconds. A path inside the home folder is written with ~, so that a snapshot names no user.

Lines: ["software", {...}], ["done", null].
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import sysconfig
from importlib import metadata, util
from pathlib import Path
from typing import Any

PACKAGES = ("torch", "deepspeed", "accelerate", "transformers", "mpi4py")
PROGRAMS = ("ssh", "pdsh", "mpirun", "srun", "numactl")
LIBRARIES = ("/usr/lib/x86_64-linux-gnu", "/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib", "/usr/lib/aarch64-linux-gnu")
AIO = ("libaio.so.1", "libaio.so.1t64")
FLAGS = ("CFLAGS", "CXXFLAGS", "CPPFLAGS")
"""What a compiler is given; DeepSpeed's builder hands CFLAGS on."""


def version_of(*names: str) -> str | None:
    """The version of the first distribution of these names that is installed."""
    found = (distribution.version for name in names for distribution in metadata.distributions(name=name))
    return next(found, None)


def tilde(path: str | None) -> str | None:
    """A path with ~ for the home folder."""
    home = os.path.expanduser("~")  # noqa: PTH111 - Path.home() raises where nobody knows the user
    return "~" + path[len(home) :] if path and home != "/" and path.startswith(home + os.sep) else path


def torch_build() -> dict[str, Any]:
    """What torch was built for, from the text of its version.py."""
    spec = util.find_spec("torch")
    if spec is None or not spec.submodule_search_locations:
        return {"torch_cuda": None, "torch_hip": None}
    try:
        text = Path(next(iter(spec.submodule_search_locations)), "version.py").read_text()
    except OSError as error:
        unreadable = {"unknown": f"torch/version.py: {error.strerror}"}
        return {"torch_cuda": unreadable, "torch_hip": unreadable}
    named = dict(re.findall(r"^(\w+)(?:\s*:[^=]+)?\s*=\s*'([^']*)'", text, re.M))
    return {"torch": named.get("__version__") or version_of("torch"), "torch_cuda": named.get("cuda"), "torch_hip": named.get("hip")}


def program(name: str) -> str | None:
    """Where a program is: beside the interpreter, as in a virtual environment, or on the PATH."""
    beside = str(Path(sys.executable).parent)
    return shutil.which(name, path=os.pathsep.join([beside, os.environ.get("PATH", os.defpath)]))


def folders_of(*variables: str) -> list[str]:
    """The folders that variables such as CPATH name."""
    return [folder for name in variables for folder in os.environ.get(name, "").split(os.pathsep) if folder]


def headers_of_libaio() -> bool:
    """Whether a compiler finds libaio.h: in its own folders, or in those that the environment names (a conda environment, a module)."""
    given = re.findall(r"(?:-I|-isystem)\s*(\S+)", " ".join(os.environ.get(name, "") for name in FLAGS))
    named = folders_of("CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH")
    return any(Path(folder, "libaio.h").exists() for folder in ("/usr/include", "/usr/local/include", *named, *given))


def toolkit() -> dict[str, Any]:
    """The CUDA toolkit: what $CUDA_HOME, nvcc or the usual place leads to."""
    home = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH")
    folders = [home and f"{home}/bin", *os.environ.get("PATH", os.defpath).split(os.pathsep), "/usr/local/cuda/bin"]
    nvcc = shutil.which("nvcc", path=os.pathsep.join(folder for folder in folders if folder))
    if not home and nvcc:
        home = str(Path(nvcc).resolve().parent.parent)
    return {"nvcc": tilde(nvcc), "cuda_home": tilde(home), "cuda_toolkit": toolkit_version(home)}


def toolkit_version(home: str | None) -> Any:
    """The toolkit's version, as its version.json says."""
    if home is None:
        return None
    try:
        return json.loads(Path(home, "version.json").read_text())["cuda"]["version"]
    except (OSError, ValueError, KeyError, TypeError):
        return {"unknown": f"{tilde(home)} has no version.json"}


def facts() -> dict[str, Any]:
    """Everything, as the snapshot's Software holds it."""
    headers = Path(sysconfig.get_paths()["include"], "Python.h")
    return {
        "python": ".".join(str(part) for part in sys.version_info[:3]),
        "python_path": tilde(sys.executable),
        **{name: version_of(name) for name in PACKAGES},
        **torch_build(),
        "pynvml": version_of("nvidia-ml-py"),
        "nccl": version_of("nvidia-nccl-cu13", "nvidia-nccl-cu12", "nvidia-nccl-cu11"),
        **toolkit(),
        "gxx": tilde(program("g++") or program("c++")),
        "ninja": tilde(program("ninja")),
        "python_headers": headers.exists(),
        "libaio": any(Path(folder, name).exists() for folder in (*LIBRARIES, *folders_of("LD_LIBRARY_PATH")) for name in AIO),
        "libaio_headers": headers_of_libaio(),
        **{name: tilde(program(name)) for name in PROGRAMS},
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(["software", facts()]) + "\n" + json.dumps(["done", None]) + "\n")
