"""What the SLURM cluster here offers the user, asked at most every five minutes."""

from __future__ import annotations

import os
import re
import shutil
from typing import Any

from dstui.jobs.queue.answers import cached_answer, run_slurm
from dstui.machine.slurm_offers import ASSOCIATIONS, SINFO, SlurmOffers, read_offers

PARTITION = re.compile(r"\w[\w.-]{0,99}")
PAUSE = 300.0
"""Seconds between two questions: partitions change seldom."""


def slurm_offers() -> SlurmOffers | None:
    """Return what the cluster offers; None where there is no SLURM here, or where it does not answer."""
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
    """Return the nodes of a partition of the cluster here; none where there is no SLURM, or no partition of this name."""
    if shutil.which("sinfo") is None or not PARTITION.fullmatch(name):
        return []
    return sorted(set((run_slurm(["sinfo", "--noheader", "--Node", f"--partition={name}", "--format=%N"]) or "").split()))
