"""An interpreter that has imported DeepSpeed and forks children that run programs which need it.

Without it, each program of `dstui/reference`, the doctor's import of DeepSpeed and some programs of the tests would spend two seconds on
importing torch and DeepSpeed, dozens of times. `tests/bare_launcher/sitecustomize.py` sends such a program here: it runs with the same
arguments, environment, working folder and standard streams. Folders on PYTHONPATH that hold only a sitecustomize.py are honoured by
running that file. Programs with another interpreter, user or relevant environment import DeepSpeed themselves, and so does everything
under `-n0`.
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
from tests.launcher_path import with_bare_launcher

VARIABLE = "DSTUI_TESTS_WARM"
"""The environment variable with the path of the socket."""
SAME, ALIKE = ("DS_", "TORCH", "CUDA", "PYTHON", "LD_", "OMP_"), ("TORCHINDUCTOR_CACHE_DIR", "TORCH_EXTENSIONS_DIR")
"""Prefixes of variables that an import may depend on; two of them that do not matter: torch sets the first one itself at import, and reads
the second one when it loads an operation."""


def start(socket_path: Path) -> None:
    """Start the interpreter for this process and its children. It ends when this process ends, which closes its standard input."""
    os.environ[VARIABLE] = str(socket_path)
    environment = {**os.environ, "DS_ACCELERATOR": "cpu", "PYTHONPATH": with_bare_launcher()}
    subprocess.Popen([sys.executable, __file__, str(socket_path)], stdin=subprocess.PIPE, cwd="/", env=environment)


def relevant_variables(environment: dict[str, str]) -> dict[str, str]:
    """Return the variables that must be equal."""
    found = {name: value for name, value in environment.items() if name.startswith(SAME) and name not in ALIKE}
    obeyed = hooks(environment)
    path = os.pathsep.join(dict.fromkeys(entry for entry in _path(environment) if entry not in obeyed))
    return {**found, "DS_ACCELERATOR": found.get("DS_ACCELERATOR", "cpu"), "PYTHONPATH": path, "PYTHONSAFEPATH": ""}


def hooks(environment: dict[str, str]) -> list[str]:
    """Return the folders on PYTHONPATH that hold only a sitecustomize.py."""
    folders = [entry for entry in _path(environment) if Path(entry).is_dir()]
    return [entry for entry in folders if {path.name for path in Path(entry).iterdir()} - {"__pycache__"} == {"sitecustomize.py"}]


def _path(environment: dict[str, str]) -> list[str]:
    return environment.get("PYTHONPATH", "").split(os.pathsep)


def serve(path: str) -> None:
    """Serve until standard input closes; each connection becomes a child. Connections that arrive during the import wait for it."""
    threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)
        server.listen(64)
        gc.disable()  # an import creates no garbage, and objects that exist before a fork should not be visited after it
        import deepspeed.runtime.config  # noqa: F401

        gc.freeze()
        gc.enable()
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        while True:
            client, _ = server.accept()
            with client:
                message, streams, _, _ = socket.recv_fds(client, 1 << 20, 3)
                with contextlib.suppress(ValueError, OSError):
                    accept(client, json.loads(message), streams)
                for stream in streams:
                    os.close(stream)


def accept(client: socket.socket, wanted: dict[str, Any], streams: list[int]) -> None:
    """Fork a child if its import would be the same; otherwise refuse."""
    same = relevant_variables(wanted["environment"]) == relevant_variables(dict(os.environ)) and wanted["prefix"] == sys.prefix
    client.sendall(b"y" if same else b"n")
    if same and os.fork() == 0:
        status = 1
        try:
            run_program(client, wanted, streams)
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


def run_program(client: socket.socket, wanted: dict[str, Any], streams: list[int]) -> None:
    """Run the program; the process that handed it over ends when it does."""
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
