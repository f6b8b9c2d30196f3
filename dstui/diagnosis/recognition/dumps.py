"""Read what was printed of a run that hangs: stacks (py-spy dump, faulthandler) and the report of NCCL's RAS (ncclras). Pure."""

from __future__ import annotations

import re

from dstui.diagnosis.findings import TEXT_CAP, Hit, Place
from dstui.diagnosis.recognition.collected import Collected
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
OF_SEVERAL = re.compile(r"^ {1,8}\d+ ranks have (?:launched up to operation (\d+)|not launched any operations)")
OF_A_RANK = re.compile(rf"^ {{1,8}}Rank (\d+) (?:has launched up to operation (\d+) |{NO_OPERATION} )?-- ")
COMMUNICATOR = re.compile(r"^#(\d+-\d+) \([0-9a-f]+\) ")
LARGEST = "0-0"
"""The first communicator of the report. It is the largest, so that its ranks are those of the run."""
INCOMPLETE = re.compile(r"^ {1,8}Missing communicator data from \d+ rank")


class Ras:
    """The report of NCCL's RAS (2.24 and later): ranks that launched fewer operations than most, and ranks that did not answer."""

    def __init__(self, found: Collected) -> None:
        self.found = found
        self._most = self._count = -1
        self._outliers: list[tuple[int, Hit]] = []
        self._silent, self._communicator = False, LARGEST

    def feed(self, label: Label, place: Place) -> None:
        """Read one line."""
        text = label.text
        if group := COMMUNICATOR.match(text):
            self._communicator = group[1]
        elif COUNTS.match(text) or INCOMPLETE.match(text):
            self._most = self._count = -1
            self._outliers, self._silent = [], COUNTS.match(text) is None
        elif several := OF_SEVERAL.match(text):
            self._count = int(several[1] or 0)
            self._compare()
        elif one := OF_A_RANK.match(text):
            rank = int(one[1]) if self._communicator == LARGEST else None
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
