"""An interpreter that has imported torch, DeepSpeed, accelerate and transformers, and forks ranks of the long tests.

Dozens of jobs would spend most of their time on these imports. A rank is started as usual, by the launcher and the shim; its script begins
with `HAND_OVER`, which makes this process run the rest with the same arguments, environment, folder and streams.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
from tests.warm_deepspeed import run_program

READY = b"ready\n"
HAND_OVER = """\
import sys as _sys
if "deepspeed" not in _sys.modules:
    import json as _json, os as _os, socket as _socket
    _there = _socket.socket(_socket.AF_UNIX)
    _there.connect({path!r})
    _wanted = {{"words": _sys.argv, "environment": dict(_os.environ), "folder": _os.getcwd()}}
    _socket.send_fds(_there, [_json.dumps(_wanted).encode()], [0, 1, 2])
    _os._exit((_there.recv(1) or b"\\1")[0])
"""


@contextmanager
def imported(path: Path, beside: Sequence[str]) -> Iterator[str]:
    """Yield the beginning of a script that wants to be forked. `beside`: folders of packages."""
    environment = {**os.environ, "DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(beside)}
    words = [sys.executable, __file__, str(path)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd="/", env=environment) as process:
        assert process.stdout is not None
        try:
            assert any(line == READY for line in process.stdout), "importing them failed"  # DeepSpeed prints lines of its own before
            yield HAND_OVER.format(path=str(path))
        finally:
            process.kill()


def serve(path: str) -> None:
    """Fork a child for each connection, until this process is killed."""
    import json

    import accelerate  # noqa: F401
    import deepspeed
    from transformers import LlamaForCausalLM, Trainer  # noqa: F401

    deepspeed.ops.__dict__.setdefault("__compatible_ops__", {})  # plain gloo: ranks would compile collectives first, for minutes
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)
        server.listen(64)
        os.write(1, READY)
        while True:
            client, _ = server.accept()
            message, streams, _, _ = socket.recv_fds(client, 1 << 20, 3)
            if os.fork() == 0:
                run(client, json.loads(message), streams)
            client.close()
            for stream in streams:
                os.close(stream)


def run(client: socket.socket, wanted: dict[str, object], streams: list[int]) -> None:
    """Run a rank to its end."""
    status = 1
    try:
        run_program(client, wanted, streams)
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        client.sendall(bytes([status]))
        os._exit(status)


if __name__ == "__main__":
    serve(sys.argv[1])
