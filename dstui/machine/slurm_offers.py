"""The offers of a SLURM cluster to its user: partitions with their limits, accounts and QOS, read from the output of SLURM's commands.

Sources: sinfo(1), `scontrol show partition` and `sacctmgr show associations` of Slurm 22.05 to 24.11.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from dstui.base.dataclass import dataclass

SINFO = "%R|%D|%c|%m|%G|%f"
"""The columns of `sinfo --format`: partition, nodes, CPUs, memory (MB), generic resources and features of each kind of node."""
ASSOCIATIONS = "Account,Partition,QOS"
"""The columns of `sacctmgr show associations`."""
UNLIMITED = ("UNLIMITED", "INFINITE", "NONE", "N/A", "")
_TIME = re.compile(r"(?:(\d{1,6})-)?(\d{1,7})(?::(\d{1,2}))?(?::(\d{1,2}))?")
_GPUS = re.compile(r"gpu(?::[^:,()\s]+)?:(\d{1,4})")


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition and its limits for one job. None means that there is no limit or that it is not known."""

    name: str
    default: bool = False
    up: bool = True
    nodes: int | None = None
    """The maximum number of nodes of a job: the partition's nodes, or its limit if that is lower."""
    seconds: int | None = None
    """The maximum duration of a job in seconds."""
    accounts: tuple[str, ...] | None = None
    """The accounts that the partition admits; None admits all."""
    qos: tuple[str, ...] | None = None
    gpus: int | None = None
    """The number of GPUs of the largest node."""
    cpus: int | None = None
    gres: tuple[str, ...] = ()
    """The generic resources of the nodes, such as gpu:a100:8."""
    features: tuple[str, ...] = ()

    @property
    def limits(self) -> str:
        """The limits in one line: `16 nodes x 8 GPUs, at most 2-00:00:00`."""
        size = f"{self.nodes} node{'s' * (self.nodes != 1)}" if self.nodes is not None else ""
        each = f" x {self.gpus} GPU{'s' * (self.gpus != 1)}" if size and self.gpus else ""
        time = f"at most {format_time(self.seconds)}" if self.seconds is not None else "no time limit"
        return ", ".join(filter(None, (size + each, time, "" if self.up else "down")))


@dataclass(frozen=True, slots=True)
class SlurmOffers:
    """The offers of a cluster to this user."""

    partitions: tuple[Partition, ...] = ()
    accounts: tuple[str, ...] = ()
    """The user's accounts; empty if the cluster keeps no accounting."""
    qos: tuple[str, ...] = ()

    def partition(self, name: str | None) -> Partition | None:
        """Return the partition called `name`, or the default partition if `name` is empty. None if there is none."""
        return next((one for one in self.partitions if (one.name == name if name else one.default)), None)


def read_offers(partitions: str, nodes: str, associations: str) -> SlurmOffers:
    """Read the offers from the outputs of `scontrol --oneliner show partition`, `sinfo` (SINFO) and `sacctmgr` (ASSOCIATIONS)."""
    kinds: dict[str, list[Sequence[str]]] = {}
    for line in nodes.splitlines():
        name, *facts = line.split("|")
        if len(facts) == SINFO.count("|"):
            kinds.setdefault(name.strip(), []).append(facts)
    rows = [line.split("|", 2) for line in associations.splitlines() if line.count("|") == 2]
    return SlurmOffers(
        tuple(_partition(line, kinds) for line in partitions.splitlines() if line.startswith("PartitionName=")),
        tuple(dict.fromkeys(account for account, _, _ in rows if account)),
        tuple(dict.fromkeys(one for _, _, names in rows for one in names.split(",") if one)),
    )


def _partition(line: str, kinds: Mapping[str, Sequence[Sequence[str]]]) -> Partition:
    facts = {name: value for name, equals, value in (word.partition("=") for word in line.split()) if equals}
    name = facts["PartitionName"]
    own = kinds.get(name, ())
    total, most = _number(facts.get("TotalNodes", "")), _number(facts.get("MaxNodes", ""))
    gres = tuple(dict.fromkeys(part for one in own for part in _resources(one[3])))
    gpus = [sum(map(int, _GPUS.findall(one[3]))) for one in own]
    return Partition(
        name,
        default=facts.get("Default") == "YES",
        up=facts.get("State", "UP") == "UP",
        nodes=min((count for count in (total, most) if count is not None), default=None),
        seconds=seconds_of(facts.get("MaxTime", "")),
        accounts=_admitted(facts.get("AllowAccounts", "ALL")),
        qos=_admitted(facts.get("AllowQos", "ALL")),
        gpus=max(gpus, default=None),
        cpus=max((count for one in own if (count := _number(one[1])) is not None), default=None),
        gres=gres,
        features=tuple(dict.fromkeys(word for one in own for word in one[4].split(",") if word and word != "(null)")),
    )


def _admitted(text: str) -> tuple[str, ...] | None:
    return None if text.upper() == "ALL" else tuple(filter(None, text.split(",")))


def _resources(text: str) -> Iterator[str]:
    """Yield the parts of a list such as `gpu:a100:8(S:0-1),nvme:1`, without the sockets."""
    for part in re.sub(r"\([^)]*\)", "", text).split(","):
        if part.strip():
            yield part.strip()


def _number(text: str) -> int | None:
    found = re.match(r"\d{1,9}", text)  # sinfo writes 64+ if the nodes differ
    return int(found[0]) if found else None


def seconds_of(text: str) -> int | None:
    """Return a time limit in seconds, or None for no limit and for invalid text.

    The formats are those of sbatch: minutes, MM:SS, HH:MM:SS, D-HH, D-HH:MM, D-HH:MM:SS.
    """
    match = _TIME.fullmatch(text.strip())
    if match is None or text.strip().upper() in UNLIMITED:
        return None
    days, first, second, third = (int(part) if part else None for part in match.groups())
    assert first is not None
    if days is not None:
        return ((days * 24 + first) * 60 + (second or 0)) * 60 + (third or 0)
    if third is not None:
        return (first * 60 + (second or 0)) * 60 + third
    return first * 60 + (second or 0)


def format_time(seconds: int) -> str:
    """Format a duration as SLURM does: `2-00:00:00`, `00:30:00`."""
    days, rest = divmod(seconds, 86400)
    clock = f"{rest // 3600:02}:{rest % 3600 // 60:02}:{rest % 60:02}"
    return f"{days}-{clock}" if days else clock
