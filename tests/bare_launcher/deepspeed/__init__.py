"""DeepSpeed, whose launcher starts without torch; for the tests, first on PYTHONPATH (tests/conftest.py).

`python -m deepspeed.launcher.runner` and the `deepspeed.launcher.launch` that it starts import the package they lie in, and with it torch
and all of DeepSpeed: two seconds of processor time each, of which they use a logger, the numactl command and the accelerator for CPUs. In
these two programs, and in those that only ask them, the package is this one: the installed runner.py, launch.py and whatever they use are run
as they are, what they only import is not there, and psutil is imported when it is used. In every other program, above all in the ranks, it is
the installed package itself.
"""

import sys
from functools import cache
from importlib import import_module
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType

LAUNCHERS = (["-m", "deepspeed.launcher.runner"], ["-u", "-m", "deepspeed.launcher.launch"])
ASKED = "# asks the launcher\n"
"""The beginning of a program (`python -c`) of a test which wants nothing else of DeepSpeed."""

_here = Path(__file__).parents[1]
_installed = PathFinder.find_spec("deepspeed", [entry for entry in sys.path if Path(entry) != _here])
if _installed is None:
    raise ModuleNotFoundError("No module named 'deepspeed'", name="deepspeed")
__spec__, __file__, __path__ = _installed, _installed.origin, _installed.submodule_search_locations


def _only_what_the_launcher_uses():
    """Modules in the place of those that would import torch; `import torch` itself fails, as where there is none."""
    utils, of_torch, autotuning = (ModuleType(f"deepspeed.{name}") for name in ("utils", "utils.torch", "autotuning"))
    utils.__path__ = [str(Path(__path__[0]) / "utils")]
    of_torch.required_torch_version = lambda **_: False
    autotuning.Autotuner = None
    sys.modules |= {module.__name__: module for module in (utils, of_torch, autotuning)} | {"torch": ModuleType("torch")}
    psutil = sys.modules["psutil"] = ModuleType("psutil")
    psutil.__getattr__ = lambda name: getattr(_psutil(), name)
    from deepspeed.utils import logging, numa  # logging only asks which torch there is

    sys.modules["torch"] = None
    utils.logger, utils.set_log_level_from_string, utils.get_numactl_cmd = (
        logging.logger,
        logging.set_log_level_from_string,
        numa.get_numactl_cmd,
    )


@cache
def _psutil():
    """The installed one."""
    del sys.modules["psutil"]
    return import_module("psutil")


_asked = any(word.startswith(ASKED) for word in sys.orig_argv[2:3])
if _asked or any(sys.orig_argv[1 : 1 + len(words)] == words for words in LAUNCHERS):
    _only_what_the_launcher_uses()
else:
    __spec__.loader.exec_module(sys.modules[__name__])
