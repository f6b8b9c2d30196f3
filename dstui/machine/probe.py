"""Probe this machine: three look-up programs in parallel, each killed at its deadline."""

from __future__ import annotations

import sys
from threading import Thread

from dstui.machine.assemble import machine_from
from dstui.machine.child import Line, run_lookup
from dstui.machine.snapshot import Machine


def probe(deadline: float = 5.0, *, python: str = sys.executable, serials: bool = False) -> Machine:
    """Return the Machine as it is now. Blocks for at most `deadline` seconds and never raises; late facts are Unknown.

    The packages are those of the interpreter `python`. Serial numbers are left out by default.
    """
    found: dict[str, list[Line]] = {}

    def ask(program: str, *args: str, python: str = sys.executable) -> None:
        found[program] = run_lookup(program, deadline, *args, python=python)

    threads = [  # concurrent.futures would import logging, which takes a twentieth of dstui's start
        Thread(target=ask, args=("nvml", *(["--serials"] if serials else []))),
        Thread(target=ask, args=("host",)),
        Thread(target=ask, args=("software",), kwargs={"python": python}),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return machine_from(found["nvml"], found["host"], found["software"], "this machine")
