"""What DeepSpeed leaves behind on a host, and the removal of what is this job's own.

- `/dev/shm/deepspeed_allreduce_buffer_UID_ADDR_PORT_RANK`: 66 MiB for each rank on a CPU, never unlinked by DeepSpeed
  (ops/csrc/cpu/comm/shm.cpp), so that 300 runs fill 20 GB of memory.
- `lock` in the build folder of an op: torch's FileBaton. It stays when a build is killed, and every later run waits for it for ever.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from glob import escape
from pathlib import Path
from shlex import quote
from time import time

from dstui.run.jobs.processes import holders, opened

SHM = Path("/dev/shm")


def remove_buffers(masters: Iterable[tuple[str, str]], folder: Path = SHM) -> list[Path]:
    """Unlink the buffers of the groups that met at these addresses and ports, unless a process still uses them; what was removed."""
    removed = []
    for address, port in set(masters):
        for path in folder.glob(f"deepspeed_allreduce_buffer_{os.getuid()}_{escape(address)}_{escape(port)}_*"):
            with suppress(OSError):
                if not holders(path):
                    path.unlink()
                    removed.append(path)
    return removed


def build_root(env: Mapping[str, str]) -> Path:
    """Where torch builds extensions for a process with this environment."""
    given = env.get("TORCH_EXTENSIONS_DIR")
    if given:
        return Path(given)
    return Path(env.get("XDG_CACHE_HOME") or Path(env.get("HOME", "/")) / ".cache") / "torch_extensions"


@dataclass
class OpBuilds:
    """DeepSpeed compiles its ops at first use, a minute and longer, without a word; the lock in the build folder tells."""

    root: Path
    ours: dict[Path, float] = field(default_factory=dict)
    """Locks that a rank of this job took -> when we saw it."""
    _reported: set[Path] = field(default_factory=set)
    _unheld: set[Path] = field(default_factory=set)

    def poll(self, ranks: Mapping[int, int]) -> list[str]:
        """Sentences on what has begun or ended since the last look; `ranks` are the pids of the living ranks on this host."""
        locks = {*self.root.glob("*/lock"), *self.root.glob("*/*/lock")}
        news = [self._ended(lock) for lock in self.ours.keys() - locks]
        for lock in locks - self._reported:
            rank = next((rank for rank, pid in ranks.items() if opened(pid, lock.resolve())), None)
            if rank is not None:
                self.ours[lock] = time()
                news.append(
                    f"rank {rank} is compiling {lock.parent.name} of DeepSpeed, a minute or more, once on this machine; the ranks wait"
                )
            elif others := holders(lock.resolve()):
                news.append(f"process {min(others)}, not of this job, is compiling {lock.parent.name}; ranks that need it wait")
            elif lock not in self._unheld:
                self._unheld.add(lock)  # perhaps just being released: the next look decides
                continue
            else:
                op, path = lock.parent.name, quote(str(lock))
                news.append(f"ranks that need {op} wait for ever for a build that was killed; rm {path} ends that")
            self._reported.add(lock)
        self._reported &= locks
        self._unheld &= locks
        return news

    def _ended(self, lock: Path) -> str:
        seconds = time() - self.ours.pop(lock)
        end = "was compiled in" if any(lock.parent.glob("*.so")) else "could not be compiled; it took"
        return f"{lock.parent.name} {end} {seconds:.0f} s"

    def remove_locks(self) -> None:
        """Unlink the locks of builds that died with this job."""
        for lock in self.ours:
            with suppress(OSError):
                if not holders(lock.resolve()):
                    lock.unlink()
