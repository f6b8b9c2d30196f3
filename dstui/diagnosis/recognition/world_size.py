"""Parse the number of ranks from lines of launchers, libraries and programs. Pure: one line in, a number out."""

from __future__ import annotations

import base64
import binascii
import json
import re

NODES = re.compile(r"--(?:n|num[-_])?(?:nodes|machines)'?[=, ]+'?(?:\d+:)?(\d+)")
PER_NODE = re.compile(r"--(?:nproc[-_]per[-_]node|num[-_]gpus|processes[-_]per[-_]node|ntasks-per-node)'?[=, ]+'?(\d+)")
NODE = re.compile(r"--(?:node|machine)[-_]rank'?[=, ]+'?(\d+)")
INCLUDED = re.compile(r"--include[= ]['\"]?\w+:(\d+(?:,\d+)*)(?!@)")
DS_NODE = re.compile(r"nnodes=(\d+), num_local_procs=(\d+), node_rank=(\d+)")
ALL_NODES = re.compile(
    r"--num[-_]processes[= ](\d+)|\b(?:mpirun|mpiexec|horovodrun|orterun)\b.{0,200}? -(?:np?|-np) (\d+)"
    r"|\bsrun\b.{0,200}? (?:-n ?|--ntasks[= ])(\d+)"
)
REPORTED = re.compile(
    # DeepSpeed; torch's environment; Megatron's table of arguments; JSON. Not the size of a group (data_parallel_world_size).
    r"""dist_world_size=(\d+)|(?i:(?<![\w])(?:global_|distributed_)?world[_ ]size)['"]?(?: ?[=:] ?| \.{2,} | )(\d+)\b(?! !=)"""
    r"|world_sizes=\[(\d+)"  # torchrun's rendezvous
    r"|^\s+nproc_per_node\s+: (\d+)"  # torchrun's launch configuration
    r"|MEMBER: \d+/(\d+)|Starting with (\d+) processes"  # Lightning
    r"|store-based barrier for key:\S+ with (\d+) (?:nodes|clients)"
    r"|Num processes: (\d+)|`--num_processes` was set to a value of `(\d+)`"  # accelerate
    r"|\bnranks (\d+)"  # NCCL
    r"|\b[Rr]ank:? \d+/(\d+)\b|\(rank/world-size\) \d+/(\d+)"
    r"|Process \d+, total (\d+)|Process \(global: \d+, local \d+\), total (\d+)"  # timm, OpenCLIP
    r"|\btraining on (\d+) devices|^\s*GPU number: (\d+)|\bgpu_ids ?= ?range\(0, (\d+)\)"  # fairseq, MMEngine and its predecessor
)
ELSEWHERE = re.compile(r"nodes|hostfile|machine")
"""Options of a command without a number of nodes that show that there may be several."""
ONE = re.compile(
    r"[Dd]istributed training: False|\bin simple_launcher\b|Not using distributed mode|Will run the code on one GPU|with a single process\b"
)
"""Messages of libraries about a run of one process, and the function with which accelerate starts a script without a launcher."""
AT_LEAST = re.compile(
    r"distributed init \(rank (\d+)[,)]|Process rank: (\d+), device|to store for rank: (\d+)|GLOBAL_RANK: (\d+),|Process index: (\d+)"
)
"""A rank's message that it exists."""
INTRODUCED = re.compile(
    r"Rank of current process: (\d+)|Process rank: (\d+), device|GLOBAL_RANK: (\d+),|Process index: (\d+)"  # detectron2; Transformers
    r"|\bRANK: (\d+)\s+WORLD_SIZE|\(rank/world-size\) (\d+)/\d"  # torch's environment; Composer
)
"""The rank of the process that writes a line, in messages that each process prints once."""
STARTED_LAST = re.compile(
    r"--local[-_]rank=(\d+)'.*(?:exits with return code|returned non-zero exit status|died with)|^LOCAL_RANK: (\d+) - CUDA_VISIBLE_DEVICES"
)
"""DeepSpeed's launcher and the old torch.distributed.launch print the command of the rank that they started last, whichever failed;
Lightning prints a line for each rank."""
ENCODED = re.compile(r"--world_info[= ]([\w+/=-]{8,8192})")
SLOTS = re.compile(r"WORLD INFO DICT: (\{.*\})")
NEEDLES = (
    "world_size", "world size", "World size", "WORLD", "world_info", "nranks", "nproc", "num_gpus", "num-gpus", "num_processes",
    "num-processes", "Num processes", "Process rank", "Process index", "MEMBER: ", "Starting with", "store-based barrier",
    "to store for rank", "distributed init", "GLOBAL_RANK", "LOCAL_RANK", "istributed training: False", "ank: /", "ank /",
    "rank/world-size", "Process , total ", "Process (global", "training on  device", "GPU number", "gpu_ids", "Not using distributed",
    "the code on one GPU", "with a single process", "--include", "mpirun", "mpiexec", "horovodrun", "orterun", "srun ",
    "machine_rank", "node_rank", "Rank of current process", "nnodes", "simple_launcher",
)  # fmt: skip
"""Literal texts (without digits), of which every such line contains one."""
HINT = "please pass in `--num_processes="
"""Accelerate's message about how it could have been started."""
MOST = 1 << 16


def world_in(text: str) -> int | None:
    """Return the number of ranks in a line, or a lower bound; None if it has none."""
    if HINT in text:
        return None
    if found := REPORTED.search(text):
        return _number(found)
    if ONE.search(text):
        return 1
    if found := AT_LEAST.search(text):
        return _number(found) + 1 if _number(found) else None
    if found := STARTED_LAST.search(text):
        return _number(found) + 1
    if found := ENCODED.search(text):
        return _slots(_decoded(found[1]))
    if found := SLOTS.search(text):
        return _slots(found[1].replace("'", '"'))
    return _of_command(text)


def introduced(text: str) -> int | None:
    """Return the rank with which a process identifies itself in its own output; None for other lines."""
    found = INTRODUCED.search(text)
    return _number(found) if found else None


def first_of_node(text: str) -> int | None:
    """Return the rank of the first process of a node, if a line has the node's number and the processes per node."""
    if found := DS_NODE.search(text):
        return int(found[2]) * int(found[3])
    node, each = NODE.search(text), PER_NODE.search(text)
    return int(node[1]) * int(each[1]) if node and each else None


def _of_command(text: str) -> int | None:
    """Return the number of processes that a command line requests: all, or those of a node times the nodes."""
    if found := DS_NODE.search(text):
        return min(int(found[1]) * int(found[2]), MOST)
    if found := INCLUDED.search(text):
        return found[1].count(",") + 1
    found, nodes = PER_NODE.search(text), NODES.search(text)
    if found is None:
        return _number(every) if (every := ALL_NODES.search(text)) else None
    if nodes is None and ELSEWHERE.search(text):
        return None
    return min(int(found[1]) * int(nodes[1] if nodes else 1), MOST)


def _number(found: re.Match[str]) -> int:
    return min(int(next(group for group in found.groups() if group)), MOST)


def _decoded(text: str) -> str:
    try:
        return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode()
    except (binascii.Error, ValueError):
        return ""


def _slots(text: str) -> int | None:
    """Count the slots of `{"host": [0, 1]}`: 2."""
    try:
        hosts = json.loads(text)
    except ValueError:
        return None
    if not isinstance(hosts, dict) or not all(isinstance(slots, list) for slots in hosts.values()):
        return None
    return min(sum(map(len, hosts.values())), MOST) or None
