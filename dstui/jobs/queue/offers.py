"""The offers of this host's SLURM cluster to the user, requested at most every five minutes."""

from __future__ import annotations

import os
import re
import shutil
from typing import Any

from dstui.jobs.queue.answers import cached_answer, run_slurm
from dstui.machine.slurm_offers import ASSOCIATIONS, SINFO, SlurmOffers, read_offers

PARTITION = re.compile(r"\w[\w.-]{0,99}")
PAUSE = 300.0
"""The number of seconds for which an answer is used: partitions seldom change."""


def slurm_offers() -> SlurmOffers | None:
    """Return the offers of the cluster, or None if this host has no SLURM or SLURM does not answer."""
    if shutil.which("sinfo") is None:
        return None
    found = cached_answer("offers", PAUSE, _ask)
    texts = [found.get(name) for name in ("partitions", "nodes", "associations")]
    partitions, nodes, associations = (text if isinstance(text, str) else "" for text in texts)
    return read_offers(partitions, nodes, associations) if partitions else None


def _ask() -> dict[str, Any]:
    words = ["sacctmgr", "--noheader", "--parsable2", "show", "associations", f"user={os.geteuid()}", f"format={ASSOCIATIONS}"]
    partitions = run_slurm(["scontrol", "--oneliner", "show", "partition"])
    if not partitions:
        return {"partitions": ""}
    nodes = run_slurm(["sinfo", "--noheader", f"--format={SINFO}"])
    return {"partitions": partitions, "nodes": nodes or "", "associations": run_slurm(words) or ""}


def nodes_of_partition(name: str) -> list[str]:
    """Return the nodes of a partition of this host's cluster; empty if there is no SLURM or no such partition."""
    if shutil.which("sinfo") is None or not PARTITION.fullmatch(name):
        return []
    return sorted(set((run_slurm(["sinfo", "--noheader", "--Node", f"--partition={name}", "--format=%N"]) or "").split()))
