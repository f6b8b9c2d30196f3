"""The names of a job's hosts as short as they still tell one from the other: for a column, and for every line of a log."""

from __future__ import annotations

from collections.abc import Mapping

from rich.cells import cell_len

LONGEST = 14
"""Cells for a name."""


def short_names(hosts: Mapping[int, str]) -> dict[int, str]:
    """Rank -> the name of its host without the domain and the account that all of them have, and no longer than LONGEST."""
    names = list(dict.fromkeys(hosts.values()))
    short = _if_distinct(names, [name.rpartition("@")[2] for name in names])
    domain = _common_domain(short)
    short = _if_distinct(short, [name.removesuffix(domain) if domain else name for name in short])
    short = _if_distinct(short, [end_of(name) for name in short])
    of = dict(zip(names, short, strict=True))
    return {rank: of[host] for rank, host in hosts.items()}


def _if_distinct(names: list[str], shorter: list[str]) -> list[str]:
    """The shorter ones, where they still tell the hosts apart."""
    return shorter if len(set(shorter)) == len(set(names)) else names


def _common_domain(names: list[str]) -> str:
    """`.cluster.example.com`; "" where they have none in common, and of addresses, which are read from the other end."""
    if any(not name.replace(".", "").strip("0123456789") or ":" in name for name in names):
        return ""
    domains = {name.partition(".")[2] for name in names}
    return f".{domains.pop()}" if len(domains) == 1 and all(domains) else ""


def end_of(name: str, width: int = LONGEST) -> str:
    """A name in at most so many cells: its end, where the number is."""
    if cell_len(name) <= width:
        return name
    end = name
    while cell_len(end) > width - 1:
        end = end[1:]
    return f"…{end}"
