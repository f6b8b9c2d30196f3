"""The training of the tour: the quickstart's training, in which a micro-batch over 16 makes the last rank run out of memory."""

from __future__ import annotations

import os
import random
from itertools import count

import deepspeed
import torch

from dstui.examples import train_tiny

LARGEST = 16
FAILS_AT = 10
TOO_MUCH = 1 << 60
"""A number of bytes that no machine has."""

_batches = count(1)
_make_batch = train_tiny.make_batch


def make_batch(size: int, dice: random.Random) -> torch.Tensor:
    """Return a batch of the quickstart. On the last rank, allocate too much memory if the micro-batch is large."""
    if size > LARGEST and deepspeed.comm.get_rank() == deepspeed.comm.get_world_size() - 1 and next(_batches) == FAILS_AT:
        torch.empty(TOO_MUCH, dtype=torch.uint8, device=deepspeed.get_accelerator().current_device_name())
    return _make_batch(size, dice)


if __name__ == "__main__":
    train_tiny.make_batch = make_batch
    train_tiny.main()
    os._exit(0)  # the same exit as in train_tiny
