"""A CPU that has fp16, or has not, whichever one is under the tests: DeepSpeed's accelerator answers what it is told to."""

from __future__ import annotations

import os
from pathlib import Path

HOOK = """\
import importlib.util, pathlib, runpy, sys

NAME = "deepspeed.accelerator.cpu_accelerator"

def tell(module):
    module.CPU_Accelerator.is_fp16_supported = lambda self: {fp16}

class Told:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name != NAME:
            return None
        sys.meta_path.remove(Told)
        spec = importlib.util.find_spec(name)
        run = spec.loader.exec_module

        def exec_module(module):
            run(module)
            tell(module)

        spec.loader.exec_module = exec_module
        return spec

if NAME in sys.modules:  # in a child that is forked (tests/warm_deepspeed.py)
    tell(sys.modules[NAME])
else:
    sys.meta_path.insert(0, Told)
for path in (pathlib.Path(entry, "sitecustomize.py") for entry in sys.path):
    if path.exists() and path != pathlib.Path(__file__):  # the one whose place this one has taken
        runpy.run_path(str(path))
        break
"""


def says(folder: Path, *, fp16: bool) -> str:
    """A PYTHONPATH with which DeepSpeed's accelerator for CPUs says this of fp16 in every Python that starts."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "sitecustomize.py").write_text(HOOK.replace("{fp16}", str(fp16)))
    return os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH"))))
