"""One interpreter of the test session that has DeepSpeed imported, and from which the children that ask it are forked.

dstui runs each program of `dstui/reference`, and the doctor's import of DeepSpeed, in an interpreter of its own, which imports torch and DeepSpeed
for two seconds before it answers; the tests start dozens, and some of their own. `tests/bare_launcher/sitecustomize.py` hands them to this
process: the same program is run with the same arguments, environment, folder and standard streams. A folder on PYTHONPATH that holds nothing
but a sitecustomize.py is obeyed by running that. Whoever has another environment, another interpreter or another user has an import of their
own, and so has everybody where tests run in one process (`-n0`).
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import threading
import traceback
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.whole_deepspeed import with_bare_launcher

VARIABLE = "DSTUI_TESTS_WARM"
"""Where its socket is."""
SAME, ALIKE = ("DS_", "TORCH", "CUDA", "PYTHON", "LD_", "OMP_"), ("TORCHINDUCTOR_CACHE_DIR",)
"""Beginnings of the names of variables that an import may depend on; those which torch sets where it is imported, and that change nothing."""


def start(socket_path: Path) -> None:
    """Start it for this process and whatever this process starts; it ends with this process, whose end closes its standard input."""
    os.environ[VARIABLE] = str(socket_path)
    environment = {**os.environ, "DS_ACCELERATOR": "cpu", "PYTHONPATH": with_bare_launcher()}
    subprocess.Popen([sys.executable, __file__, str(socket_path)], stdin=subprocess.PIPE, cwd="/", env=environment)


def decisive(environment: dict[str, str]) -> dict[str, str]:
    """The variables that have to be the same."""
    found = {name: value for name, value in environment.items() if name.startswith(SAME) and name not in ALIKE}
    obeyed = hooks(environment)
    path = os.pathsep.join(entry for entry in _path(environment) if entry not in obeyed)
    return {**found, "DS_ACCELERATOR": found.get("DS_ACCELERATOR", "cpu"), "PYTHONPATH": path, "PYTHONSAFEPATH": ""}


def hooks(environment: dict[str, str]) -> list[str]:
    """The folders on PYTHONPATH that hold nothing but a sitecustomize.py."""
    folders = [entry for entry in _path(environment) if Path(entry).is_dir()]
    return [entry for entry in folders if {path.name for path in Path(entry).iterdir()} - {"__pycache__"} == {"sitecustomize.py"}]


def _path(environment: dict[str, str]) -> list[str]:
    return environment.get("PYTHONPATH", "").split(os.pathsep)


def serve(path: str) -> None:
    """Answer until standard input ends: each connection is a child. Who comes before the import is done waits for it."""
    threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)
        server.listen(64)
        gc.disable()  # an import makes no garbage, and what is there before a fork is none of what comes after it
        import deepspeed.runtime.config  # noqa: F401

        gc.freeze()
        gc.enable()
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        while True:
            client, _ = server.accept()
            with client:
                message, streams, _, _ = socket.recv_fds(client, 1 << 20, 3)
                with contextlib.suppress(ValueError, OSError):
                    take(client, json.loads(message), streams)
                for stream in streams:
                    os.close(stream)


def take(client: socket.socket, wanted: dict[str, Any], streams: list[int]) -> None:
    """Fork a child where it would import the same; otherwise say no."""
    same = decisive(wanted["environment"]) == decisive(dict(os.environ)) and wanted["prefix"] == sys.prefix
    client.sendall(b"y" if same else b"n")
    if same and os.fork() == 0:
        status = 1
        try:
            become(client, wanted, streams)
            status = 0
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else int(end.code is not None)
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            with contextlib.suppress(OSError):
                client.sendall(bytes([status]))
            os._exit(status)


def become(client: socket.socket, wanted: dict[str, Any], streams: list[int]) -> None:
    """Run the program to its end, which is also that of the process whose place it takes."""
    os.setsid()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    sys.stdin = os.fdopen(os.dup(0), encoding="utf-8")
    os.environ.clear()
    os.environ.update(wanted["environment"])
    os.chdir(wanted["folder"])
    sys.argv = wanted["words"]
    threading.Thread(target=lambda: (client.recv(1), os._exit(1)), daemon=True).start()
    for folder in hooks(wanted["environment"]):
        runpy.run_path(f"{folder}/sitecustomize.py")
    if sys.argv[0] == "-c":
        exec(compile(sys.argv.pop(1), "<string>", "exec"), {"__name__": "__main__"})
        sys.stdout.flush()
    else:
        runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    serve(sys.argv[1])
