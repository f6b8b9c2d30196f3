"""The one model of ranks: whose line a line is, which rank a cause began on, whether every rank shows it. Pure.

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
from typing import TYPE_CHECKING

from dstui.diagnosis.findings import Ended, Findings, Hit

if TYPE_CHECKING:
    from dstui.diagnosis.failure_context import FailureContext

NUMBER = re.compile(r"\d+")
A_HOST = 4
"""Ranks in a row: the log of one host of several has no others."""
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
                found.spoke |= {hit.rank} if hit.signature.role in SPEAKS and process is None else set()
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
    """The rank of the first process of the host that the text is of; None where it may be of several."""
    hosts = ({hit.host for hit in found.hits} | {end.host for end in found.ends}) - {None}
    if len(hosts) > 1 or len(found.offsets) > 1:
        return None
    if found.offsets:
        return next(iter(found.offsets))
    elsewhere = found.local is not None and found.world is not None and found.local + 1 < found.world
    return None if found.several_nodes or elsewhere else 0


def tasks_are_ranks(found: Findings) -> bool:
    """Whether srun started one task per rank: not where a launcher runs in the tasks, or a task speaks for another rank."""
    mixed = any(hit.task is not None and hit.rank not in (None, hit.task) for hit in found.hits)
    launched = found.agents or found.pids or any(hit.signature.id == "OMP-NOTE" for hit in found.hits)
    return not mixed and not launched


def tracebacks(hits: Iterable[Hit]) -> int:
    """How many processes raised these exceptions, where no label tells; what was raised while another one was handled counts with that."""
    raised = [(hit, (hit.stream, hit.raised.chain)) for hit in hits if hit.raised and hit.raised.traced]
    first = {hit.at: chain for hit, chain in raised if hit.raised and not hit.raised.chained}
    return len(first) + len({chain for _, chain in raised} - set(first.values()))


def shown(hits: Iterable[Hit]) -> int:
    """How many processes show a cause, where no label tells: by their tracebacks, or by lines that each process says once."""
    hits = list(hits)
    same = Counter(NUMBER.sub("", hit.text) for hit in {hit.at: hit for hit in hits}.values())
    return tracebacks(hits) or max(same.values(), default=0)


def every_rank(context: FailureContext, hits: list[Hit]) -> bool:
    """Whether all ranks show the cause: by their labels, or by as many tracebacks without a label as there are ranks."""
    ranks = {hit.rank for hit in hits if hit.rank is not None and hit.signature.role in ("root", "symptom")}
    if len(set(context.found.enqueued.values())) > 1:
        return False  # one of them has come less far
    if len(ranks) > 1:
        whole_host = len(ranks) >= A_HOST and max(ranks) - min(ranks) + 1 == len(ranks)
        named = {hit.raised.name for hit in hits if hit.raised and hit.signature.id == "USER-PY"}
        expected = context.heard if whole_host else context.ranks | set(range(max(ranks)))
        return len(named) <= 1 and ranks >= expected and (whole_host or len(ranks) >= context.processes)
    children = {hit.raised.child for hit in hits if hit.raised and hit.raised.child is not None}
    if len(children) > 1 and children == set(range(1, len(children) + 1)):
        return True
    unlabelled = [hit for hit in hits if hit.rank is None]
    texts = {hit.text for hit in unlabelled if hit.raised}
    beside = [
        hit for hit in context.found.named if hit.rank is None and hit.text in texts
    ]  # of tracebacks that were written into each other
    return 1 < context.processes <= shown(unlabelled) + len(beside) or (not ranks and _all_ended_alike(context, hits))


def _all_ended_alike(context: FailureContext, hits: list[Hit]) -> bool:
    """Whether torchrun's table has every rank as ended by itself with an exception's status, several have begun to say so, and nobody
    speaks of a lost peer."""
    of_launchers = sum(
        hit.signature.id == "CHILD-FAILED" and hit.raised is not None and hit.raised.in_launcher for hit in context.found.hits
    )
    if context.found.tracebacks - of_launchers < 2:
        return False
    ended = {end.rank for end in context.bad_ends if end.exit.code == 1 and end.rank is not None}
    peers = any(hit.signature.role in ("cascade", "symptom") and hit.signature.id != "CHILD-FAILED" for hit in context.found.hits)
    return len(ended) >= max(context.processes, 2) and ended >= context.ranks and not peers and any(hit.raised for hit in hits)


def first_failing(context: FailureContext, hits: list[Hit]) -> tuple[int | None, bool]:
    """The rank that a cause began on, and whether the text says so rather than the circumstances.

    A process id, a host, and the order of two tracebacks without a label name no rank.
    """
    known = [hit for hit in hits if hit.rank is not None]
    if known:
        return known[0].rank, True
    if context.single:
        return 0, True
    mentioned = {hit.rank for hit in context.found.hits if hit.rank is not None and hit.signature is hits[0].signature}
    if len(mentioned) == 1:
        return mentioned.pop(), True  # the program's own word for it, beside a traceback without a label
    if any(hit.raised for hit in hits):
        return named_by_launcher(context), True
    rank, certain = context.suspect()
    return (rank, certain) if rank is not None else (named_by_launcher(context), certain)


def named_by_launcher(context: FailureContext) -> int | None:
    """The rank that ended first by itself, as its launcher saw it: the last resort, since that is not always the first that failed."""
    if first := next((end for end in context.bad_ends if end.root or end.exit.reported), None):
        return first.rank
    ends = [end for end in context.bad_ends if not end.exit.whole]
    ranks = {_rank_of(context.found, end) for end in ends} - {None}
    return ranks.pop() if len(ranks) == 1 else None


def _rank_of(found: Findings, end: Ended) -> int | None:
    """The rank that an end is told of."""
    if end.rank is not None or not end.exit.local or end.exit.rank is None:
        return end.rank
    first = first_of_host(found)
    return None if first is None else first + end.exit.rank
