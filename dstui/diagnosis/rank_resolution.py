"""Whose line a line is: the rank of every hit and every end. `culprits` tells which of the ranks a cause began on. Pure.

A rank is told by, the stronger first:
- the label of a line, or of the traceback that it ends (`[rank3]:`, `[1,3]<stderr>:`, srun's `3: ` where each task is a rank);
- the one rank that introduces itself in a file, where that is not rank 0: the file is that rank's own;
- a number on a host (`[default3]:`, `local_rank: 3`, spawn's `process 3`, `--local-rank=3`) with the rank of that host's first process:
  0 where nothing speaks of a second host, else what the launcher tells (node_rank times processes per node, torchrun's table);
- a run of one process: rank 0;
- the launcher: torchrun's table (`Root Cause`), the one process that MPI, Lightning, Horovod or srun saw end by itself;
- silence: the only rank that said nothing where all others complain of a lost peer.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

from dstui.diagnosis.findings import Findings, Hit

NUMBER = re.compile(r"\d+")
GOES_ON = 4
"""Lines after one that names its rank in which the same message goes on."""
TERMINATE = "terminate called"
"""How native code begins that gives up."""
SPEAKS = ("root", "symptom", "cascade")


def resolve(found: Findings) -> None:
    """Give hits and ends the ranks that follow from numbers on hosts, from srun's tasks, and from ends told in the same line."""
    _of_the_writer(found)
    if (first := first_of_host(found)) is not None:
        for hit in found.hits:
            process = hit.raised.process if hit.raised is not None else None
            local = hit.local if process is None else process
            if hit.rank is None and local is not None:
                hit.rank = first + local
                agents = hit.raised is not None and hit.raised.in_launcher
                found.spoke |= {hit.rank} if hit.signature.role in SPEAKS and process is None and not agents else set()
        for end in found.ends:
            if end.exit.local and (end.exit.code < 0 or end.exit.spawned) and end.rank is None and end.exit.rank is not None:
                end.rank = first + end.exit.rank
    if tasks_are_ranks(found):
        for hit in found.hits:
            hit.rank = hit.task if hit.rank is None else hit.rank
        for end in found.ends:
            end.rank = end.exit.task if end.rank is None else end.rank
    _of_the_speaker(found)
    in_line = {end.at: end.rank for end in found.ends if end.rank is not None}
    for hit in found.hits:
        hit.rank = in_line.get(hit.at) if hit.rank is None else hit.rank


def _of_the_speaker(found: Findings) -> None:
    """Give the lines in which a message goes on the rank that its first line names."""
    speaker: Hit | None = None
    for hit in sorted(found.hits, key=lambda hit: hit.at):  # what NCCL says of an error goes on for some lines without a label
        if TERMINATE in hit.text:  # a process begins to speak that has no label
            speaker = None
        near = speaker is not None and hit.at[0] == speaker.at[0] and hit.at[1] - speaker.at[1] <= GOES_ON
        if hit.rank is None and hit.raised is None and speaker is not None and near and hit.task == speaker.task:
            hit.rank = speaker.rank
        elif hit.rank is not None and hit.signature.role in SPEAKS:
            speaker = hit


def _of_the_writer(found: Findings) -> None:
    """Give what has no label the rank whose own log the file is."""
    for hit in found.hits:
        hit.rank = found.writer if hit.rank is None else hit.rank


def first_of_host(found: Findings) -> int | None:
    """Return the rank of the first process of the host that the text is of; None where it may be of several."""
    hosts = ({hit.host for hit in found.hits} | {end.host for end in found.ends}) - {None}
    if len(hosts) > 1 or len(found.offsets) > 1:
        return None
    if found.offsets:
        return next(iter(found.offsets))
    elsewhere = found.local is not None and found.world is not None and found.local + 1 < found.world
    return None if found.several_nodes or elsewhere else 0


def tasks_are_ranks(found: Findings) -> bool:
    """Return whether srun started one task per rank: not where a launcher runs in the tasks, or a task speaks for another rank."""
    mixed = any(hit.task is not None and hit.rank not in (None, hit.task) for hit in found.hits)
    launched = found.agents or found.pids or any(hit.signature.id == "OMP-NOTE" for hit in found.hits)
    return not mixed and not launched


def tracebacks(hits: Iterable[Hit]) -> int:
    """How many processes raised these exceptions, where no label tells; what was raised while another one was handled counts with that."""
    raised = [(hit, (hit.stream, hit.raised.chain)) for hit in hits if hit.raised and hit.raised.traced]
    first = {hit.at: chain for hit, chain in raised if hit.raised and not hit.raised.chained}
    return len(first) + len({chain for _, chain in raised} - set(first.values()))


def shown(hits: Iterable[Hit]) -> int:
    """Return how many processes show a cause, where no label tells: by their tracebacks, or by lines that each process says once."""
    hits = list(hits)
    same = Counter(NUMBER.sub("", hit.text) for hit in {hit.at: hit for hit in hits}.values())
    return tracebacks(hits) or max(same.values(), default=0)
