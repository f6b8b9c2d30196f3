"""The grammar of DeepSpeed's hostfile and of --include, --exclude, --num_nodes and --num_gpus: which hosts and slots remain.

Source: deepspeed/launcher/runner.py (_parse_hostfile, parse_resource_filter, main), release 0.19.8.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

_LINE = re.compile(r"^(\S+)\s+slots=(\d+)")


class HostfileError(Exception):
    """A hostfile or filter that DeepSpeed refuses: a sentence, with the line (from 1) where there is one."""

    def __init__(self, message: str, line: int | None = None) -> None:
        super().__init__(f"line {line}: {message}" if line else message)
        self.message, self.line = message, line


def parse_hostfile(text: str) -> dict[str, int]:
    """Host -> slots, in the order of the file. Raises HostfileError."""
    pool: dict[str, int] = {}
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.strip()
        if not line or line.startswith("#"):
            continue
        match = _LINE.search(line)
        if match is None:
            raise HostfileError(f"{line[:60]!r} is not `HOST slots=N`", number)
        host, slots = match[1], int(match[2])
        if host in pool:
            raise HostfileError(f"the host {host!r} stands here a second time: give it once, with all its slots", number)
        pool[host] = slots
    if not pool:
        raise HostfileError("no host in it: one line per host, `worker-1 slots=8`")
    return pool


def hostfile_text(hosts: Mapping[str, int]) -> str:
    """The hostfile for these hosts."""
    return "".join(f"{host} slots={slots}\n" for host, slots in hosts.items())


def select(
    pool: Mapping[str, int],
    *,
    include: str | None = None,
    exclude: str | None = None,
    num_nodes: int | None = None,
    num_gpus: int | None = None,
) -> dict[str, list[int]]:
    """Host -> the slots that remain, as DeepSpeed filters them. Raises HostfileError."""
    if include and exclude:
        raise HostfileError("include and exclude are both given: DeepSpeed takes one of them")
    if (include or exclude) and (num_nodes or num_gpus):
        raise HostfileError("num_nodes and num_gpus do not go with include or exclude: keep one way of choosing")
    slots = {host: list(range(count)) for host, count in pool.items()}
    if include:
        wanted = _filter(include, slots, "include")
        return {host: sorted(wanted[host]) for host in slots if host in wanted}
    if exclude:
        unwanted = _filter(exclude, slots, "exclude")
        left = {host: [s for s in has if s not in unwanted.get(host, ())] for host, has in slots.items()}
        left = {host: has for host, has in left.items() if has}
        if not left:
            raise HostfileError(f"exclude {exclude!r} leaves no slot at all")
        return left
    if num_nodes:
        if num_nodes > len(slots):
            raise HostfileError(f"num_nodes is {num_nodes}, but there are only {len(slots)} hosts")
        slots = dict(list(slots.items())[:num_nodes])
    if num_gpus:
        slots = {host: list(range(num_gpus)) for host in slots}
    return slots


def _filter(text: str, slots: Mapping[str, list[int]], name: str) -> dict[str, set[int]]:
    chosen: dict[str, set[int]] = {}
    for part in text.split("@"):
        host, colon, listed = part.partition(":")
        if host not in slots:
            raise HostfileError(f"{name} names the host {host!r}, which is not among {', '.join(slots)}")
        try:
            wanted = [int(s) for s in listed.split(",")] if colon else slots[host]
        except ValueError:
            raise HostfileError(f"{name} has {part!r}: slots are numbers with commas ({host}:0,2), ranges are not known") from None
        for slot in wanted:
            if slot not in slots[host]:
                raise HostfileError(f"{name} names slot {slot} of {host}, which has slots 0 to {len(slots[host]) - 1}")
        chosen.setdefault(host, set()).update(wanted)
    return chosen
