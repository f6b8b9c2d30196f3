"""Analyse stacks of silent ranks: group ranks at the same place, and find those that have not reached the others' collective. Pure.

A collective needs all ranks: if some ranks are in one and others are not, the job hangs because of the others.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from dstui.base.dataclass import dataclass
from dstui.jobs.store.ranks import ranks_in_words
from dstui.jobs.watch.stacks import Stack

MEETING = re.compile(
    r"^(?:\w+\.)?(?P<name>\w*(?:all_?reduce|broadcast|all_?gather|reduce_scatter|all_to_all|barrier|gather|scatter|reduce|recv|send|rendezvous)\w*)"
    r" \((?:torch/distributed|deepspeed/comm|deepspeed/runtime/comm)/"
)
"""A frame of a collective."""
ENGINE = re.compile(r"^(?:\w+\.)?(?P<phase>forward|backward|step|train_batch|eval_batch) \(deepspeed/runtime/(?:pipe/)?engine\.py:")
"""A frame of DeepSpeed's engine, with its phase."""
SHARED_PHASES = ("backward", "step", "train_batch")
"""Phases in which the device waits for other ranks while the rank is in no collective of Python's."""
JOINING = ("rendezvous", "_store_based_barrier", "init_process_group")


@dataclass(frozen=True, slots=True)
class StackPlace:
    """The place of a rank."""

    meeting: str
    """The collective in which it waits; "" if none."""
    at: str
    """The line of the user's program; if unknown, the innermost frame."""
    phase: str = ""
    """The phase of DeepSpeed's engine."""

    def __str__(self) -> str:
        if self.meeting in JOINING:
            return f"waiting for the other ranks to join, from {self.at}"
        phase = f" in {self.phase}" if self.phase else ""
        return (
            f"waiting in {self.meeting}{phase}, from {self.at}"
            if self.meeting
            else f"{phase.lstrip()}{', from' if phase else 'in'} {self.at}"
        )


@dataclass(frozen=True, slots=True)
class Standstill:
    """The combined result of all stacks."""

    late: tuple[int, ...]
    """Ranks that have not reached the others' collective; empty if undecided."""
    at: str
    """The place of the first of them; empty if unknown."""
    lines: tuple[str, ...]
    """Sentences: which ranks are late for which collective, then each place with its ranks, the smallest groups first."""


def place_of(stack: Stack) -> StackPlace | None:
    """Return the place of a rank's main thread; None if its stack is unknown."""
    frames = stack.threads[0].frames if stack.threads else ()
    if not frames:
        return None
    names = [found["name"] for frame in frames if (found := MEETING.match(frame))]
    phases = [found["phase"] for frame in frames if (found := ENGINE.match(frame))]
    return StackPlace(names[-1] if names else "", stack.threads[0].own or frames[0], phases[-1] if phases else "")


def analyse(stacks: Iterable[Stack]) -> Standstill:
    """Return which ranks are late for what, and the place of every rank."""
    places: dict[StackPlace, list[int]] = {}
    unknown: dict[str, list[int]] = {}
    halted: list[int] = []
    for stack in stacks:
        place = place_of(stack)
        if place is None:
            unknown.setdefault(stack.reason or "its stack is empty", []).append(stack.rank)
            halted += [stack.rank] if stack.halted else []
        else:
            places.setdefault(place, []).append(stack.rank)
    ordered = sorted(places.items(), key=lambda group: (len(group[1]), bool(group[0].meeting or group[0].phase), group[1]))
    late, there, where = _late(ordered, halted)
    lines = [f"{ranks_in_words(ranks)}: {place}" for place, ranks in ordered]
    lines += [f"{ranks_in_words(ranks)}: unknown, {reason}" for reason, ranks in unknown.items()]
    if late:
        reached, waits = "has not reached" if len(late) == 1 else "have not reached", "waits" if len(there) == 1 else "wait"
        lines.insert(0, f"{ranks_in_words(late)} {reached} {where} that {ranks_in_words(there)} {waits} in.")
    elif len(places) > 1 and all(place.meeting for place in places):
        text = "The ranks wait in different collectives, each for the others: one of them took another path through the program."
        lines.insert(0, text)
    at = next((place.at for place, ranks in ordered if late and late[0] in ranks), "")
    return Standstill(tuple(late), at, tuple(lines))


def grouped(stacks: Iterable[Stack]) -> tuple[str, ...]:
    """Return the sentences of `analyse`."""
    return analyse(stacks).lines


def _late(places: Sequence[tuple[StackPlace, list[int]]], halted: list[int]) -> tuple[list[int], list[int], str]:
    """Return the late ranks, the waiting ranks and their collective; empty if the places do not decide that."""
    in_meetings = [(place.meeting, ranks) for place, ranks in places]
    in_phases = [(place.phase if place.phase in SHARED_PHASES else "", ranks) for place, ranks in places]
    for named in (in_meetings, in_phases):
        there = sorted(rank for name, ranks in named if name for rank in ranks)
        late = sorted([rank for name, ranks in named if not name for rank in ranks] + halted)
        waiting = {name for name, _ in named if name}
        if there:
            return (late, there, f"the {waiting.pop()}" if len(waiting) == 1 else "what") if late else ([], [], "")
    return [], [], ""
