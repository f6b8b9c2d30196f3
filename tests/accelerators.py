"""A CPU that has fp16, or has not, whichever one is under the tests: DeepSpeed's accelerator answers what it is told to."""

from __future__ import annotations

from pathlib import Path

HOOK = """\
import importlib.util, sys

class Told:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name != "deepspeed.accelerator.cpu_accelerator":
            return None
        sys.meta_path.remove(Told)
        spec = importlib.util.find_spec(name)
        run = spec.loader.exec_module

        def exec_module(module):
            run(module)
            module.CPU_Accelerator.is_fp16_supported = lambda self: {fp16}

        spec.loader.exec_module = exec_module
        return spec

sys.meta_path.insert(0, Told)
"""


def says(folder: Path, *, fp16: bool) -> str:
    """A folder for PYTHONPATH, with which DeepSpeed's accelerator for CPUs says this of fp16 in every Python that starts."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "sitecustomize.py").write_text(HOOK.replace("{fp16}", str(fp16)))
    return str(folder)
