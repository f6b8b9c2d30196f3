"""A tiny training that fails on request: `--fault NAME`, at the fourth step of rank 1 if the fault is one rank's."""

from __future__ import annotations

import argparse
import ctypes
import faulthandler
import importlib
import json
import mmap
import os
import resource
import signal
import sys
import time
from collections.abc import Callable
from datetime import timedelta


def leave(words: str) -> None:
    """Exit with a message and status 1."""
    sys.exit(words)


def bad_sample() -> None:
    """Raise an error of the script."""
    raise ValueError("sample 3 of shard 1 has no answer")


def out_of_gpu() -> None:
    """Raise PyTorch's exception for a full GPU."""
    import torch

    text = "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 1 has a total capacity of 79.15 GiB of which 1.19 GiB is free."
    raise torch.OutOfMemoryError(text)


def limited_memory() -> None:
    """Allocate a tensor beyond the limit on the process's memory (ulimit -v)."""
    import torch

    resource.setrlimit(resource.RLIMIT_AS, (16 << 30, 16 << 30))
    torch.zeros(16 << 30)


def small_cgroup() -> None:
    """Allocate more memory than the cgroup allows, so that the kernel kills the process."""
    while True:
        EATEN.append(bytearray(os.urandom(1 << 20)))


def full_disk() -> None:
    """Save a checkpoint that does not fit."""
    import torch

    torch.save(torch.zeros(1 << 23), f"{os.environ['CRASH_DISK']}/checkpoint.pt")


def full_mapping() -> None:
    """Write to a mapped file on a full disk, such as shared memory: SIGBUS."""
    with open(f"{os.environ['CRASH_DISK']}/mapped", "w+b") as file:  # noqa: PTH123
        file.truncate(1 << 26)
        memory = mmap.mmap(file.fileno(), 1 << 26)
        for at in range(0, 1 << 26, 4096):
            memory[at] = 1


def endless_loop() -> None:
    """Loop forever."""
    while True:
        pass


class Blocks:
    """A data set that never returns a sample."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> int:
        time.sleep(1000)
        return index


def blocked_data() -> None:
    """Wait for a worker of a data loader."""
    import torch

    next(iter(torch.utils.data.DataLoader(Blocks(), num_workers=1)))  # type: ignore[arg-type]


def reduce_too_much() -> None:
    """Reduce more numbers than the other ranks do next."""
    import torch

    torch.distributed.all_reduce(torch.zeros(100_000))


def other_order() -> None:
    """Broadcast while the other ranks reduce."""
    import torch

    torch.distributed.broadcast(torch.zeros(272), 1)


EATEN: list[bytearray] = []

ON_ONE_RANK: dict[str, Callable[[], object]] = {
    "raise": bad_sample,
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "terminate": lambda: os.kill(os.getpid(), signal.SIGTERM),
    "segfault": lambda: ctypes.string_at(0),
    "bus-error": lambda: os.kill(os.getpid(), signal.SIGBUS),
    "abort": os.abort,
    "exit-3": lambda: sys.exit(3),
    "exit-1": lambda: leave("nothing left to do"),
    "memory": lambda: bytearray(1 << 62),
    "stuck": lambda: time.sleep(1000),
    "gpu-memory": out_of_gpu,
    "limited-memory": limited_memory,
    "small-cgroup": small_cgroup,
    "full-disk": full_disk,
    "full-mapping": full_mapping,
    "endless-loop": endless_loop,
    "blocked-data": blocked_data,
    "other-shape": reduce_too_much,
    "other-order": other_order,
    "halted": lambda: os.kill(os.getpid(), signal.SIGSTOP),
}
ON_ALL_RANKS = {"raise-all": bad_sample}
BEFORE: dict[str, Callable[[], object]] = {
    "import": lambda: importlib.import_module("a_package_that_is_missing"),
    "data": lambda: json.loads('{"text": "a"\n{'),
    "missing-config": lambda: None,
}


def main() -> None:
    """Train for six steps, or fail."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--local_rank", type=int, default=-1)
    parser.add_argument("--config", default="plain.json")
    parser.add_argument("--fault", default="")
    parser.add_argument("--timeout", type=int, default=1800)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--pause", type=float, default=0.0)
    parser.add_argument("--talk", action="store_true", help="every rank prints its steps, not only the first")
    parser.add_argument("--save")
    parser.add_argument("--load")
    args = parser.parse_args()
    rank = int(os.environ.get("RANK", "0"))
    BEFORE.get(args.fault, lambda: None)()
    if args.fault == "never-joins" and rank == 1:
        time.sleep(1000)
    import deepspeed
    import torch

    deepspeed.ops.__dict__.setdefault("__compatible_ops__", {})  # plain gloo, so that nothing is compiled
    if args.fault == "segfault":
        faulthandler.enable()
    deepspeed.init_distributed(timeout=timedelta(seconds=args.timeout))
    model = torch.nn.Linear(16, 16)
    engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=args.config)
    if args.load:
        engine.load_checkpoint(args.load)
    for step in range(args.steps):
        if args.fault == "slow" and rank == 1:
            time.sleep(0.2)
        if args.fault == "missing" and step == 3 and rank == 0:
            torch.distributed.barrier()  # rank 1 never arrives
        if step == 3 and rank == 1:
            ON_ONE_RANK.get(args.fault, lambda: None)()
            if args.fault == "skip":
                break
        if step == 3:
            ON_ALL_RANKS.get(args.fault, lambda: None)()
        time.sleep(args.pause)
        width = 17 if args.fault == "shape" else 16
        loss = engine(torch.randn(2, width)).pow(2).mean()
        engine.backward(loss)
        engine.step()
        if rank == 0 or args.talk:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
    if args.save:
        engine.save_checkpoint(args.save)
    print(f"rank {rank} done", flush=True)


if __name__ == "__main__":
    main()
