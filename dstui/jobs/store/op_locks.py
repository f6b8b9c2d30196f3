"""Lock files that killed builds of DeepSpeed's ops have left behind: found before a launch, removed only with the user's consent.

torch's FileBaton creates the file `lock` in the build folder of an op and keeps it open until the op is built. Other processes that need
the op wait until the file is gone. A killed build leaves it, and then all wait forever.
"""

from __future__ import annotations

import os
import shlex
import stat
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from dstui.jobs.store.cleanup import build_root
from dstui.jobs.store.processes import holders
from dstui.plan import Plan
from dstui.plan.finding import Finding, Fix

SETTLED = 2.0
"""Seconds after which a lock that no process holds is stale: a builder creates the file just before it opens it."""
SETTLED_ELSEWHERE = 600.0
"""The same on a shared disk: builders on other hosts are invisible from here, and a build takes a minute."""
NETWORK = frozenset({"nfs", "nfs4", "lustre", "gpfs", "beegfs", "cifs", "smb3", "fuse.sshfs", "ceph", "wekafs", "9p", "virtiofs"})
"""Network file systems, by the kernel's names."""
MAX_LOCKS = 20
"""Locks that are listed."""


def folder_of(plan: Plan) -> Path:
    """Return the folder in which the ranks of a Plan on this host build ops."""
    return build_root({**os.environ, **{name: str(value) for name, value in plan.cluster.env.items()}})


def stale_locks(root: Path) -> tuple[Path, ...]:
    """Return the user's own locks in a folder of builds that no process on this host holds, at most `MAX_LOCKS`.

    May block on a slow disk.
    """
    found = sorted({*root.glob("*/lock"), *root.glob("*/*/lock")})[:MAX_LOCKS]
    return tuple(lock for lock in found if _is_stale(lock))


def _is_stale(lock: Path) -> bool:
    with suppress(OSError):
        facts = lock.lstat()
        own = stat.S_ISREG(facts.st_mode) and facts.st_uid == os.getuid() and facts.st_size == 0  # torch writes nothing into it
        return own and time.time() - facts.st_mtime > _settled(lock) and not holders(lock.resolve())
    return False


def _settled(lock: Path) -> float:
    """Return the seconds after which a lock at this path may be called stale."""
    import psutil  # not needed without any lock, which is the usual case

    here = lock.resolve()
    above = [part for part in psutil.disk_partitions(all=True) if here.is_relative_to(part.mountpoint)]
    nearest = max(above, key=lambda part: len(part.mountpoint), default=None)
    return SETTLED_ELSEWHERE if nearest is not None and nearest.fstype in NETWORK else SETTLED


def lock_findings(locks: Iterable[Path]) -> Iterator[Finding]:
    """Yield a warning for each lock; its fix removes the lock."""
    for lock in locks:
        yield Finding(
            "OP001",
            "warning",
            "",
            f"a build of {lock.parent.name} was killed and left its lock: ranks that need this op wait forever",
            f"torch waits until {lock} is gone; no process on this machine holds it.",
            fix=Fix(f"remove the lock: rm {shlex.quote(str(lock))}", removes=(str(lock),)),
        )


def remove_locks(paths: Iterable[str]) -> str:
    """Remove locks that are still stale, and return a sentence about the result."""
    words = []
    for path in map(Path, paths):
        if path.name == "lock" and _is_stale(path):
            with suppress(OSError):
                path.unlink()
        words.append(f"{path} is kept: a process uses it, or it is not yours." if path.exists() else f"{path} is removed.")
    return " ".join(words)
