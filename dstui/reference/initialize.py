"""`deepspeed.initialize` as a service: a tiny model on CPU ranks, one configuration per line in, one verdict per line out.

Run by file path with the interpreter of the ranks; imports nothing else of dstui. DeepSpeed is imported once, and the ranks for every
question are forked from there (a second each instead of ten). After its import it prints
    {"ready": true, "version": "0.19.8", "types": {"fp16": false, "bf16": true}}
and then answers each line of standard input
    {"id": 1, "config": {…}, "world_size": 2, "steps": 2}        ("optimizer": true passes one of the script's to initialize)
with
    {"id": 1, "ok": false, "when": "initialize", "kind": "AssertionError", "message": "…"}
where `when` is parse, initialize or run.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import select
import signal
import socket
import sys
import time
import traceback
from typing import Any

os.environ.setdefault("DS_ACCELERATOR", "cpu")
os.environ.setdefault("OMP_NUM_THREADS", "1")
DEADLINE, BUILDING = 120.0, 600.0
"""Seconds for one question, and for one whose ranks compile an op: killed before its end, a build would begin anew with each question."""
POLL = 1.0
GRACE = 3.0
"""Seconds for the other ranks after one has failed."""
WIDTH = 32


def free_port() -> int:
    """Return a port without a listener."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def train(request: dict[str, Any], moment: list[str]) -> None:
    """Run a rank: parse, initialize, a few steps. `moment` records how far it got."""
    import deepspeed
    import torch
    from deepspeed.runtime.config import DeepSpeedConfig

    torch.manual_seed(0)
    torch.set_num_threads(1)
    deepspeed.init_distributed(dist_backend="gloo", verbose=False)
    DeepSpeedConfig(json.loads(json.dumps(request["config"])))
    moment[0] = "initialize"
    model = torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU(), torch.nn.Linear(WIDTH, WIDTH))
    own = torch.optim.AdamW(model.parameters(), lr=1e-3) if request.get("optimizer") else None
    engine, *_ = deepspeed.initialize(model=model, config=request["config"], model_parameters=model.parameters(), optimizer=own)
    moment[0] = "run"
    for _ in range(int(request.get("steps", 0))):
        batch = torch.randn(4, WIDTH, dtype=next(model.parameters()).dtype)
        loss = engine(batch).square().mean()
        engine.backward(loss)
        engine.step()


def rank(number: int, ranks: int, port: int, request: dict[str, Any], pipe: int) -> None:
    """Run one rank in a process of its own, and write its verdict to the pipe."""
    place = {"RANK": number, "LOCAL_RANK": number, "WORLD_SIZE": ranks, "LOCAL_SIZE": ranks, "CROSS_RANK": 0, "CROSS_SIZE": 1}
    os.environ.update({name: str(value) for name, value in place.items()}, MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    moment, answer = ["parse"], {"ok": True, "when": None, "kind": None, "message": ""}
    try:
        train(request, moment)
    except BaseException as error:  # anything that ends a rank is its verdict
        where = traceback.extract_tb(error.__traceback__)[-1]
        text = str(error) or f"at {where.filename.rpartition('/site-packages/')[2]}:{where.lineno}"
        answer = {"ok": False, "when": moment[0], "kind": type(error).__name__, "message": text[:4000]}
    os.write(pipe, (json.dumps(answer) + "\n").encode()[:60000])
    os._exit(0)


def validate(request: dict[str, Any]) -> dict[str, Any]:
    """Fork the ranks, collect their verdicts, and leave no process behind."""
    ranks, port = int(request.get("world_size") or 1), free_port()
    readers, children = [], []
    for number in range(ranks):
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            os.setpgid(0, 0)
            with contextlib.suppress(BaseException):
                rank(number, ranks, port, request, writer)
            os._exit(1)
        os.close(writer)
        readers.append(reader)
        children.append(child)
    answers = gather(readers, children)
    held = [path for child in children for path in build_locks(child)]
    for child in children:
        with contextlib.suppress(OSError):
            os.killpg(child, signal.SIGKILL)
        with contextlib.suppress(OSError):
            os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    forget(port, held)
    failed = [answer for answer in answers if not answer["ok"]]
    first = next((answer for answer in failed if answer["kind"] not in (None, "RuntimeError")), failed[0] if failed else None)
    verdict = first or {"ok": len(answers) == ranks, "when": None, "kind": None, "message": ""}
    if not failed and len(answers) < ranks:
        verdict = {"ok": False, "when": "initialize", "kind": "NoAnswer", "message": "a rank died, or did not answer in time"}
    return {"id": request.get("id"), **verdict}


def gather(readers: list[int], children: list[int]) -> list[dict[str, Any]]:
    """Collect the verdicts. Ranks that compile have longer; those that hang after another has failed get a short time."""
    answers: list[dict[str, Any]] = []
    waiting, began = list(readers), time.monotonic()
    until = began + DEADLINE
    texts = dict.fromkeys(readers, b"")
    while waiting:
        if time.monotonic() > until:
            if time.monotonic() > began + BUILDING or any(not answer["ok"] for answer in answers) or not any(map(build_locks, children)):
                break
            until += POLL
        for reader in select.select(waiting, [], [], max(until - time.monotonic(), 0.0))[0]:
            chunk = os.read(reader, 65536)
            texts[reader] += chunk
            if not chunk or texts[reader].endswith(b"\n"):
                waiting.remove(reader)
                if texts[reader]:
                    answers.append(json.loads(texts[reader]))
                if not texts[reader] or not answers[-1]["ok"]:
                    until = min(until, time.monotonic() + GRACE)
    for reader in readers:
        os.close(reader)
    return answers


def build_locks(pid: int) -> list[str]:
    """Return the locks of torch's extension builder that a rank holds.

    Killing the rank while it compiles leaves them behind, and the next run would wait for them.
    """
    folder, found = f"/proc/{pid}/fd", []
    with contextlib.suppress(OSError):
        for name in os.listdir(folder):  # noqa: PTH208 - one listing, no objects
            with contextlib.suppress(OSError):
                target = os.readlink(f"{folder}/{name}")  # noqa: PTH115
                if target.endswith("/lock"):
                    found.append(target)
    return found


def forget(port: int, held: list[str]) -> None:
    """Remove what killed ranks leave: their locks, and the buffers of DeepSpeed's CPU collectives in shared memory (69 MB per rank)."""
    for path in held:
        with contextlib.suppress(OSError):
            os.unlink(path)  # noqa: PTH108
    with contextlib.suppress(OSError):
        for name in os.listdir("/dev/shm"):  # noqa: PTH208 - one listing, no objects
            if name.startswith("deepspeed_allreduce_buffer_") and f"_{port}_" in name:
                os.unlink(f"/dev/shm/{name}")  # noqa: PTH108


def float_types() -> dict[str, bool]:
    """Return which 16-bit floats DeepSpeed's accelerator supports; on a CPU that depends on its instructions."""
    from deepspeed.accelerator import get_accelerator

    here = get_accelerator()
    return {"fp16": bool(here.is_fp16_supported()), "bf16": bool(here.is_bf16_supported())}


def main() -> None:
    """Answer requests until standard input ends."""
    output = os.fdopen(os.dup(1), "w", encoding="utf-8", buffering=1)
    os.dup2(2, 1)  # DeepSpeed prints text that must not mix with the answers
    gc.disable()  # an import makes no garbage, and searching for some takes a fifth of its time
    import deepspeed
    import deepspeed.ops

    compatible = getattr(deepspeed.ops, "__compatible_ops__", {})
    deepspeed.ops.__compatible_ops__ = {**compatible, "deepspeed_shm_comm": False}  # no compiled collectives: plain gloo is enough
    with contextlib.suppress(ImportError):  # every rank with ZeRO would import it, which takes 3 s each
        import deepspeed.runtime.zero.muon.muon_optimizer
    gc.freeze()
    gc.enable()
    output.write(json.dumps({"ready": True, "version": deepspeed.__version__.partition("+")[0], "types": float_types()}) + "\n")
    for line in sys.stdin:
        if line.strip():
            output.write(json.dumps(validate(json.loads(line))) + "\n")


if __name__ == "__main__":
    main()
