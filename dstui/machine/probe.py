"""Looks at this machine: three look-up programs side by side, each killed at its deadline."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor

from dstui.machine.assemble import machine_from
from dstui.machine.child import run_lookup
from dstui.machine.snapshot import Machine


def probe(deadline: float = 5.0, *, python: str = sys.executable, serials: bool = False) -> Machine:
    """Return the Machine as it is now. Blocks for at most `deadline` seconds and never raises; late facts are Unknown.

    `python` is the interpreter whose packages are looked at; serial numbers are left out unless asked for.
    """
    with ThreadPoolExecutor(3) as pool:
        nvml = pool.submit(run_lookup, "nvml", deadline, *(["--serials"] if serials else []))
        host = pool.submit(run_lookup, "host", deadline)
        software = pool.submit(run_lookup, "software", deadline, python=python)
        return machine_from(nvml.result(), host.result(), software.result(), "this machine")
