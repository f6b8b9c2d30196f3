"""Probe other hosts over ssh: the look-up programs are sent along, so that a host needs only Python 3.8.

One connection per host carries everything: the programs and pynvml's single file in, the facts out.
"""

from __future__ import annotations

import base64
import json
import sys
import zlib
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from dstui.base.dataclass import dataclass
from dstui.hosts.ssh import CONNECT_SECONDS, Failure, failure, late, python_command, ssh_command
from dstui.machine.child import HERE, Line, run_command
from dstui.machine.probe import machine_from
from dstui.machine.snapshot import Machine

AT_ONCE = 128
"""Parallel connections: many hosts take as long as the slowest one."""
GRACE = 5
"""Seconds after the deadline in which the remote program ends by itself."""

RECEIVER = """\
import base64, json, signal, sys, types, zlib
if sys.version_info < (3, 8):
    sys.exit("Python %d.%d is too old: 3.8 is needed" % sys.version_info[:2])
signal.alarm({seconds})
def tell(kind, value):
    if kind != "done":
        print(json.dumps([kind, value]), flush=True)
def load(name, text):
    module = sys.modules[name] = types.ModuleType(name)
    try:
        exec(compile(zlib.decompress(base64.b64decode(text)), name, "exec"), module.__dict__)
    except Exception:
        del sys.modules[name]
        raise
    module.emit = tell
    return module
programs = {programs!r}
load("look_host", programs["host"]).main()
tell("software", load("look_software", programs["software"]).facts())
try:
    import pynvml
except ImportError:
    if "pynvml" in programs:
        load("pynvml", programs["pynvml"])
if "extra" in programs:
    load("look_extra", programs["extra"]).report(json.loads({argument!r}))
load("look_nvml", programs["nvml"]).report([])
print(json.dumps(["done", None]), flush=True)
"""


@dataclass(frozen=True, slots=True)
class Program:
    """One more program to send: a file of plain Python 3.8 with a function `report(argument)` that prints its facts by `emit`."""

    path: Path
    argument: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class HostView:
    """The result for a host: its Machine, or why there is none. A Machine beside a failure holds what arrived before it."""

    host: str
    machine: Machine | None = None
    failure: Failure | None = None
    lines: tuple[Line, ...] = ()
    """All received lines, including those of an extra program."""


@cache
def _packed(path: Path) -> str:
    return base64.b64encode(zlib.compress(path.read_bytes(), 9)).decode()


def script(deadline: float, extra: Program | None = None) -> bytes:
    """Return the program that is sent to a host: about 110 kB of text, mostly pynvml."""
    files = {name: HERE / f"{name}.py" for name in ("host", "software", "nvml")}
    pynvml = find_spec("pynvml")
    if pynvml and pynvml.origin:
        files["pynvml"] = Path(pynvml.origin)
    if extra:
        files["extra"] = extra.path
    programs = {name: _packed(path) for name, path in files.items()}
    argument = json.dumps(extra.argument if extra else {})
    return RECEIVER.format(programs=programs, argument=argument, seconds=int(deadline) + GRACE).encode()


def probe_host(host: str, *, deadline: float = 10.0, python: str = sys.executable, extra: Program | None = None) -> HostView:
    """Probe one host. `python` is tried first, since the ranks will run under the interpreter of that path."""
    command = ssh_command(host, python_command(python, "python3", "python"), connect_seconds=min(CONNECT_SECONDS, deadline / 2))
    lines = run_command(command, deadline, stdin=script(deadline, extra))
    machine = machine_from(lines, lines, lines, f"host {host}") if lines[0][0] in ("host", "driver") else None
    return HostView(host, machine, _failure(host, lines[-1], deadline), tuple(lines))


def _failure(host: str, last: Line, deadline: float) -> Failure | None:
    kind, reported = last
    if kind == "late":
        return late(host, deadline)
    return failure(host, str(reported)) if kind == "failed" else None


def probe_hosts(hosts: Sequence[str], deadline: float) -> tuple[HostView, ...]:
    """Probe hosts in parallel and return them in the order of `hosts`. Takes as long as the slowest, at most the deadline."""
    if not hosts:
        return ()
    with ThreadPoolExecutor(min(len(hosts), AT_ONCE)) as pool:
        return tuple(pool.map(lambda host: probe_host(host, deadline=deadline), hosts))
