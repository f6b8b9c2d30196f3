"""Read stacks that were printed into a log (py-spy dump, faulthandler): in which collective each process waits. Pure."""

from __future__ import annotations

import re

from dstui.diagnosis.findings import TEXT_CAP, Findings, Hit, Place
from dstui.diagnosis.labels import Label
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

    def __init__(self, found: Findings) -> None:
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
