"""Read what was written about a run that hangs: stacks, the report of NCCL's RAS, and dumps of PyTorch's flight recorder.

Stacks (py-spy dump, faulthandler) and RAS (ncclras) are text, read line by line. A dump of the flight recorder (nccl_trace_rank_N,
TORCH_FR_DUMP_TEMP_FILE) is a pickle of dictionaries, lists, numbers and text; it shows which rank was late for which collective. A pickle
with any other instruction is not loaded, since only these cannot import or call anything.
"""

from __future__ import annotations

import pickle
import pickletools
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import PurePath
from typing import Any

from dstui.base.dataclass import dataclass
from dstui.base.text import sanitise
from dstui.diagnosis.findings import FACTS, TEXT_CAP, Collected, Hit, Place
from dstui.diagnosis.recognition.labels import Label
from dstui.diagnosis.signatures import BY_ID

PROCESS = re.compile(r"^Process \d+: .*?(?:--local[-_]rank[= ](\d+)|$)")
MAIN = re.compile(r'^Thread \S+ \([\w+]+\): "MainThread"|^(?:Current thread|Thread) 0x\w+ .*\(most recent call first\)')
OTHER = re.compile(r"^Thread \S+ \(")
FILE = r"(?:distributed_c10d|deepspeed/comm/\w+)\.py"
FRAME = re.compile(rf'^\s+(\w+) \([^)]*{FILE}:\d+\)|^\s+File "[^"]*{FILE}", line \d+ in (\w+)')
COLLECTIVE = re.compile(
    r"(?:monitored_)?barrier|(?:all_)?(?:reduce|gather)(?:_into_tensor|_object)?|reduce_scatter(?:_tensor)?|all_to_all(?:_single)?"
    r"|broadcast(?:_object_list)?|scatter|send|recv"
)
"""Functions of torch.distributed, and of DeepSpeed's layer over it, in which ranks wait for each other."""


class Dumps:
    """Collects the stacks of all files, line by line."""

    def __init__(self, found: Collected) -> None:
        self.found = found
        self._rank: int | None = None
        self._within = False
        self._count = 0

    def feed(self, label: Label, place: Place) -> None:
        """Process one line."""
        text = label.text
        if process := PROCESS.match(text):
            self._rank = int(process[1]) if process[1] else None
        elif MAIN.match(text):
            self._within, self._count = True, self._count + 1
        elif OTHER.match(text):
            self._within = False
        elif self._within and (frame := FRAME.match(text)) and COLLECTIVE.fullmatch(function := frame[1] or frame[2]):
            rank = label.rank if label.rank is not None else self._rank
            who = f"rank {rank}" if rank is not None else f"stack {self._count}"
            hit = Hit(BY_ID["HANG-DESYNC"], place, text[:TEXT_CAP], f"{place[0]}:{label.stream}", rank, label.host)
            self.found.waits.setdefault(who, (function, hit))
            self._within = False


NO_OPERATION = "has not launched any operations"
COUNTS = re.compile(r"^ {1,8}Communicator ranks have different \w+ operation counts")
SEVERAL_RANKS = re.compile(r"^ {1,8}\d+ ranks have (?:launched up to operation (\d+)|not launched any operations)")
ONE_RANK = re.compile(rf"^ {{1,8}}Rank (\d+) (?:has launched up to operation (\d+) |{NO_OPERATION} )?-- ")
COMMUNICATOR = re.compile(r"^#(\d+-\d+) \([0-9a-f]+\) ")
LARGEST_COMMUNICATOR = "0-0"
"""The first communicator of the report. It is the largest, so that its ranks are those of the run."""
INCOMPLETE = re.compile(r"^ {1,8}Missing communicator data from \d+ rank")


class Ras:
    """The report of NCCL's RAS (2.24 and later): ranks that launched fewer operations than most, and ranks that did not answer."""

    def __init__(self, found: Collected) -> None:
        self.found = found
        self._most = self._count = -1
        self._outliers: list[tuple[int, Hit]] = []
        self._silent, self._communicator = False, LARGEST_COMMUNICATOR

    def feed(self, label: Label, place: Place) -> None:
        """Read one line."""
        text = label.text
        if group := COMMUNICATOR.match(text):
            self._communicator = group[1]
        elif COUNTS.match(text) or INCOMPLETE.match(text):
            self._most = self._count = -1
            self._outliers, self._silent = [], COUNTS.match(text) is None
        elif several := SEVERAL_RANKS.match(text):
            self._count = int(several[1] or 0)
            self._compare()
        elif one := ONE_RANK.match(text):
            rank = int(one[1]) if self._communicator == LARGEST_COMMUNICATOR else None
            hit = Hit(BY_ID["HANG"], place, text[:TEXT_CAP], f"{place[0]}:{label.stream}", rank, label.host)
            if self._silent:
                self.found.hits.append(hit)
            elif one[2] or NO_OPERATION in text or self._count >= 0:
                self._count = int(one[2] or 0) if one[2] or NO_OPERATION in text else self._count
                self._outliers.append((self._count, hit))
                self._compare()

    def _compare(self) -> None:
        """Keep the ranks that are known to be late: the report begins with the most frequent number, not with the largest."""
        self._most = max(self._most, self._count)
        self.found.hits += [hit for count, hit in self._outliers if count < self._most]
        self._outliers = [(count, hit) for count, hit in self._outliers if count >= self._most]


NAMED = re.compile(r"(?:nccl|comm_lib)_trace_rank_(\d{1,7})$")
HEAD = b"\x80\x02}"
LARGEST = 64 << 20
MAX_STEPS = 4_000_000
"""Instructions of a dump: 2,000 collectives with their stacks are about 150,000."""
PLAIN = frozenset(
    {"PROTO", "STOP", "MARK", "NONE", "NEWTRUE", "NEWFALSE", "BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT", "BINUNICODE"}
    | {"EMPTY_DICT", "EMPTY_LIST", "EMPTY_TUPLE", "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3", "SETITEM", "SETITEMS", "APPEND", "APPENDS"}
    | {"BINPUT", "LONG_BINPUT", "BINGET", "LONG_BINGET"}
)
"""Instructions that create plain values and refer to them."""
LIBRARY = re.compile(r"[/\\](?:site|dist)-packages[/\\]|[/\\]lib[/\\]python3")
SAME_SIZES = frozenset({"all_reduce", "reduce_scatter_tensor", "all_gather_into_tensor"})
"""Collectives whose input has the same size on all ranks."""
WAITS = ("NCCL-WATCHDOG", "GLOO-TIMEOUT", "HANG-DESYNC", "HANG", "FR-DUMP")
"""Causes for which the answer adds the late rank."""
MAX_NAMED, MAX_SIZES, LONGEST = 6, 16, 200


@dataclass(frozen=True, slots=True)
class Collective:
    """A collective that a rank enqueued."""

    number: int
    name: str
    sizes: str
    at: str
    """The line of the program: `train.py:38 in train_step`."""

    def __str__(self) -> str:
        return f"{self.name} {self.number}{f' ({self.at})' if self.at else ''}"


@dataclass(frozen=True, slots=True)
class Dump:
    """The collectives of one rank, by process group and number."""

    file: int
    """Its number among the files that are read."""
    rank: int
    groups: Mapping[str, Mapping[int, Collective]]


def is_dump(name: str, head: bytes) -> bool:
    """Return whether a file is a dump, by its name and how it begins."""
    return head.startswith(HEAD) and NAMED.search(PurePath(name).name) is not None and b"version" in head


def read_dump(name: str, file: int, data: bytes) -> Dump | None:
    """Return the content of a dump; None if it is incomplete or not a dump."""
    named = NAMED.search(PurePath(name).name)
    try:
        for step, (operation, argument, _) in enumerate(pickletools.genops(data)):
            if operation.name not in PLAIN or step > MAX_STEPS or (operation.name == "LONG_BINPUT" and (argument or 0) > step):
                return None  # the unpickler allocates memory up to that index
        entries = pickle.loads(data)["entries"]
        groups = dict[str, dict[int, Collective]]()
        for entry in entries:
            if not entry["is_p2p"]:
                name_of, described = entry["process_group"]
                group, one = f"{_text(name_of)} ({_text(described)})", _collective(entry)
                groups.setdefault(group, {})[one.number] = one
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, OverflowError, pickle.UnpicklingError):
        return None
    return Dump(file, int(named[1]), groups) if named and groups else None


def _collective(entry: Mapping[str, Any]) -> Collective:
    frames = entry.get("frames") or []
    own = next((frame for frame in frames if not LIBRARY.search(frame["filename"])), None)
    at = f"{PurePath(_text(own['filename'])).name}:{int(own['line'])} in {_text(own['name'])}" if own else ""
    name = _text(entry["profiling_name"])
    return Collective(int(entry["collective_seq_id"]), name.partition(":")[2] or name, _sizes(entry.get("input_sizes")), at)


def _text(value: Any) -> str:
    """Return a text of the dump. Raises TypeError for any other value, since nested ones may be huge when written out."""
    if not isinstance(value, str):
        raise TypeError(value.__class__)
    return sanitise(value)[:LONGEST]


def _sizes(value: Any) -> str:
    """Return the sizes of tensors, as they are shown: `[4000, 8], [16]`."""
    return ", ".join(str([int(size) for size in tensor[:MAX_SIZES]]) for tensor in value[:MAX_SIZES])


def add_dumps(found: Collected, dumps: Iterable[Dump]) -> None:
    """Compare the dumps of several ranks, and add a late rank or a collective that differs to the findings."""
    by_rank = {dump.rank: dump for dump in dumps}
    groups = dict.fromkeys(group for dump in by_rank.values() for group in dump.groups)
    for group in groups:
        of_ranks = {rank: dump.groups[group] for rank, dump in sorted(by_rank.items()) if group in dump.groups}
        if len(of_ranks) > 1 and (_add_mismatch(found, by_rank, group, of_ranks) or _add_late(found, by_rank, group, of_ranks)):
            return


def _add_late(found: Collected, dumps: Mapping[int, Dump], group: str, ranks: Mapping[int, Mapping[int, Collective]]) -> bool:
    last = {rank: max(done) for rank, done in ranks.items()}
    furthest = max(last.values())
    late = [rank for rank in last if last[rank] < furthest]
    if not late:
        return False
    waiting = next(rank for rank in last if last[rank] == furthest)
    first = min(late, key=lambda rank: (last[rank], rank))
    sentence = (
        f"The flight recorder of group {group}: {_ranks(rank for rank in last if rank not in late)} wait"
        f"{'s' if len(last) - len(late) == 1 else ''} in {ranks[waiting][furthest]}, which {_ranks(late)} "
        f"{'has' if len(late) == 1 else 'have'} not reached; the last of rank {first} is {ranks[first][last[first]]}."
    )
    found.enqueued.update(last)
    found.remarks.update(dict.fromkeys(WAITS, sentence))
    found.hits.append(Hit(BY_ID["HANG"], (dumps[first].file, 1), sentence, FACTS, first))
    return True


def _add_mismatch(found: Collected, dumps: Mapping[int, Dump], group: str, ranks: Mapping[int, Mapping[int, Collective]]) -> bool:
    """Return the first collective that is not the same on all ranks."""
    common = set.intersection(*(set(done) for done in ranks.values()))
    for number in sorted(common):
        each = {rank: done[number] for rank, done in ranks.items()}
        kinds = {rank: (one.name, one.sizes if one.name in SAME_SIZES else "") for rank, one in each.items()}
        counted = Counter(kinds.values())
        if len(counted) == 1:
            continue
        usual = counted.most_common(1)[0][0]
        odd = next(rank for rank in kinds if kinds[rank] != usual)
        other = next(rank for rank in kinds if kinds[rank] == usual)
        told = [f"rank {rank}, {each[rank]} of {each[rank].sizes}," for rank in (other, odd)]
        alone = len(kinds) > 2 and counted[kinds[odd]] == 1
        sentence = f"The flight recorder of group {group}: number {number} is another one on {told[0]} than on {told[1].rstrip(',')}."
        found.hits.append(Hit(BY_ID["COLLECTIVE-MISMATCH"], (dumps[odd].file, 1), sentence, FACTS, odd if alone else None))
        found.remarks.update(dict.fromkeys((*WAITS, "COLLECTIVE-MISMATCH"), sentence))
        return True
    return False


def _ranks(ranks: Iterable[int]) -> str:
    """`rank 3`, `ranks 0, 2`, `ranks 0, 1, 2, … (512)`."""
    listed = list(ranks)
    words = ", ".join(map(str, listed[:MAX_NAMED])) + (f", … ({len(listed)})" if len(listed) > MAX_NAMED else "")
    return f"rank{'s' if len(listed) > 1 else ''} {words}"
