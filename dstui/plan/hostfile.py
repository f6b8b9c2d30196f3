"""The grammar of DeepSpeed's hostfile and of --include, --exclude, --num_nodes and --num_gpus, which select hosts and slots.

The hosts of an ssh configuration (`Host worker-1 worker-2`) are only suggestions to the user.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping

from dstui.base.dataclass import dataclass
from dstui.base.limits import MAX_DIGITS, MAX_RANKS, MAX_SLOTS

_LINE = re.compile(r"^(\S+)\s+slots=(\d+)")
_NAME = r"[A-Za-z0-9_][A-Za-z0-9._-]*"
_HOST = re.compile(rf"(?:{_NAME}@)?(?:{_NAME}|\[?[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*(?:%{_NAME})?\]?)")
_LONGEST_HOST = 255


class HostfileError(Exception):
    """A hostfile or filter that DeepSpeed refuses. Holds a sentence, and the line (from 1) if there is one."""

    def __init__(self, message: str, line: int | None = None) -> None:
        super().__init__(f"line {line}: {message}" if line else message)
        self.message, self.line = message, line


@dataclass(frozen=True, slots=True)
class HostfileProblem:
    """The reason why a Plan's hostfile gives no hosts."""

    message: str
    line: int | None = None
    """The line, from 1; None for the whole file."""
    missing: bool = False
    """True if the file does not exist here: a Plan may be viewed on another machine than the one it runs on."""


def host_problem(name: str) -> str:
    """Return why ssh, pdsh and mpirun cannot all use this host name; "" if they can.

    Valid are a name, an IPv4 or an IPv6 address, with an optional USER@ in front: nothing that could be read as an option or by a shell.
    """
    if not name or any(letter.isspace() for letter in name):
        return "a host's name has no spaces" if name else "a host's name is missing"
    if name.startswith("-"):
        return "a host's name never begins with '-', which would make it an option of ssh"
    if len(name) > _LONGEST_HOST or not _HOST.fullmatch(name):
        return f"a host's name has letters, digits, '.', '-' and '_' only ({_LONGEST_HOST} at most), or is an address"
    return ""


def parse_hostfile(text: str) -> dict[str, int]:
    """Parse a hostfile into host -> slots, in the order of the file. Raises HostfileError."""
    pool: dict[str, int] = {}
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.strip()
        if not line or line.startswith("#"):
            continue
        match = _LINE.search(line)
        if match is None:
            raise HostfileError(f"{line[:60]!r} is not `HOST slots=N`", number)
        host, slots = match[1], _slots(match[2], number)
        if problem := host_problem(host):
            raise HostfileError(f"{host[:60]!r}: {problem}", number)
        if host in pool:
            raise HostfileError(f"the host {host!r} is given a second time: give it once, with all its slots", number)
        pool[host] = slots
    if not pool:
        raise HostfileError("no hosts in it: write one line per host, `worker-1 slots=8`")
    return pool


def _slots(digits: str, line: int) -> int:
    if len(digits) > MAX_DIGITS or int(digits) > MAX_SLOTS:
        raise HostfileError(f"{digits[:20]} slots are more than {MAX_SLOTS:,}, the most of one host", line)
    return int(digits)


def placeholder_hosts(count: int) -> list[str]:
    """Return names for hosts that the cluster will choose: `node 0`, `node 1`, … No real host name has a space."""
    return [f"node {number}" for number in range(count)]


def is_named(host: str) -> bool:
    """Return whether a host is real, not a placeholder for one that the cluster will choose."""
    return " " not in host


def hostfile_text(hosts: Mapping[str, int]) -> str:
    """Write a hostfile for these hosts."""
    return "".join(f"{host} slots={slots}\n" for host, slots in hosts.items())


def select(
    pool: Mapping[str, int],
    *,
    include: str | None = None,
    exclude: str | None = None,
    num_nodes: int | None = None,
    num_gpus: int | None = None,
) -> dict[str, list[int]]:
    """Return host -> slots after the filters, as DeepSpeed computes them. Raises HostfileError."""
    if include and exclude:
        raise HostfileError("include and exclude are both given: DeepSpeed accepts only one of them")
    if (include or exclude) and (num_nodes or num_gpus):
        raise HostfileError("num_nodes and num_gpus cannot be combined with include or exclude: keep one way of choosing")
    _refuse_many(len(pool) * num_gpus if num_gpus else sum(pool.values()))
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


def include_for(pool: Mapping[str, int], chosen: Mapping[str, Iterable[int]]) -> str | None:
    """Return the `include` that selects these slots (`worker-0@worker-1:0,2`); None if they are all slots.

    `select(pool, include=include_for(pool, chosen))` gives `chosen` again. Raises HostfileError if nothing is chosen or a slot does not
    exist.
    """
    wanted = _sets(pool, chosen)
    if not wanted:
        raise HostfileError("no slot is chosen: DeepSpeed needs one at least")
    if all(len(wanted.get(host, ())) == slots for host, slots in pool.items()):
        return None
    return "@".join(_part(host, pool[host], wanted[host]) for host in pool if host in wanted)


def exclude_for(pool: Mapping[str, int], chosen: Mapping[str, Iterable[int]]) -> str | None:
    """Return the `exclude` that leaves these slots; None if all are left. Raises HostfileError as `include_for` does."""
    if include_for(pool, chosen) is None:
        return None
    wanted = _sets(pool, chosen)
    left_out = {host: set(range(slots)) - wanted.get(host, set()) for host, slots in pool.items()}
    return "@".join(_part(host, pool[host], slots) for host, slots in left_out.items() if slots)


def _sets(pool: Mapping[str, int], chosen: Mapping[str, Iterable[int]]) -> dict[str, set[int]]:
    """Return the chosen slots as sets, without hosts that have none."""
    wanted = {host: set(slots) for host, slots in chosen.items()}
    for host, slots in wanted.items():
        if host not in pool or not slots <= set(range(pool[host])):
            raise HostfileError(f"{host[:60]!r} does not have the slots {', '.join(map(_short, sorted(slots)[:20]))}")
    return {host: slots for host, slots in wanted.items() if slots}


def _part(host: str, slots: int, chosen: set[int]) -> str:
    """Format one host of a filter."""
    if ":" in host or "@" in host:
        named = "give it a name (Host, HostName and User in ~/.ssh/config)"
        raise HostfileError(f"{host[:60]!r} cannot be in a filter, where '@' and ':' have a meaning: {named}")
    return host if len(chosen) == slots else f"{host}:{','.join(map(str, sorted(chosen)))}"


def _refuse_many(ranks: int) -> None:
    """Raise HostfileError for too many ranks before they are listed."""
    if ranks > MAX_RANKS:
        raise HostfileError(f"{ranks:,} ranks are more than {MAX_RANKS:,}, the most that a job can have here")


def _filter(text: str, slots: Mapping[str, list[int]], name: str) -> dict[str, set[int]]:
    chosen: dict[str, set[int]] = {}
    for part in text.split("@"):
        host, colon, listed = part.partition(":")
        if host not in slots:
            among = ", ".join([*list(slots)[:20], *(["…"] if len(slots) > 20 else [])])
            raise HostfileError(f"{name} names the host {host[:60]!r}, which is not among {among}")
        has = len(slots[host])
        try:
            wanted = [int(s) for s in listed.split(",")] if colon else slots[host]
        except ValueError:
            raise HostfileError(f"{name} has {part[:60]!r}: slots are numbers with commas ({host}:0,2), ranges are not supported") from None
        for slot in wanted:
            if not 0 <= slot < has:
                raise HostfileError(f"{name} names slot {_short(slot)} of {host}, which has slots 0 to {has - 1}")
        chosen.setdefault(host, set()).update(wanted)
    return chosen


def _short(number: int) -> str:
    return str(number) if abs(number) < 10**MAX_DIGITS else "with thousands of digits"


_SSH_HOSTS = re.compile(r"\s*host(?:\s*=\s*|\s+)(.*)", re.IGNORECASE)
_INCLUDE = re.compile(r"\s*include(?:\s*=\s*|\s+)(.*)", re.IGNORECASE)


def ssh_hosts(text: str) -> list[str]:
    """Return the names after `Host` in order and without duplicates, patterns (*, ?, !) and invalid names."""
    names = (name for line in text.splitlines() if (match := _SSH_HOSTS.match(line)) for name in _words(match[1]))
    return list(dict.fromkeys(name for name in names if not set(name) & set("*?!") and not host_problem(name)))[:MAX_RANKS]


def included(text: str) -> list[str]:
    """Return the files that `Include` names, as written (`~/.ssh/config.d/*`); the caller reads them."""
    return [word for line in text.splitlines() if (match := _INCLUDE.match(line)) for word in _words(match[1])]


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text, comments=True)
    except ValueError:  # an unclosed quote: OpenSSH refuses the file
        return []
