"""SLURM programs on the PATH that print recorded output, for tests that only need their output.

tests/long/test_queue.py and test_accounting.py run the real programs. Recorded with Slurm 22.05 of Debian 12 on the test hosts, with job
numbers, names and limits changed.
"""

from __future__ import annotations

import shlex
from pathlib import Path

PARTITIONS = """\
PartitionName=gpu AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL AllocNodes=ALL Default=YES QoS=N/A DefaultTime=NONE MaxNodes=UNLIMITED \
MaxTime=2-00:00:00 MinNodes=0 Nodes=g[01-16] PreemptMode=REQUEUE State=UP TotalCPUs=1536 TotalNodes=16 TRES=cpu=1536,mem=16000G,node=16
PartitionName=short AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL AllocNodes=ALL Default=NO QoS=N/A DefaultTime=NONE MaxNodes=2 \
MaxTime=00:30:00 MinNodes=0 Nodes=g[01-16] PreemptMode=REQUEUE State=UP TotalCPUs=1536 TotalNodes=16 TRES=cpu=1536,mem=16000G,node=16
"""
NODES = "gpu|16|96|1000000|gpu:h100:8(S:0-1)|h100,ib\nshort|16|96|1000000|gpu:h100:8(S:0-1)|h100,ib\n"
ASSOCIATIONS = "physics||normal,high\nguests||normal\n"
ACCOUNTING = """\
2|PREEMPTED|2026-11-28T02:29:25|g[01-02]|None
3|CANCELLED by 0|2026-11-28T02:29:28|None assigned|None
4|FAILED|2026-11-28T02:29:16|g01|None
5|COMPLETED|2026-11-28T02:29:21|g01|BeginTime
6|COMPLETED|2026-11-28T02:29:16|g01|None
7|TIMEOUT|2026-11-28T02:29:28|g[01-02]|None
8|CANCELLED by 0|2026-11-28T02:29:16|g01|None
9|NODE_FAIL|2026-11-28T02:29:16|g02|None
10|OUT_OF_MEMORY|2026-11-28T02:29:16|g01|None
"""
"""Each way to end that tests/long/test_accounting.py produces; 3 was cancelled while pending, 5 was requeued."""


def write_programs(folder: Path, **outputs: str) -> Path:
    """Write programs that print these texts and append their names to `folder/asked`. Return the folder, for the PATH."""
    folder.mkdir(exist_ok=True)
    for name, text in outputs.items():
        program = folder / name
        program.write_text(f"#!/bin/sh\necho {name} >>{shlex.quote(str(folder / 'asked'))}\ncat <<'END'\n{text}END\n")
        program.chmod(0o755)
    return folder


def cluster(folder: Path, **more: str) -> Path:
    """Write the programs of a cluster with two partitions and an empty queue."""
    return write_programs(folder, **{"scontrol": PARTITIONS, "sinfo": NODES, "sacctmgr": ASSOCIATIONS, "squeue": "", **more})
