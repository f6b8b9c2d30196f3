"""Who waits for whom: the stacks of the ranks, those at the same place together, and who has not come to where the others wait. Pure.

A collective is a meeting of all ranks: a job in which some ranks stand in one and others do not hangs because of the others.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from dstui.jobs.store.ranks import ranks_in_words
from dstui.jobs.watch.stacks import Stack

MEETING = re.compile(
    r"^(?P<name>\w*(?:all_?reduce|broadcast|all_?gather|reduce_scatter|all_to_all|barrier|gather|scatter|reduce|recv|send|rendezvous)\w*)"
    r" \((?:torch/distributed|deepspeed/comm|deepspeed/runtime/comm)/"
)
"""A frame in which a rank meets others."""
JOINING = ("rendezvous", "_store_based_barrier", "init_process_group")


@dataclass(frozen=True, slots=True)
class StackPlace:
    """Where a rank stands."""

    meeting: str
    """The collective that it waits in; "" where it is in none."""
    at: str
    """The line of the user's program; the innermost frame where none is known."""

    def __str__(self) -> str:
        if self.meeting in JOINING:
            return f"waiting for the other ranks to join, from {self.at}"
        return f"waiting in {self.meeting}, from {self.at}" if self.meeting else f"in {self.at}"


def place_of(stack: Stack) -> StackPlace | None:
    """Return where a rank's main thread stands; None where its stack is unknown."""
    frames = stack.threads[0].frames if stack.threads else ()
    if not frames:
        return None
    names = [found["name"] for frame in frames if (found := MEETING.match(frame))]
    return StackPlace(names[-1] if names else "", stack.threads[0].own or frames[0])


def grouped(stacks: Iterable[Stack]) -> tuple[str, ...]:
    """Sentences: who is late for which meeting, then each place with the ranks that stand there, the odd ones first."""
    places: dict[StackPlace, list[int]] = {}
    unknown: dict[str, list[int]] = {}
    for stack in stacks:
        place = place_of(stack)
        if place is None:
            unknown.setdefault(stack.reason or "its stack is empty", []).append(stack.rank)
        else:
            places.setdefault(place, []).append(stack.rank)
    ordered = sorted(places.items(), key=lambda group: (len(group[1]), bool(group[0].meeting), group[1]))
    lines = [f"{ranks_in_words(ranks)}: {place}" for place, ranks in ordered]
    lines += [f"{ranks_in_words(ranks)}: unknown, {reason}" for reason, ranks in unknown.items()]
    return (*_late(ordered), *lines)


def _late(places: Sequence[tuple[StackPlace, list[int]]]) -> list[str]:
    """Return what the places say together, where they say anything."""
    waiting = {place.meeting for place, _ in places if place.meeting}
    late = sorted(rank for place, ranks in places if not place.meeting for rank in ranks)
    there = sorted(rank for place, ranks in places if place.meeting for rank in ranks)
    if late and there:
        where = f"the {waiting.pop()}" if len(waiting) == 1 else "what"
        reached = "has not reached" if len(late) == 1 else "have not reached"
        return [f"{ranks_in_words(late)} {reached} {where} that {ranks_in_words(there)} wait{'s' if len(there) == 1 else ''} in."]
    if len(places) > 1 and not late:
        return ["The ranks wait in different meetings, each for the others: one of them took another way through the program."]
    return []
