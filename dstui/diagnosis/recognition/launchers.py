"""Collect facts from the output of launchers, libraries and programs: the number of ranks, the rank of each process, who ended, and how."""

from __future__ import annotations

import ast
import base64
import binascii
import json
import re
from dataclasses import replace

from dstui.base.limits import MAX_RANKS
from dstui.diagnosis.findings import Collected, Ended, Place, capped
from dstui.diagnosis.recognition.activity import command_in
from dstui.diagnosis.recognition.exits import Exit, exits_in, status_in
from dstui.diagnosis.recognition.labels import Label, rank_in

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
    return _count_of_command(text)


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


def _count_of_command(text: str) -> int | None:
    """Return the number of processes that a command line requests: all, or those of a node times the nodes."""
    if found := DS_NODE.search(text):
        return min(int(found[1]) * int(found[2]), MAX_RANKS)
    if found := INCLUDED.search(text):
        return found[1].count(",") + 1
    found, nodes = PER_NODE.search(text), NODES.search(text)
    if found is None:
        return _number(every) if (every := ALL_NODES.search(text)) else None
    if nodes is None and ELSEWHERE.search(text):
        return None
    return min(int(found[1]) * int(nodes[1] if nodes else 1), MAX_RANKS)


def _number(found: re.Match[str]) -> int:
    return min(int(next(group for group in found.groups() if group)), MAX_RANKS)


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
    return min(sum(map(len, hosts.values())), MAX_RANKS) or None


Key = tuple[int, str]
"""File and label: one of the outputs that are interleaved in a file."""

TIME = re.compile(r"(?:(\d{4})-)?(\d\d)-(\d\d)[ T](\d\d):(\d\d):(\d\d)[.,]?(\d*)|[ \[][WEIF](\d{1,2}?)(\d\d) (\d\d):(\d\d):(\d\d)\.(\d+)")
SPAWNED = re.compile(r"process (\d+) spawned with command: .*'--local[-_]rank=(\d+)'")
KILLING = re.compile(r"Killing subprocess (\d+)")
WELL = re.compile(r"Process (\d+) exits successfully")
MAPPING = re.compile(r"global_rank_mapping=defaultdict\(<class 'list'>, (\{.*\})\)")
ENQUEUED = re.compile(r"[Ll]ast enqueued (?:NCCL )?work: (\d+)")
FAILURES = re.compile(r"^\s*(Root Cause|(?:Other )?Failures)\b.*:\s*$")
"""The two parts of torchrun's table. Since PyTorch 1.10 the root cause comes last."""
BLOCK_RANK = re.compile(r"^\s*rank\s*: (\d+) \(local_rank: (\d+)\)")
INDENT = "  "
ENTRY = re.compile(r"  rank\s*: (\d+) \(local_rank: ")
"""The same in a whole line: all lines of an entry are indented as far."""
BLOCK_EXIT = re.compile(r"^\s*exitcode\s*: (-?\d+) \(pid: \d+\)")
PREPARING = re.compile(r"(?:Map|Running tokenizer on dataset)[^|]{0,80}?:\s{1,8}(\d{1,3})%\|")
NEAR = 3
"""Lines within which the status of a rank follows its name."""
ORPHAN = re.compile(r"^\s*\d+\s+1\s.*deepspeed\.launcher\.launch")
SEVERAL_NODES = re.compile(
    r"--num_nodes[= ](?:[2-9]|\d\d)|--hostfile[= ]\S+|--(?:nnodes|num_machines)'?[=, ]+'?(?:[2-9]|\d\d)|nnodes=(?:[2-9]|\d\d)"
)


class Launchers:
    """Collects the facts of all files, line by line."""

    def __init__(self, found: Collected) -> None:
        self.found = found
        self._closing: dict[Key, Place] = {}
        self._root: set[Key] = set()
        """Outputs in which torchrun's table has reached the failure that it saw first."""
        self._entry: dict[Key, tuple[int, int, int]] = {}
        """The rank of the entry of torchrun's table that the last lines belong to, its column in the line, its indent behind the label."""
        self._block: dict[Key, int] = {}
        """The end, by its index, whose status another line of torchrun's table has."""
        self._named: dict[Key, int] = {}
        """The end of a rank, by its index, whose status may be in the next line."""
        self._mapping: dict[str, list[int]] = {}
        self._node = 0

    def in_entry(self, label: Label, line: str, key: Key) -> Label:
        """Return the label of a line of torchrun's table with the rank of its entry: with `@record`, that has the rank's own traceback."""
        if "(local_rank: " in line and (found := ENTRY.search(line)):
            self._entry[key] = int(found[1]), found.start(), len(label.text) - len(label.text.lstrip())
        if key not in self._entry or label.rank is not None:
            return label
        rank, column, indent = self._entry[key]
        if line[column : column + len(INDENT)] != INDENT:
            del self._entry[key]
            return label
        return replace(label, rank=rank, text=label.text.removeprefix(" " * indent))

    def feed(self, label: Label, place: Place, key: Key) -> None:
        """Process one line."""
        text, found = label.text, self.found
        if "closing signal" in text:
            self._closing.setdefault(key, place)
            found.closing += "Sending process" in text
            found.agents.add(key[1])
        self._ends(label, place, key)
        self._processes(text, place)
        if (enqueued := ENQUEUED.search(text)) and (rank := label.rank if label.rank is not None else rank_in(text)) is not None:
            found.enqueued[rank] = int(enqueued[1])
        elif ORPHAN.match(text):
            found.orphaned = place
        elif given := command_in(text):
            found.commands.setdefault(place[0], []).append((place[1], given))
        elif "Loading extension module" in text or "Time to load" in text:
            found.loaded = place
        elif bars := PREPARING.findall(text):
            found.preparing = bars[-1] != "100"
        if SEVERAL_NODES.search(text):
            found.several_nodes = True
        if found.killed and "sigkill_handler" in text and (when := time_of(text)):
            found.times.append((place, when))

    def _processes(self, text: str, place: Place) -> None:
        found = self.found
        if spawned := SPAWNED.search(text):
            local = int(spawned[2])
            ranks = self._mapping_of_node()
            rank = ranks[local] if local < len(ranks) else local
            if rank in found.pids.values() and found.well:  # the same rank again: another run begins
                found.well, found.all_well, found.pids = set(), False, {}
            found.pids[int(spawned[1])] = rank
            found.started.setdefault(place[0], place[1])
        elif killing := KILLING.search(text):
            found.killed.append((int(killing[1]), time_of(text), place))
        elif well := WELL.search(text):
            found.well.add(found.pids.get(int(well[1]), -int(well[1])))
            found.well_at = place
        elif mapping := MAPPING.search(text):
            self._mapping = _literal(mapping[1])
        if node := DS_NODE.search(text):
            self._node = int(node[3])
        if (first := first_of_node(text)) is not None:
            found.offsets.add(first)
        if (itself := introduced(text)) is not None:
            found.introduced.add(itself)
        if world := world_in(text):
            found.world = max(found.world or 0, world)

    def _ends(self, label: Label, place: Place, key: Key) -> None:
        self._table(label, place, key)
        named = self._named.pop(key, None)
        ends = self.found.ends
        if named is not None and (status := status_in(label.text)) is not None and place[1] - ends[named].at[1] <= NEAR:
            ends[named] = replace(ends[named], exit=replace(ends[named].exit, code=status))
            return
        for found in exits_in(label.text):
            if found.local and not found.spawned:
                self.found.agents.add(key[1])
            self._end(found, place, label, key)
            if found.reported:
                self._named[key] = len(ends) - 1

    def _table(self, label: Label, place: Place, key: Key) -> None:
        """Process a line of torchrun's table of failures. A table that is cut before the exit status is still used."""
        if part := FAILURES.match(label.text):
            self._root = self._root | {key} if part[1] == "Root Cause" else self._root - {key}
        elif block := BLOCK_RANK.match(label.text):
            self.found.agents.add(key[1])
            self.found.several_nodes |= block[1] != block[2]
            self.found.offsets.add(int(block[1]) - int(block[2]))
            self._end(Exit(1, int(block[1])), place, label, key, root=key in self._root)
            self._block[key] = len(self.found.ends) - 1
        elif (code := BLOCK_EXIT.match(label.text)) and key in self._block:
            index = self._block.pop(key)
            end = self.found.ends[index]
            self.found.ends[index] = replace(end, exit=replace(end.exit, code=int(code[1])), at=place, text=capped(label.text))

    def _end(self, end: Exit, at: Place, label: Label, key: Key, *, root: bool = False) -> None:
        # torchrun ends the other ranks of its node before it reports which one had ended by itself
        noticed = self._closing.get(key, at) if key[1] in self.found.agents else at
        if end.whole and end.code == 0:
            self.found.all_well, self.found.well_at = True, at
        rank = None if end.local else end.rank
        self.found.ends.append(Ended(end, at, noticed, capped(label.text), f"{key[0]}:{key[1]}", rank, label.host, root))

    def _mapping_of_node(self) -> list[int]:
        hosts = list(self._mapping.values())
        return hosts[self._node] if self._node < len(hosts) else []


def _literal(text: str) -> dict[str, list[int]]:
    try:
        found = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return {}
    return found if isinstance(found, dict) and all(isinstance(ranks, list) for ranks in found.values()) else {}


def time_of(text: str) -> float | None:
    """Return a time stamp as seconds within its year, in any format; the year is not always given."""
    found = TIME.search(text)
    if found is None:
        return None
    if found[3]:
        month, day, hour, minute, second, fraction = found[2], found[3], found[4], found[5], found[6], found[7]
    else:
        month, day, hour, minute, second, fraction = found.groups()[7:]
    days = int(month) * 31 + int(day)
    return float(f"{((days * 24 + int(hour)) * 60 + int(minute)) * 60 + int(second)}.{fraction or 0}")
