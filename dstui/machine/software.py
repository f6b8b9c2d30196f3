"""Print the facts of the software as JSON lines: the packages of the interpreter that runs this file, without importing them.

It runs as a child process (`PYTHON software.py`), so that it answers for any interpreter, including the job's. It is plain Python 3.8
without imports of dstui, so that it can be sent to other hosts. Versions come from the metadata of the packages: importing torch takes
seconds. It imports little, since every start of dstui waits for it: importlib.metadata, pathlib and typing would double its time. Paths in
the home folder are written with ~, so that a snapshot names no user.

Lines: ["software", {...}], ["done", null].
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import sysconfig
from importlib import util

TYPE_CHECKING = False  # only type checkers import these modules
if TYPE_CHECKING:
    from typing import Any

PACKAGES = ("torch", "deepspeed", "accelerate", "transformers", "mpi4py")
NCCL = ("nvidia-nccl-cu13", "nvidia-nccl-cu12", "nvidia-nccl-cu11")
PROGRAMS = ("ssh", "pdsh", "mpirun", "srun", "numactl")
LIBRARIES = ("/usr/lib/x86_64-linux-gnu", "/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib", "/usr/lib/aarch64-linux-gnu")
AIO = ("libaio.so.1", "libaio.so.1t64")
FLAGS = ("CFLAGS", "CXXFLAGS", "CPPFLAGS")
"""Variables with compiler options; DeepSpeed's builder passes CFLAGS on."""
METADATA = {".dist-info": "METADATA", ".egg-info": "PKG-INFO", ".egg": "EGG-INFO/PKG-INFO"}
"""Suffix of a distribution's folder -> its file with the version, as importlib.metadata reads it."""


def read(*parts: str) -> str:
    """Return the text of a file. Raises OSError."""
    with open(os.path.join(*parts), encoding="utf-8", errors="replace") as file:
        return file.read()


def installed() -> dict[str, str]:
    """Return the metadata file of each distribution by name, in lower case with _ between words.

    Of several with one name, return the one that is imported
    (https://packaging.python.org/en/latest/specifications/recording-installed-packages).
    """
    found: dict[str, str] = {}
    for folder in sys.path:
        try:
            entries = os.listdir(folder or ".")
        except OSError:
            continue
        for entry in entries:
            stem, kind = os.path.splitext(entry)
            if kind in METADATA:
                name = re.sub(r"[-_.]+", "_", stem.partition("-")[0]).lower()
                found.setdefault(name, os.path.join(folder, entry, METADATA[kind]))
    return found


def versions(*names: str) -> dict[str, str | None]:
    """Return the version of each distribution (lower case, words separated by -); None if it is not installed."""
    files = installed()
    return {name: version_in(files.get(name.replace("-", "_"), "")) for name in names}


def version_in(file: str) -> str | None:
    """Return the version in a distribution's metadata; None if it cannot be read."""
    try:
        match = re.search(r"^Version:[ \t]*(\S+)", read(file), re.M | re.I)
    except OSError:
        return None
    return match[1] if match else None


def tilde(path: str | None) -> str | None:
    """Abbreviate the home folder in a path to ~."""
    home = os.path.expanduser("~")
    return "~" + path[len(home) :] if path and home != "/" and path.startswith(home + os.sep) else path


def torch_build() -> dict[str, Any]:
    """Return torch's version and the CUDA or ROCm it was built for, from its version.py."""
    spec = util.find_spec("torch")
    if spec is None or not spec.submodule_search_locations:
        return {"torch_cuda": None, "torch_hip": None}
    try:
        text = read(next(iter(spec.submodule_search_locations)), "version.py")
    except OSError as error:
        unreadable = {"unknown": f"torch/version.py: {error.strerror}"}
        return {"torch_cuda": unreadable, "torch_hip": unreadable}
    named = dict(re.findall(r"^(\w+)(?:\s*:[^=]+)?\s*=\s*'([^']*)'", text, re.M))
    version = {"torch": named["__version__"]} if named.get("__version__") else {}
    return {**version, "torch_cuda": named.get("cuda"), "torch_hip": named.get("hip")}


def program(name: str) -> str | None:
    """Return the path of a program: beside the interpreter, as in a virtual environment, or on the PATH."""
    beside = os.path.dirname(sys.executable)
    return shutil.which(name, path=os.pathsep.join([beside, os.environ.get("PATH", os.defpath)]))


def folders_of(*variables: str) -> list[str]:
    """Return the folders in variables such as CPATH."""
    return [folder for name in variables for folder in os.environ.get(name, "").split(os.pathsep) if folder]


def has(folder: str, *names: str) -> bool:
    """Return whether a folder contains a file of one of these names."""
    return any(os.path.exists(os.path.join(folder, name)) for name in names)


def headers_of_libaio() -> bool:
    """Return whether a compiler would find libaio.h, in its own folders or in those of the environment (conda, modules)."""
    given = re.findall(r"(?:-I|-isystem)\s*(\S+)", " ".join(os.environ.get(name, "") for name in FLAGS))
    named = folders_of("CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH")
    return any(has(folder, "libaio.h") for folder in ("/usr/include", "/usr/local/include", *named, *given))


def toolkit() -> dict[str, Any]:
    """Return the CUDA toolkit found by $CUDA_HOME, nvcc or the usual folder."""
    home = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH")
    folders = [home and f"{home}/bin", *os.environ.get("PATH", os.defpath).split(os.pathsep), "/usr/local/cuda/bin"]
    nvcc = shutil.which("nvcc", path=os.pathsep.join(folder for folder in folders if folder))
    if not home and nvcc:
        home = os.path.dirname(os.path.dirname(os.path.realpath(nvcc)))
    return {"nvcc": tilde(nvcc), "cuda_home": tilde(home), "cuda_toolkit": toolkit_version(home)}


def toolkit_version(home: str | None) -> Any:
    """Return the toolkit's version from its version.json."""
    if home is None:
        return None
    try:
        return json.loads(read(home, "version.json"))["cuda"]["version"]
    except (OSError, ValueError, KeyError, TypeError):
        return {"unknown": f"{tilde(home)} has no version.json"}


def facts() -> dict[str, Any]:
    """Return all facts in the form of the snapshot's Software."""
    found = versions(*PACKAGES, "nvidia-ml-py", *NCCL)
    return {
        "python": ".".join(str(part) for part in sys.version_info[:3]),
        "python_path": tilde(sys.executable),
        **{name: found[name] for name in PACKAGES},
        **torch_build(),
        "pynvml": found["nvidia-ml-py"],
        "nccl": next((found[name] for name in NCCL if found[name]), None),
        **toolkit(),
        "gxx": tilde(program("g++") or program("c++")),
        "ninja": tilde(program("ninja")),
        "python_headers": has(sysconfig.get_paths()["include"], "Python.h"),
        "libaio": any(
            os.path.exists(os.path.join(folder, name)) for folder in (*LIBRARIES, *folders_of("LD_LIBRARY_PATH")) for name in AIO
        ),
        "libaio_headers": headers_of_libaio(),
        **{name: tilde(program(name)) for name in PROGRAMS},
    }


def main() -> None:
    """Run as a program."""
    sys.stdout.write(json.dumps(["software", facts()]) + "\n" + json.dumps(["done", None]) + "\n")


if __name__ == "__main__":
    main()
