"""Resolve the rank of every hit and every end. `origin` decides on which of the ranks a cause began. Pure.

A rank follows from these, in order of reliability:
- the label of a line, or of the traceback that it ends (`[rank3]:`, `[1,3]<stderr>:`, srun's `3: ` if each task is a rank);
- the only rank that identifies itself in a file, unless it is rank 0: the file is that rank's own;
- a local number (`[default3]:`, `local_rank: 3`, spawn's `process 3`, `--local-rank=3`) plus the rank of that host's first process: 0 if
  there is no sign of a second host, else from the launcher (node_rank times processes per node, torchrun's table);
- a run of one process: rank 0;
- the launcher: torchrun's table (`Root Cause`), the one process that MPI, Lightning, Horovod or srun saw end by itself;
- silence: the only rank without a message if all others report a lost peer.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from dstui.diagnosis.findings import Findings, Hit

NUMBER = re.compile(r"\d+")
GOES_ON = 4
"""Lines after one that names its rank in which the same message continues."""
TERMINATE = "terminate called"
"""The beginning of native code's message when it gives up."""
SPEAKS = ("root", "symptom", "cascade")


def resolve(found: Findings) -> Findings:
    """Return the findings with the ranks that follow from local numbers, srun's tasks, and ends reported in the same line."""
    found = replace(found, hits=tuple(_ranked(hit, found.writer) for hit in found.hits))  # unlabelled lines in a rank's own log
    if (first := first_of_host(found)) is not None:
        found = _resolve_local_ranks(found, first)
    if tasks_are_ranks(found):
        ends = tuple(end if end.rank is not None else replace(end, rank=end.exit.task) for end in found.ends)
        found = replace(found, hits=tuple(_ranked(hit, hit.task) for hit in found.hits), ends=ends)
    found = _resolve_continued_messages(found)
    in_line = {end.at: end.rank for end in found.ends if end.rank is not None}
    return replace(found, hits=tuple(_ranked(hit, in_line.get(hit.at)) for hit in found.hits))


def _ranked(hit: Hit, rank: int | None) -> Hit:
    """Return the hit with this rank if it has none."""
    return hit if rank is None or hit.rank is not None else replace(hit, rank=rank)


def _resolve_local_ranks(found: Findings, first: int) -> Findings:
    """Return the findings with ranks that follow from local ones and the rank of the host's first process."""
    hits, ends, spoke = list(found.hits), list(found.ends), set(found.spoke)
    for index, hit in enumerate(hits):
        process = hit.raised.process if hit.raised is not None else None
        local = hit.local if process is None else process
        if hit.rank is None and local is not None:
            hits[index] = replace(hit, rank=first + local)
            if hit.signature.role in SPEAKS and process is None and not (hit.raised is not None and hit.raised.in_launcher):
                spoke.add(first + local)
    for index, end in enumerate(ends):
        if end.exit.local and (end.exit.code < 0 or end.exit.spawned) and end.rank is None and end.exit.rank is not None:
            ends[index] = replace(end, rank=first + end.exit.rank)
    return replace(found, hits=tuple(hits), ends=tuple(ends), spoke=frozenset(spoke))


def _resolve_continued_messages(found: Findings) -> Findings:
    """Return the findings with the rank of a message's first line in its further lines."""
    speaker: Hit | None = None
    hits = list(found.hits)
    for index in sorted(range(len(hits)), key=lambda one: hits[one].at):  # NCCL's messages continue for some lines without a label
        hit = hits[index]
        if TERMINATE in hit.text:  # an unlabelled process begins to print
            speaker = None
        near = speaker is not None and hit.at[0] == speaker.at[0] and hit.at[1] - speaker.at[1] <= GOES_ON
        if hit.rank is None and hit.raised is None and speaker is not None and near and hit.task == speaker.task:
            hits[index] = replace(hit, rank=speaker.rank)
        elif hit.rank is not None and hit.signature.role in SPEAKS:
            speaker = hit
    return replace(found, hits=tuple(hits))


def first_of_host(found: Findings) -> int | None:
    """Return the rank of the first process of the host that the text is from; None if it may be from several."""
    hosts = ({hit.host for hit in found.hits} | {end.host for end in found.ends}) - {None}
    if len(hosts) > 1 or len(found.offsets) > 1:
        return None
    if found.offsets:
        return next(iter(found.offsets))
    elsewhere = found.local is not None and found.world is not None and found.local + 1 < found.world
    return None if found.several_nodes or elsewhere else 0


def tasks_are_ranks(found: Findings) -> bool:
    """Return whether srun started one task per rank: not if a launcher runs in the tasks, or a task prints for another rank."""
    mixed = any(hit.task is not None and hit.rank not in (None, hit.task) for hit in found.hits)
    launched = found.agents or found.pids or any(hit.signature.id == "OMP-NOTE" for hit in found.hits)
    return not mixed and not launched


def count_raising(hits: Iterable[Hit]) -> int:
    """Return how many processes raised these exceptions, if there are no labels. A chain of handled exceptions counts once."""
    raised = [(hit, (hit.stream, hit.raised.chain)) for hit in hits if hit.raised and hit.raised.traced]
    first = {hit.at: chain for hit, chain in raised if hit.raised and not hit.raised.chained}
    return len(first) + len({chain for _, chain in raised} - set(first.values()))


def count_showing(hits: Iterable[Hit]) -> int:
    """Return how many processes show a cause, if there are no labels: by their tracebacks, or by lines that each process prints once."""
    hits = list(hits)
    same = Counter(NUMBER.sub("", hit.text) for hit in {hit.at: hit for hit in hits}.values())
    return count_raising(hits) or max(same.values(), default=0)
