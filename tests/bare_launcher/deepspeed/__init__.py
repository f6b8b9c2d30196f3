"""A DeepSpeed package whose launcher starts without torch; tests put it first on PYTHONPATH (tests/conftest.py).

`python -m deepspeed.launcher.runner` and the `deepspeed.launcher.launch` that it starts import their package, and with it torch and all of
DeepSpeed: two seconds of CPU time each, although they only use a logger, the numactl command and the CPU accelerator. In these two
programs, and in those of tests that only use the launcher, this package takes its place: the installed runner.py, launch.py and what they
use run unchanged, modules that they import without using are stubs, and psutil is imported on first use. Every other program, above all
the ranks, gets the installed package.
"""

import sys
from functools import cache
from importlib import import_module
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType

LAUNCHERS = (["-m", "deepspeed.launcher.runner"], ["-u", "-m", "deepspeed.launcher.launch"])
ASKED = "# asks the launcher\n"
"""The first line of `python -c` programs of tests that only use the launcher."""

_here = Path(__file__).parents[1]
_installed = PathFinder.find_spec("deepspeed", [entry for entry in sys.path if Path(entry) != _here])
if _installed is None:
    raise ModuleNotFoundError("No module named 'deepspeed'", name="deepspeed")
__spec__, __file__, __path__ = _installed, _installed.origin, _installed.submodule_search_locations


def _stub_unused_modules():
    """Replace the modules that would import torch by stubs; `import torch` itself fails, as if it were not installed."""
    utils, of_torch, autotuning = (ModuleType(f"deepspeed.{name}") for name in ("utils", "utils.torch", "autotuning"))
    utils.__path__ = [str(Path(__path__[0]) / "utils")]
    of_torch.required_torch_version = lambda **_: False
    autotuning.Autotuner = None
    sys.modules |= {module.__name__: module for module in (utils, of_torch, autotuning)} | {"torch": ModuleType("torch")}
    psutil = sys.modules["psutil"] = ModuleType("psutil")
    psutil.__getattr__ = lambda name: getattr(_psutil(), name)
    from deepspeed.utils import logging, numa  # logging only asks for the version of torch

    sys.modules["torch"] = None
    utils.logger, utils.set_log_level_from_string, utils.get_numactl_cmd = (
        logging.logger,
        logging.set_log_level_from_string,
        numa.get_numactl_cmd,
    )


@cache
def _psutil():
    """Import and return the installed psutil."""
    del sys.modules["psutil"]
    return import_module("psutil")


_needs_launcher_only = any(word.startswith(ASKED) for word in sys.orig_argv[2:3])
if _needs_launcher_only or any(sys.orig_argv[1 : 1 + len(words)] == words for words in LAUNCHERS):
    _stub_unused_modules()
else:
    __spec__.loader.exec_module(sys.modules[__name__])
