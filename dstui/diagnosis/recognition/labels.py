"""Parse the labels that launchers, schedulers and PyTorch put before a line, which tell who wrote it."""

from __future__ import annotations

import re
from itertools import takewhile
from pathlib import PurePath

from dstui.base.dataclass import dataclass

RANK = re.compile(r"\[rank(\d+)\]:?[ ]?", re.IGNORECASE)
"""PyTorch's own label before tracebacks and C++ messages: the global rank."""
LATE_RANK = re.compile(r"\[rank(\d+)\]: (?=Traceback )")
"""The same, behind an unfinished progress bar."""
LABELS = (
    # docker logs and kubectl logs: a time, and the stream.
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+(?:Z|[+-]\d\d:\d\d) (?:std(?:out|err) [FP] )?"), "time"),
    # kubectl logs --prefix.
    (re.compile(r"\[pod/([a-z0-9.-]+)/[a-z0-9.-]+\] ?"), "pod"),
    # A time as users' own wrappers put it (ts, logging, journalctl), if another label follows it.
    (
        re.compile(
            r"(?:\[?\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?\]?|[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d)"
            r"(?: [\w.-]+ [\w.-]+\[\d+\]:)?:? (?=Traceback|  |File \"|[\w.]*(?:Error|Exception|Interrupt)\b"
            r"|During handling|The above|Killed\b|Segmentation fault|Bus error|Aborted\b|\[\w+\d\]:|\d{1,5}: |\[\d+,\d+\]|$)"
        ),
        "time",
    ),
    # vLLM's workers: the place in tensor parallelism, which is the rank of a server with one replica.
    (re.compile(r"\((?:VllmWorker |Worker_)(?:TP|rank=)(\d{1,5}) pid=\d+\) ?"), "rank"),
    # Ray, and SkyPilot, whose rank is that of a node.
    (re.compile(r"\((?:[^\s,]{1,200} pid=\d+(?:, ip=([\w.]+))?|([\w-]+), rank=\d+, pid=\d+(?:, ip=[\w.]+)?)\) ?"), "host"),
    (re.compile(r"\[rank=(\d{1,5})\] ?"), "rank"),
    # srun --label: the task's number, which is a rank or, under torchrun, a node.
    (re.compile(r" {0,8}(?!\d{1,4}:\d\d:\d\d)(\d{1,5}): ?"), "task"),  # not a clock's, or oneCCL's 2026:01:02-03:04:05
    # Wrappers that number nodes: [node-0]: …
    (re.compile(r"\[((?:node|worker|pod|host|master)-?\d{1,4})\]:? "), "host"),
    # torchrun --tee: role and local rank.
    (re.compile(r"\[(?:default|trainer|worker|\w*role\w*)(\d+)\]:"), "local"),
    # dstui --headless and dstui logs; hydra of MPICH and Intel MPI; mpirun --tag-output.
    (re.compile(r"\[ *(\d{1,5})\](?: (?! +\d+ )|: ?(?=\S))"), "rank"),
    # Open MPI 1 to 5, with or without a timestamp; Horovod; SageMaker.
    (
        re.compile(
            r"(?:[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d [\d:]{8} \d{4} ?)?"
            r"\[(?:[\w.@-]+,)?(?:mpirank:)?(\d{1,5})(?:,[\w.-]+)?\]<std(?:out|err)>:? ?"
        ),
        "rank",
    ),
    # pdsh: the host's name, or its address.
    (
        re.compile(
            r"((?:[A-Za-z][\w.-]{0,62}|\d{1,3}(?:\.\d{1,3}){3})): "
            r"(?=\[|Traceback|  |\w+(?:Error|Interrupt|Exception)\b|exit status|[WEI]\d{4} |\d+: |Fatal )"
        ),
        "host",
    ),
)
REPORTED = re.compile(
    r"\[[Rr]ank:? ?(\d{1,5})[\]:, ]|\bRank (\d{1,5})\]"
    r"|\brank(\d{1,5})\[\d+\]\[|\bRank (\d{1,5}), Local Rank \d"
    r"|(?i:(?:^|[\[(<|,] ?|- )(?:global[_ ])?rank ?[=:#-]? {0,3}(\d{1,5})(?: ?[\])>|]| - |: ))"
)
"""The program's, or NCCL's watchdog's, own rank: `[Rank 2] …`, `rank: 2 | …`, `[util:158, rank=2] …`."""
UNRECOGNIZED = re.compile(r"unrecognized arguments: .*--local[-_]rank[= ](\d{1,5})\b")
ANY_RANK = re.compile(r"(?i)\brank ?[-_=:#]? ?(\d{1,5})\b(?!:\d)|(?<=[a-zA-Z])rank[-_]?(\d{1,5})\b")
ENOUGH, MOSTLY = 6, 0.8
"""The number of lines at the beginning of a file, and the share of them that name one rank, from which the file counts as that rank's."""
FILE_RANK = re.compile(r"(?:^|[_.-])rank[_-]?(\d{1,6})(?!\d)", re.IGNORECASE)
HANDLED = re.compile(
    r"(?i)\b(?:retry|retrying|skipped|skipping|fall(?:ing)? ?back|ignored?|ignoring|recovered|trying (?:again|next|another|\d))\b"
    r"|\b(?:load|import)ing (?:\w+ ){1,3}failed: "
)
"""A program's message about an error that it has handled."""
REMARKED = re.compile(r"^.{0,60}?(?<![\w.-])(?:DEBUG|INFO|WARNING)(?![\w.])[^\n]{0,60}?(?::\d+\]|[\]:-]) ")
"""The head of a logger's line at a level below an error: `DEBUG 06-13 18:12:02 [__init__.py:44] `."""
WARNED = re.compile(r":\d+: \w*Warning: ")
"""The format of a Python warning."""
NOT_HOSTS = frozenset(
    {"srun", "slurmstepd", "error", "warning", "info", "note", "fatal", "debug", "step", "loss", "epoch", "main", "wandb", "traceback"}
)


@dataclass(frozen=True, slots=True)
class Label:
    """The labels of a line. `stream` distinguishes interleaved outputs of one file."""

    text: str
    """The line without labels."""
    stream: str = ""
    rank: int | None = None
    host: str | None = None
    task: int | None = None
    """The number in srun's label: a rank only if each task is one."""
    local: int | None = None
    """The number in torchrun's label: the local rank, which is the rank only if there is one host."""


def read_label(line: str, *, late: bool = True) -> Label:
    """Remove the labels of a line; `late`: also a rank's label behind other text before a traceback."""
    stream, rank, host, task, local, text = "", None, None, None, None, line
    for _ in range(3):
        for pattern, kind in LABELS:
            found = pattern.match(text)
            if found is None or (kind == "host" and (host or is_no_host(found[1]))):
                continue
            stream += found[0].strip()
            text = text[found.end() :]
            if kind == "task":
                task = int(found[1])
            elif kind == "rank":
                rank = int(found[1])
            elif kind == "local":
                local = int(found[1])
            elif kind == "pod":
                host, task = found[1], node_of_pod(found[1])
            elif kind == "host":
                host = next((name for name in found.groups() if name), None)
            break
        else:
            break
    if found := RANK.match(text) or (LATE_RANK.search(text) if late else None):
        rank, stream, text = int(found[1]), f"rank{found[1]}", text[found.end() :]
        while text.startswith(found[0]):  # printed twice
            text = text[len(found[0]) :]
    return Label(text, stream, rank, host, task, local)


def node_of_pod(name: str) -> int | None:
    """Return a pod's number within its job: `sft-node-0-1-x7k2p` of a TrainJob, `sft-worker-0` of a PyTorchJob."""
    if found := re.search(r"-\d+-(\d+)(?:-[a-z0-9]{5})?$", name):
        return int(found[1])
    found = re.search(r"-(master|worker)-(\d+)$", name)
    return int(found[2]) + (found[1] == "worker") if found else None


def is_no_host(name: str | None) -> bool:
    """Return whether a name before a colon is that of a program, a class or a level."""
    return name is not None and (
        name.lower() in NOT_HOSTS or name.lower().endswith(("error", "exception", "interrupt", "exit", "timeout", "warning", ".sh", ".py"))
    )


def rank_in(text: str) -> int | None:
    """Return the rank that a line names as its own: `[Rank 2] Watchdog caught …`."""
    found = REPORTED.search(text[:200])
    return int(next(filter(None, found.groups()))) if found else None


def local_in(text: str) -> int | None:
    """Return the local rank in the message of a parser that does not know the launcher's argument."""
    found = UNRECOGNIZED.search(text)
    return int(found[1]) if found else None


def rank_of_beginning(lines: list[str]) -> int | None:
    """Return the rank whose own log a file is: most of its first lines name it, none another. Not rank 0, which may print for all."""
    lines = list(takewhile(lambda line: "Traceback" not in line, lines))
    ranks = [{int(found[1] or found[2]) for found in ANY_RANK.finditer(line)} for line in lines]
    named = set().union(*ranks)
    most = sum(map(bool, ranks)) >= max(ENOUGH, MOSTLY * len(lines))
    return named.pop() or None if most and len(named) == 1 else None


def rank_of_file(path: str) -> int | None:
    """Return the rank in a file's name: rank_3.log, 2026-01-01_rank3.log, or torchrun's attempt_0/3/stderr.log."""
    pure = PurePath(path)
    if found := FILE_RANK.search(pure.name):
        return int(found[1])
    if pure.name in ("stdout.log", "stderr.log") and pure.parent.name.isdigit():
        return int(pure.parent.name)
    return None
