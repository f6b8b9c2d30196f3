"""Find what DeepSpeed leaves behind on a host, and remove this job's own part of it.

- `/dev/shm/deepspeed_allreduce_buffer_UID_ADDR_PORT_RANK`: 66 MiB for each rank on a CPU, never unlinked by DeepSpeed
  (ops/csrc/cpu/comm/shm.cpp), so that 300 runs fill 20 GB of memory.
- `lock` in the build folder of an op: torch's FileBaton. It stays when a build is killed, and every later run waits for it forever.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import field
from glob import escape
from pathlib import Path
from shlex import quote
from time import time
from typing import NamedTuple

from dstui.base.dataclass import dataclass
from dstui.jobs.store.processes import compiles, holders, opened

SHM = Path("/dev/shm")


def remove_buffers(masters: Iterable[tuple[str, str]], folder: Path = SHM) -> list[Path]:
    """Unlink the buffers of process groups with these addresses and ports, unless a process still uses them. Return the removed files."""
    removed = []
    for address, port in set(masters):
        for path in folder.glob(f"deepspeed_allreduce_buffer_{os.getuid()}_{escape(address)}_{escape(port)}_*"):
            with suppress(OSError):
                if not holders(path):
                    path.unlink()
                    removed.append(path)
    return removed


def build_root(env: Mapping[str, str]) -> Path:
    """Return where torch builds extensions for a process with this environment."""
    given = env.get("TORCH_EXTENSIONS_DIR")
    if given:
        return Path(given)
    return Path(env.get("XDG_CACHE_HOME") or Path(env.get("HOME", "/")) / ".cache") / "torch_extensions"


class BuildNews(NamedTuple):
    """A message about the build in this folder. It is valid until the next one, which may be empty."""

    text: str
    folder: str
    lasts: bool


@dataclass
class OpBuilds:
    """Detects when DeepSpeed compiles an op, which takes a minute or more without any output: the lock in the build folder shows it.

    An existing op is also locked, for the second in which ninja checks whether anything is to do.
    """

    root: Path
    ours: dict[Path, float] = field(default_factory=dict)
    """Locks that a rank of this job took -> when they were first seen."""
    _reported: set[Path] = field(default_factory=set)
    _unheld: set[Path] = field(default_factory=set)

    def poll(self, ranks: Mapping[int, int]) -> list[BuildNews]:
        """Return the builds that have begun or ended since the last look. `ranks`: the pids of the living ranks on this host."""
        locks = {*self.root.glob("*/lock"), *self.root.glob("*/*/lock")}
        news = [BuildNews(self._ended(lock), str(lock.parent), lasts=False) for lock in self._reported - locks]
        self._reported &= locks
        self._unheld &= locks
        self.ours = {lock: since for lock, since in self.ours.items() if lock in locks}
        for lock in locks - self._reported:
            if text := self._begun(lock, ranks):
                self._reported.add(lock)
                news.append(BuildNews(text, str(lock.parent), lasts=True))
        return news

    def _begun(self, lock: Path, ranks: Mapping[int, int]) -> str:
        """Describe what happens under a lock; "" if nothing is compiled, or that is not known yet."""
        op, file = lock.parent.name, lock.resolve()
        rank = next((rank for rank, pid in ranks.items() if opened(pid, file)), None)
        others = holders(file) if rank is None else set()
        if rank is not None:
            self.ours.setdefault(lock, time())
        if rank is not None or others:
            self._unheld.discard(lock)
        elif lock not in self._unheld:
            self._unheld.add(lock)  # it may be just being released: the next look decides
        else:
            return f"ranks that need {op} wait forever for a build that was killed; rm {quote(str(lock))} lets them continue"
        if rank is not None and compiles(ranks[rank]):
            return f"rank {rank} is compiling {op} of DeepSpeed, a minute or more, once on this machine; the ranks wait"
        if any(map(compiles, others)):
            return f"process {min(others)}, not of this job, is compiling {op}; ranks that need it wait"
        return ""

    def _ended(self, lock: Path) -> str:
        if lock not in self.ours:
            return ""
        end = "was compiled in" if any(lock.parent.glob("*.so")) else "could not be compiled; it took"
        return f"{lock.parent.name} {end} {time() - self.ours[lock]:.0f} s"

    def remove_locks(self) -> None:
        """Unlink the locks of builds that died with this job."""
        for lock in self.ours:
            with suppress(OSError):
                if not holders(lock.resolve()):
                    lock.unlink()
