"""Make DeepSpeed's CPU accelerator report fp16 support or the lack of it, whatever CPU the tests run on."""

from __future__ import annotations

import os
from pathlib import Path

HOOK = """\
import importlib.util, pathlib, runpy, sys

NAME = "deepspeed.accelerator.cpu_accelerator"

def patch(module):
    module.CPU_Accelerator.is_fp16_supported = lambda self: {fp16}

class PatchingFinder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name != NAME:
            return None
        sys.meta_path.remove(PatchingFinder)
        spec = importlib.util.find_spec(name)
        run = spec.loader.exec_module

        def exec_module(module):
            run(module)
            patch(module)

        spec.loader.exec_module = exec_module
        return spec

if NAME in sys.modules:  # in a child that is forked (tests/warm_deepspeed.py)
    patch(sys.modules[NAME])
else:
    sys.meta_path.insert(0, PatchingFinder)
for path in (pathlib.Path(entry, "sitecustomize.py") for entry in sys.path):
    if path.exists() and path != pathlib.Path(__file__):  # the one whose place this one has taken
        runpy.run_path(str(path))
        break
"""


def fp16_pythonpath(folder: Path, *, fp16: bool) -> str:
    """Return a PYTHONPATH under which DeepSpeed's CPU accelerator answers `fp16` to is_fp16_supported() in every new Python process."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "sitecustomize.py").write_text(HOOK.replace("{fp16}", str(fp16)))
    return os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH"))))
