"""Measure the speed of this machine: matrix products, copies between GPU and RAM, collectives, CPU Adam, disk. One line per rate.

Run by file path with the interpreter of the ranks and the indices of the GPUs; imports nothing else of dstui. Each line is `["flops",
7.9e14]`, with the names of dstui.forecast.rates.Rates; the last one is `["done", null]`. Rates that cannot be measured here are left out.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

SIZE = 8192
"""Rows and columns of the matrices."""
HEADS, POSITIONS = 16, 8192
COPIED = 256 << 20
WRITTEN = 512 << 20
ADAM = 32 << 20
"""Parameters that CPU Adam updates."""


def tell(name: str, value: float) -> None:
    """Print one rate."""
    print(json.dumps([name, value]), flush=True)


def best(work: Callable[[], None], wait: Callable[[], None] = lambda: None, rounds: int = 5) -> float:
    """Return the seconds of the fastest round after a warm-up."""
    work()
    wait()
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        work()
        wait()
        times.append(time.perf_counter() - start)
    return min(times)


def on_gpu(torch: Any) -> None:
    """Measure matrix multiplication, causal attention in both directions, memory and the link to RAM on the first GPU."""
    wait = torch.cuda.synchronize
    kind = torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float16
    a, b = (torch.randn(SIZE, SIZE, device="cuda", dtype=kind) for _ in range(2))
    tell("flops", 2 * SIZE**3 / best(lambda: torch.matmul(a, b), wait))
    heads = torch.randn(1, HEADS, POSITIONS, 128, device="cuda", dtype=kind, requires_grad=True)

    def attend() -> None:
        torch.nn.functional.scaled_dot_product_attention(heads, heads, heads, is_causal=True).sum().backward()

    tell("attention", 7 * POSITIONS**2 * HEADS * 128 / best(attend, wait))
    wide = torch.empty(COPIED, dtype=torch.uint8, device="cuda")
    tell("memory", 2 * COPIED / best(wide.clone, wait))
    pinned = torch.empty(COPIED, dtype=torch.uint8).pin_memory()
    tell("host_link", COPIED / best(lambda: wide.copy_(pinned, non_blocking=True), wait))


def collective(rank: int, ranks: int, port: int, answer: Any) -> None:
    """Run one rank of an all-reduce over NCCL."""
    import torch
    import torch.distributed as dist

    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=ranks)
    buffer = torch.zeros(COPIED // 2, dtype=torch.bfloat16, device="cuda")
    seconds = best(lambda: dist.all_reduce(buffer), torch.cuda.synchronize)
    if rank == 0:
        answer.put(2 * COPIED * (ranks - 1) / ranks / 2 / seconds)
    dist.destroy_process_group()


def between_gpus(torch: Any, ranks: int) -> None:
    """Measure collectives: bytes that each GPU sends per second."""
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    context = torch.multiprocessing.get_context("spawn")
    answer = context.Queue()
    processes = [context.Process(target=collective, args=(rank, ranks, port, answer), daemon=True) for rank in range(ranks)]
    for process in processes:
        process.start()
    tell("inside", answer.get(timeout=90))
    for process in processes:
        process.join(10)


def cpu_adam(torch: Any) -> None:
    """Measure the parameters per second that all cores update with torch's fused AdamW.

    It is as fast as DeepSpeed's (748 and 792 million on one core), which would first compile for minutes and leave a lock behind if it is
    interrupted.
    """
    weights = torch.nn.Parameter(torch.zeros(ADAM))
    weights.grad = torch.ones(ADAM)
    optimizer = torch.optim.AdamW([weights], fused=True)
    tell("cpu_adam", ADAM / best(optimizer.step, rounds=3))


def disk() -> None:
    """Measure bytes per second written synchronously to the disk of the temporary files, and read from it without the cache."""
    block = os.urandom(1 << 20) * 16
    with tempfile.NamedTemporaryFile(prefix="dstui-rates-") as file:
        start = time.perf_counter()
        for _ in range(WRITTEN // len(block)):
            os.write(file.fileno(), block)
        os.fsync(file.fileno())
        tell("nvme_write", WRITTEN / (time.perf_counter() - start))
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        os.lseek(file.fileno(), 0, os.SEEK_SET)
        start = time.perf_counter()
        while os.read(file.fileno(), 16 << 20):
            pass
        tell("nvme_read", WRITTEN / (time.perf_counter() - start))


def main() -> None:
    """Measure everything that is available here."""
    sys.path = [path for path in sys.path if path not in ("", str(Path.cwd()))]
    import torch

    gpus = [int(word) for word in sys.argv[1:] if word.isdecimal()]
    if gpus and torch.cuda.is_available():
        on_gpu(torch)
        if torch.cuda.device_count() > 1:
            between_gpus(torch, torch.cuda.device_count())
    cpu_adam(torch)
    disk()
    print(json.dumps(["done", None]), flush=True)


if __name__ == "__main__":
    main()
